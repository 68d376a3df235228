"""Which fields do the newer raw files share? They have the columns of the shipped rows, and labels of their own."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, timedelta
from typing import Any, Final

from measurements.filters import Raw
from measurements.ledger import Ledger, Left
from measurements.names import model_name, weight_format
from penstock.catalog import accelerator_ids, model_ids
from penstock.catalog.measurement import Measurement, Side
from penstock.model.weight import FORMATS

Filters = tuple[tuple[str, Callable[[Raw], bool]], ...]
_AMOUNTS: Final = {
    "concurrency": "concurrency",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "tpot_s": "tpot_s",
    "tpot_p99_s": "tpot_p99_s",
    "ttft_s": "ttft_s",
    "ttft_p99_s": "ttft_p99_s",
    "output_tokens_per_s": "output_tokens_per_s",
    "accept_length": "accepted_length",
    "mem_fraction": "memory_fraction",
}
_COUNTS: Final = {
    "draft_tokens": "draft_tokens",
    "max_running": "max_running",
    "chunk": "chunk_tokens",
    "requests": "requests",
}
_YEAR_MONTH: Final = len("2026-08")

KNOWN: Final[Filters] = (
    ("unknown_model", lambda raw: model_name(raw["model"]) not in model_ids()),
    ("unknown_accelerator", lambda raw: raw["accelerator"] not in accelerator_ids()),
    ("weights_unstated", lambda raw: stored_weights(raw) not in FORMATS),
    ("split_unstated", lambda raw: not raw["tp"]),
)
"""Filters of every newer file: what has no name in the catalog cannot be placed."""


def flags(raw: Raw) -> frozenset[str]:
    """Return the flags of a row."""
    return frozenset(filter(None, raw["flag"].split(";")))


def flagged(*names: str) -> Callable[[Raw], bool]:
    """Return a filter of the rows that have one of these flags."""
    return lambda raw: not flags(raw).isdisjoint(names)


def stored_weights(raw: Raw) -> str:
    """Name the weight format. InferenceX calls MXFP8 checkpoints fp8, so they are fp8 here too."""
    written = "fp8" if raw["weights"] == "mxfp8" else raw["weights"]
    return weight_format(written, model_name(raw["model"]), raw["accelerator"])


def day_of(written: str) -> tuple[date, bool]:
    """Return a day, and whether it is exact. A month is the last day of the month, and is not."""
    if len(written) > _YEAR_MONTH:
        return date.fromisoformat(written), True
    following = date.fromisoformat(f"{written}-28") + timedelta(days=4)
    return following - timedelta(days=following.day), False


def labelled_fields(raw: Raw, kept_flags: Iterable[str] = ()) -> dict[str, Any]:
    """Return the fields of a row, with those of its flags that stay flags."""
    day, exact = day_of(raw["date"])
    values: dict[str, Any] = {name: raw[name] for name in ("id", "source", "ref", "engine", "version")}
    values |= {name: raw.get(name, "") for name in ("kv", "drafted", "overlap")}
    values |= {
        "scenario": raw["scenario"],
        "model": model_name(raw["model"]),
        "weights": stored_weights(raw),
        "accelerator": raw["accelerator"],
        "date": day,
        "dated": "day" if exact else "up_to",
        "tp": int(raw["tp"]),
        "dp": int(raw["dp"]),
        "ep": raw["ep"] == "1",
        "nodes": int(raw.get("nodes") or 1),
        "flag": ";".join(name for name in kept_flags if name in flags(raw)),
    }
    values |= {field: float(raw[column]) for column, field in _AMOUNTS.items() if raw.get(column)}
    values |= {field: int(raw[column]) for column, field in _COUNTS.items() if raw.get(column)}
    if raw.get("prefill_workers"):
        values["decode_workers"] = int(raw["decode_workers"])
        values["prefill"] = Side(
            workers=int(raw["prefill_workers"]),
            tp=int(raw["prefill_tp"]),
            dp=int(raw["prefill_dp"]),
            ep=raw["prefill_ep"] == "1",
        )
    return values


def read_labelled(
    rows: Iterable[Raw], filters: Filters, read: Callable[[Raw], Mapping[str, Any]], ledger: Ledger
) -> Iterator[Measurement]:
    """Read every row that no filter drops. The first filter that fits a row names it in the ledger."""
    for raw in rows:
        reason = next((name for name, drops in filters if drops(raw)), None)
        if reason is None:
            yield Measurement(**read(raw))
        else:
            left = Left(id=raw["id"], source=raw["source"], accelerator=raw["accelerator"], filter=reason)
            ledger.left.append(left)
