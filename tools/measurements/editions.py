"""Which rows did the first edition ship? Its rules, kept for as long as the shipped efficiencies are fitted to it."""

from collections.abc import Sequence
from typing import Final

from measurements.collected import base_fields, split_fields
from measurements.filters import Raw, reason_to_leave
from measurements.ledger import Ledger
from measurements.split import Split
from penstock.catalog.measurement import Measurement

_SEVERAL_REPLICAS: Final = {"m05535", "m05555", "m05556", "m05557"}
"""Left out by hand: the load was taken for that of several replicas."""
_NODE: Final = 8
_LOOPS: Final = {"inferencex-app-fixtures", "inferencex-via-aiconfigurator", "aiconfigurator-silicon"}


def first_edition_ids(rows: Sequence[Raw]) -> set[str]:
    """Return the ids of the 6,712 rows of measurements.csv that the first edition had."""
    seen: set[tuple[object, ...]] = set()
    found = set()
    for raw in rows:
        split = _split(raw)
        if raw["flag"] or split is None or raw["row_id"] in _SEVERAL_REPLICAS:
            continue
        if raw["scenario"].endswith("disagg") or reason_to_leave(raw) not in {None, "copied"}:
            continue
        if raw["source_id"] in _LOOPS:
            # It took two runs with the same two decimals of a time for one run filed twice, whatever their days.
            model = "deepseek-r1" if raw["model"] == "deepseek-v3" else raw["model"]
            setup = (model, raw["weights_precision"], raw["accelerator"], raw["engine"].replace("trtllm", "trt"))
            load = (raw["input_tokens"], raw["output_tokens"], raw["concurrency"], round(float(raw["tpot_ms"]), 2))
            key = (*setup, *split, *load)
            if key in seen:
                continue
            seen.add(key)
        found.add(raw["row_id"])
    return found


def withdrawn(rows: Sequence[Raw], first: set[str], ledger: Ledger) -> list[Measurement]:
    """Return the rows of the first edition that a filter drops now, as it read them, flagged with the filter."""
    dropped = {entry.id: entry.filter for entry in ledger.left if entry.id in first}
    found = []
    for raw in rows:
        split = _split(raw)
        if raw["row_id"] in dropped and split is not None:
            ranks, spread, attention_dp = split
            read = Split(ranks=ranks, expert_ranks=ranks if spread else 1, attention_dp=attention_dp)
            values = base_fields(raw, inferencex=raw["source_id"].startswith("inferencex")) | split_fields(read)
            found.append(Measurement(**values | {"edition": 1, "flag": dropped[raw["row_id"]]}))
    return found


def _split(raw: Raw) -> tuple[int, bool, bool] | None:
    """Read ranks, experts spread and attention-DP as it did: without attention-DP in samples and tables."""
    note = raw["parallel_note"]
    if raw["source_id"] == "inferencex-app-fixtures":
        return int(raw["tp"]), raw["ep"] != "1", note.startswith("dp_attention=True")
    if "moe_tp" not in note:
        return (int(raw["tp"]), False, False) if raw["tp"] else None
    attention, cut, spread = (int(word.split("=")[1]) for word in note.split())
    ranks = cut if cut > 1 else int(raw["tp"])
    known = attention == 1 and ranks <= _NODE and (cut == spread or 1 in {cut, spread})
    return (ranks, spread > 1, False) if known else None
