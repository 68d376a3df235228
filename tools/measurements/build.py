"""How do the raw files become the shipped rows? Read, filter, hold against physics, mark twins."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from measurements.amd import read_amd
from measurements.cells import attention_dp_configurations, read_cells, with_twins
from measurements.collected import read_collected
from measurements.filters import Raw
from measurements.ledger import Ledger
from measurements.physics import Physics
from measurements.statistic import with_statistics
from penstock.catalog.measurement import Measurement

_RUNS = {"inferencex", "inferencex-via-aiconfigurator"}


@dataclass(frozen=True, kw_only=True)
class Built:
    """Every shipped row, and every row that is not shipped."""

    rows: list[Measurement]
    ledger: Ledger


def build(folder: Path) -> Built:
    """Make everything from the raw files in a folder."""
    ledger = Ledger()
    collected, cells = _read(folder / "measurements.csv"), _read(folder / "inferencex_2026-07-20.csv")
    runs = list(read_collected(collected, attention_dp_configurations(cells), ledger))
    runs += read_amd(_read(folder / "amd_more.csv"), ledger)
    physics = Physics()
    dated = list(physics.passed(_once(runs, ledger), ledger))
    medians = list(physics.passed(read_cells(cells, ledger), ledger))
    rows = dated + with_twins(medians, (row for row in dated if row.source in _RUNS))
    return Built(rows=list(with_statistics(rows)), ledger=ledger)


def _read(path: Path) -> list[Raw]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _once(rows: Iterable[Measurement], ledger: Ledger) -> Iterator[Measurement]:
    """Keep the first of the rows of one source that tell the same of one run."""
    seen: set[tuple[object, ...]] = set()
    for row in rows:
        setup = (row.source, row.scenario, row.model, row.weights, row.accelerator, row.engine, row.stack, row.drafted)
        split = (row.tp, row.dp, row.ep, row.decode_workers, row.prefill)
        load = (row.input_tokens, row.output_tokens, row.concurrency, row.date, row.tpot_s, row.ttft_s)
        key = (*setup, *split, *load)
        if row.tpot_s is not None and key in seen:
            ledger.enter("filed_twice", row)
        else:
            seen.add(key)
            yield row
