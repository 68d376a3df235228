"""What is in the InferenceX cells? One configuration, lengths and load each: medians over all runs up to a day."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Final

from measurements.collected import NOMINAL, split_fields
from measurements.filters import Raw
from measurements.ledger import Ledger
from measurements.names import inner_engine, model_name, stack_name, weight_format
from measurements.split import inferencex_split, nodes_of
from penstock.catalog.measurement import Measurement

_LAST_DAY: Final = date(2026, 7, 19)
"""The last run in the database of 2026-07-20."""


def attention_dp_configurations(rows: Iterable[Raw]) -> set[str]:
    """List the configurations whose attention is data parallel."""
    return {raw["config_id"] for raw in rows if raw["decode_dp_attention"] == "1"}


def read_cells(rows: Sequence[Raw], ledger: Ledger) -> Iterator[Measurement]:
    """Read every cell whose split is one we can state."""
    for raw in rows:
        decode = inferencex_split(raw["decode_tp"], raw["decode_ep"], raw["decode_dp_attention"])
        model = model_name(raw["model"])
        row = Measurement(
            id=f"cell{raw['config_id']}-{raw['isl']}-{raw['osl']}-{raw['concurrency']}",
            source="inferencex-cells",
            ref=raw["config_id"],
            scenario="disaggregated" if raw["disagg"] == "1" else "online",
            model=model,
            weights=weight_format(raw["precision"], model, raw["hardware"]),
            accelerator=raw["hardware"],
            engine=inner_engine(raw["framework"]),
            stack=stack_name(raw["framework"]),
            date=_LAST_DAY,
            dated="up_to",
            drafted="mtp" if raw["spec_method"] == "mtp" else "",
            concurrency=float(raw["concurrency"]),
            input_tokens=int(raw["isl"]) * NOMINAL,
            output_tokens=int(raw["osl"]) * NOMINAL,
            tpot_s=float(raw["median_tpot_s"]),
            joules_per_output_token=float(raw["joules_per_output_token"]) if raw["joules_per_output_token"] else None,
            **split_fields(decode),
        )
        workers = int(raw["prefill_workers"]), int(raw["decode_workers"])
        if row.scenario == "disaggregated":
            prefill = inferencex_split(raw["prefill_tp"], raw["prefill_ep"], raw["prefill_dp_attention"])
            row = replace(row, prefill=prefill.side(workers[0]), decode_workers=workers[1])
        if row.scenario == "disaggregated" and 0 in workers:
            ledger.enter("split_unstated", row)
        elif decode.partial:
            ledger.enter("partial_ep", row)
        else:
            yield _completed(row, raw)


def _completed(row: Measurement, raw: Raw) -> Measurement:
    """Add what depends on the devices: input and output tokens were counted together, and per device."""
    total_per_s = float(raw["total_tokens_per_s_per_gpu"]) * row.devices
    share = row.output_tokens / (row.input_tokens + row.output_tokens)
    nodes = nodes_of(row.accelerator, row.devices, several=raw["multinode"] == "1")
    return replace(row, output_tokens_per_s=total_per_s * share, nodes=nodes)


def with_twins(cells: Sequence[Measurement], runs: Iterable[Measurement]) -> list[Measurement]:
    """Name, for each cell, the dated run of the same configuration, lengths and load that is nearest to its median."""
    dated: dict[tuple[object, ...], list[Measurement]] = {}
    for run in runs:
        dated.setdefault(_same(run), []).append(run)
    found = []
    for cell in cells:
        same = dated.get(_same(cell), [])
        nearest = min(same, key=lambda run: (_apart(cell, run), run.id), default=None)
        found.append(replace(cell, twin=nearest.id) if nearest else cell)
    return found


def with_double_descriptions(cells: Sequence[Measurement], others: Iterable[Measurement]) -> list[Measurement]:
    """Flag each cell that another configuration of the database describes in the same words."""
    described = {_same(row) for row in others if row.source == "inferencex-cells"}
    return [replace(cell, flag="described_twice") if _same(cell) in described else cell for cell in cells]


def _same(row: Measurement) -> tuple[object, ...]:
    setup = (row.scenario, row.model, row.weights, row.accelerator, row.engine, row.stack, row.drafted)
    split = (row.tp, row.dp, row.ep, row.decode_workers, row.prefill)
    return (*setup, *split, round(row.input_tokens), round(row.output_tokens), row.concurrency)


def _apart(cell: Measurement, run: Measurement) -> float:
    return abs((run.tpot_s or 0.0) - (cell.tpot_s or 0.0))
