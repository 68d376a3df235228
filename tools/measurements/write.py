"""How are rows written? Plain CSV, sorted so that a diff shows what changed, without columns that say nothing."""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import date
from typing import Final

from penstock.catalog._measurement_rows import COLUMNS
from penstock.catalog.measurement import Measurement

_FILES: Final = {
    "inferencex": "inferencex_runs",
    "inferencex-cells": "inferencex_cells",
    "inferencex-via-aiconfigurator": "aiconfigurator",
    "aiconfigurator-silicon": "aiconfigurator",
    "rocm-vllm-devdocker": "amd",
    "amd-perf-page": "amd",
    "rocm-atom-nightly": "atom",
}
_DIGITS: Final = {"ttft_s": 5, "joules_per_output_token": 5}
_SIDE: Final = {"prefill_workers": "workers", "prefill_tp": "tp", "prefill_dp": "dp", "prefill_ep": "ep"}
_DEFAULTS: Final = {field.name: field.default for field in fields(Measurement)}


def file_of(source: str) -> str:
    """Name the file that holds the rows of a source of the first editions."""
    return _FILES.get(source, "trtllm" if source.startswith("trtllm") else "others") + ".csv"


def csv_files(files: Mapping[str, Iterable[Measurement]]) -> dict[str, str]:
    """Return the text of every file."""
    return {name: csv_text(held) for name, held in sorted(files.items())}


def _order(row: Measurement) -> tuple[object, ...]:
    """Sort a curve's points together: a setup, its lengths, its load, then its days."""
    setup = (row.scenario, row.accelerator, row.engine, row.model, row.weights, row.stack, row.drafted)
    prefill = (row.prefill.workers, row.prefill.tp, row.prefill.dp, row.prefill.ep) if row.prefill else ()
    split = (row.tp, row.dp, row.ep, row.decode_workers, prefill)
    return (*setup, *split, row.input_tokens, row.output_tokens, row.concurrency or 0.0, row.date, row.source, row.id)


def csv_text(rows: Iterable[Measurement]) -> str:
    """Return the text of one file."""
    cells = [_cells(row) for row in sorted(rows, key=_order)]
    empty = _cells_of(_DEFAULTS)
    used = [name for name in COLUMNS if any(cell[name] != empty.get(name) for cell in cells)]
    if any(name in _SIDE for name in used):
        used = [name for name in COLUMNS if name in used or name in _SIDE]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(used)
    writer.writerows([cell[name] for name in used] for cell in cells)
    return out.getvalue()


def _cells(row: Measurement) -> dict[str, str]:
    return _cells_of({field.name: getattr(row, field.name) for field in fields(row)})


def _cells_of(values: Mapping[str, object]) -> dict[str, str]:
    side = values["prefill"]
    every = {**values, **{column: getattr(side, name, None) for column, name in _SIDE.items()}}
    return {name: _written(name, every[name]) for name in COLUMNS}


def _written(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:.{_DIGITS.get(name, 6)}g}"
    return value.isoformat() if isinstance(value, date) else str(value)
