"""How do the raw files become the shipped rows? Read, filter, hold against physics, mark twins."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from measurements.amd import read_amd
from measurements.atom_more import read_atom_more
from measurements.cells import attention_dp_configurations, read_cells, with_double_descriptions, with_twins
from measurements.collected import read_collected
from measurements.cookbook import read_cookbook
from measurements.filters import Raw
from measurements.ledger import Ledger
from measurements.physics import Physics
from measurements.serving_2026_09 import read_serving
from measurements.small_more import read_small_more
from measurements.statistic import with_statistics
from measurements.tables import TABLES
from measurements.unloaded import read_long_prompts, read_prefill
from measurements.write import file_of
from penstock.catalog.measurement import QUEUED, UNMERGED, Measurement

Read = Callable[[Iterable[Raw], Ledger], Iterator[Measurement]]
_RUNS: Final = {"inferencex", "inferencex-via-aiconfigurator"}
_RELEASED: Final = "inferencex_released.csv"
_QUEUED: Final = "queued.csv"
_UNMERGED: Final = "unmerged.csv"
_LABELLED: Final[Mapping[str, tuple[str, Read]]] = {
    "atom_more.csv": ("atom_more.csv", read_atom_more),
    "sglang_cookbook.csv": ("sglang_cookbook.csv", read_cookbook),
    "small_more.csv": ("small_more.csv", read_small_more),
}
"""Shipped file of each newer raw file, and its reader."""
_HELD_OUT: Final[Mapping[str, tuple[str, Read]]] = {
    "long_prompts.csv": ("long_prompts.csv", read_long_prompts),
    "prefill.csv": ("prefill_llmd.csv", read_prefill),
}
"""Shipped file of each raw file that predictions are only tested on, and its reader. Waiting is their subject."""
_LATER: Final = "serving_2026_09.csv"
"""Rows that are newer than the fit. Predictions are tested on them until the model is fitted again."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """Every shipped row and every row of other tables by file, and every row that is not shipped."""

    files: Mapping[str, list[Measurement]]
    tables: Mapping[str, list[Any]]
    ledger: Ledger

    @property
    def rows(self) -> list[Measurement]:
        """Return the rows of all files."""
        return [row for held in self.files.values() for row in held]


def build(folder: Path) -> Built:
    """Make everything from the raw files in a folder."""
    ledger, physics = Ledger(), Physics()
    evidence = _evidence(folder, physics, ledger)
    files: dict[str, list[Measurement]] = {}
    for row in evidence:
        files.setdefault(file_of(row.source), []).append(row)
    released = physics.passed(read_cells(_read(folder / _RELEASED), ledger), ledger)
    files[_RELEASED] = with_double_descriptions(with_twins(list(released), _runs(evidence)), evidence)
    for name, (raw, read) in _LABELLED.items():
        once = _once([*evidence, *read(_read(folder / raw), ledger)], ledger)
        fresh = list(physics.passed(list(once)[len(evidence) :], ledger, with_queued=True))
        for row in fresh:
            kept = _QUEUED if QUEUED in row.flags else _UNMERGED if UNMERGED in row.flags else name
            files.setdefault(kept, []).append(row)
    for name, (raw, read) in _HELD_OUT.items():
        files[name] = list(read(_read(folder / raw), ledger))
    files[_LATER] = list(physics.passed(read_serving(_read(folder / _LATER), ledger), ledger, with_queued=True))
    tables = {name: table.rows(_read(folder / table.raw), ledger) for name, table in TABLES.items()}
    stated = {name: list(with_statistics(held)) for name, held in files.items()}
    return Built(files=stated, tables=tables, ledger=ledger)


def _evidence(folder: Path, physics: Physics, ledger: Ledger) -> list[Measurement]:
    """Read the files that the first editions were learnt from."""
    collected, cells = _read(folder / "measurements.csv"), _read(folder / "inferencex_2026-07-20.csv")
    runs = list(read_collected(collected, attention_dp_configurations(cells), ledger))
    runs += read_amd(_read(folder / "amd_more.csv"), ledger)
    dated = list(physics.passed(_once(runs, ledger), ledger))
    medians = list(physics.passed(read_cells(cells, ledger), ledger))
    return dated + with_twins(medians, _runs(dated))


def _runs(rows: Iterable[Measurement]) -> list[Measurement]:
    return [row for row in rows if row.source in _RUNS]


def _read(path: Path) -> list[Raw]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _once(rows: Iterable[Measurement], ledger: Ledger) -> Iterator[Measurement]:
    """Keep the first of the rows of one source that tell the same of one run."""
    seen: set[tuple[object, ...]] = set()
    for row in rows:
        setup = (row.source, row.scenario, row.model, row.weights, row.accelerator, row.engine, row.stack)
        drafts = (row.drafted, row.draft_tokens, row.overlap)
        split = (row.tp, row.dp, row.ep, row.decode_workers, row.prefill)
        load = (row.input_tokens, row.output_tokens, row.concurrency, row.date, row.tpot_s, row.ttft_s)
        key = (*setup, *drafts, *split, *load)
        if row.tpot_s is not None and key in seen:
            ledger.enter("filed_twice", row)
        else:
            seen.add(key)
            yield row
