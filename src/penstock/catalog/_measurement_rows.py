"""Reads measured rows from CSV files and checks them strictly."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import date
from itertools import repeat
from typing import Any, Final, get_args

from penstock.catalog._csv_columns import Parse, amount, count, one_of, optional, read_columns, text, truth
from penstock.catalog.measurement import Dated, Drafted, Measurement, Overlap, Scenario, Side, Statistic
from penstock.errors import CatalogError

_STATISTIC: Final = optional(one_of(*get_args(Statistic)))
_SIDE: Final[Mapping[str, Parse]] = {
    "prefill_workers": optional(count),
    "prefill_tp": optional(count),
    "prefill_dp": optional(count),
    "prefill_ep": optional(truth),
}
COLUMNS: Final[Mapping[str, Parse]] = {
    "id": text,
    "source": text,
    "ref": str,
    "scenario": one_of(*get_args(Scenario)),
    "model": text,
    "weights": text,
    "kv": str,
    "accelerator": text,
    "engine": text,
    "stack": str,
    "version": str,
    "date": date.fromisoformat,
    "dated": one_of(*get_args(Dated)),
    "tp": count,
    "dp": count,
    "ep": truth,
    "decode_workers": count,
    **_SIDE,
    "nodes": count,
    "drafted": one_of(*get_args(Drafted)),
    "draft_tokens": optional(count),
    "accepted_length": optional(amount),
    "overlap": one_of(*get_args(Overlap)),
    "max_running": optional(count),
    "chunk_tokens": optional(count),
    "memory_fraction": optional(amount),
    "requests": optional(count),
    "concurrency": optional(amount),
    "input_tokens": amount,
    "output_tokens": amount,
    "tpot_s": optional(amount),
    "tpot_statistic": _STATISTIC,
    "tpot_p99_s": optional(amount),
    "ttft_s": optional(amount),
    "ttft_statistic": _STATISTIC,
    "ttft_p99_s": optional(amount),
    "output_tokens_per_s": optional(amount),
    "joules_per_output_token": optional(amount),
    "twin": str,
    "flag": str,
}
"""Every column that a file of measurements can have, in the order of the file. A file leaves out columns that would be
empty in all rows."""
_REQUIRED: Final = frozenset(field.name for field in fields(Measurement) if field.default is MISSING)


def read_rows(table: str, where: str) -> list[Measurement]:
    """Parse one file of measurements. An error message is one line that names the file, the line and the column."""
    columns, rows = read_columns(table, where, COLUMNS, _REQUIRED)
    sides = _SIDE.keys() & set(table.partition("\n")[0].split(","))
    if sides and sides != _SIDE.keys():
        some = f"has only some of the columns {', '.join(_SIDE)}; it must have all or none"
        raise CatalogError(f"{where}: line 1: {some}")
    if _SIDE.keys() <= columns.keys():
        columns["prefill"] = [_side(*parts) for parts in zip(*(columns.pop(name) for name in _SIDE), strict=True)]
    return _fill_rows(columns, rows)


def _fill_rows(columns: Mapping[str, Sequence[Any]], rows: int) -> list[Measurement]:
    """Create the rows field by field without the constructor.

    The constructor of a frozen dataclass would take longer than all other parsing.
    """
    made = [object.__new__(Measurement) for _ in range(rows)]
    for field in fields(Measurement):
        fill = getattr(Measurement, field.name).__set__
        deque(map(fill, made, columns.get(field.name, repeat(field.default))), maxlen=0)
    return made


def _side(workers: int | None, tp: int | None, dp: int | None, ep: bool | None) -> Side | None:  # noqa: FBT001 - a column
    if workers is None or tp is None or dp is None or ep is None:
        return None
    return Side(workers=workers, tp=tp, dp=dp, ep=ep)
