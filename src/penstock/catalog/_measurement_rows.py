"""Reads measured rows from CSV files and checks them strictly, column by column.

The files have too many rows to parse them row by row.
"""

import csv
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import date
from itertools import repeat
from math import inf
from typing import Any, Final, get_args

from penstock.catalog.measurement import Dated, Drafted, Measurement, Overlap, Scenario, Side, Statistic
from penstock.errors import CatalogError

Parse = Callable[[str], Any]
_TRUTH: Final = {"0": False, "1": True}


def _text(text: str) -> str:
    if not text or text != text.strip():
        raise ValueError("must not be empty, and must not start or end with a space")
    return text


def _one_of(*allowed: str) -> Parse:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"'{text}' is not one of {', '.join(filter(None, allowed))}")
        return text

    return parse


def _truth(text: str) -> bool:
    if text not in _TRUTH:
        raise ValueError(f"'{text}' must be 0 or 1")
    return _TRUTH[text]


def _count(text: str) -> int:
    if not text.isdecimal() or text.startswith("0"):
        raise ValueError(f"'{text}' must be a whole number above zero")
    return int(text)


def _amount(text: str) -> float:
    value = float(text)
    if 0 < value < inf:
        return value
    raise ValueError(f"'{text}' must be a finite number above zero")


def _amount_or_none(text: str) -> float | None:
    return _amount(text) if text else None


def _count_or_none(text: str) -> int | None:
    return _count(text) if text else None


def _statistic(text: str) -> str | None:
    return _one_of(*get_args(Statistic))(text) if text else None


_SIDE: Final[Mapping[str, Parse]] = {
    "prefill_workers": _count_or_none,
    "prefill_tp": _count_or_none,
    "prefill_dp": _count_or_none,
    "prefill_ep": lambda text: _truth(text) if text else None,
}
COLUMNS: Final[Mapping[str, Parse]] = {
    "id": _text,
    "source": _text,
    "ref": str,
    "scenario": _one_of(*get_args(Scenario)),
    "model": _text,
    "weights": _text,
    "kv": str,
    "accelerator": _text,
    "engine": _text,
    "stack": str,
    "version": str,
    "date": date.fromisoformat,
    "dated": _one_of(*get_args(Dated)),
    "tp": _count,
    "dp": _count,
    "ep": _truth,
    "decode_workers": _count,
    **_SIDE,
    "nodes": _count,
    "drafted": _one_of(*get_args(Drafted)),
    "draft_tokens": _count_or_none,
    "accepted_length": _amount_or_none,
    "overlap": _one_of(*get_args(Overlap)),
    "max_running": _count_or_none,
    "chunk_tokens": _count_or_none,
    "memory_fraction": _amount_or_none,
    "requests": _count_or_none,
    "concurrency": _amount_or_none,
    "input_tokens": _amount,
    "output_tokens": _amount,
    "tpot_s": _amount_or_none,
    "tpot_statistic": _statistic,
    "tpot_p99_s": _amount_or_none,
    "ttft_s": _amount_or_none,
    "ttft_statistic": _statistic,
    "ttft_p99_s": _amount_or_none,
    "output_tokens_per_s": _amount_or_none,
    "joules_per_output_token": _amount_or_none,
    "twin": str,
    "flag": str,
}
"""Every column that a file of measurements can have, in the order of the file. A file leaves out columns that would be
empty in all rows."""
_REQUIRED: Final = {field.name for field in fields(Measurement) if field.default is MISSING}


def read_rows(text: str, where: str) -> list[Measurement]:
    """Parse one file of measurements. An error message is one line that names the file, the line and the column."""
    table = list(csv.reader(text.splitlines()))
    header, lines = (table[0], table[1:]) if table else ([], [])
    _check_header(header, where)
    for number, line in enumerate(lines, start=2):
        if len(line) != len(header):
            raise CatalogError(f"{where}: line {number}: has {len(line)} fields, but the header has {len(header)}")
    columns: dict[str, list[Any]] = {
        name: _parse_column(name, column, where) for name, column in zip(header, zip(*lines, strict=True), strict=False)
    }
    if _SIDE.keys() <= columns.keys():
        columns["prefill"] = [_side(*parts) for parts in zip(*(columns.pop(name) for name in _SIDE), strict=True)]
    return _fill_rows(columns, len(lines))


def _fill_rows(columns: Mapping[str, Sequence[Any]], count: int) -> list[Measurement]:
    """Create the rows field by field without the constructor.

    The constructor of a frozen dataclass would take longer than all other parsing.
    """
    rows = [object.__new__(Measurement) for _ in range(count)]
    for field in fields(Measurement):
        fill = getattr(Measurement, field.name).__set__
        deque(map(fill, rows, columns.get(field.name, repeat(field.default))), maxlen=0)
    return rows


def _check_header(header: Sequence[str], where: str) -> None:
    wrong = [f"no column '{name}'" for name in sorted(_REQUIRED.difference(header))]
    wrong += [f"unknown column '{name}'" for name in header if name not in COLUMNS]
    wrong += [f"column '{name}' twice" for name in sorted({name for name in header if header.count(name) > 1})]
    if _SIDE.keys() & set(header) and not _SIDE.keys() <= set(header):
        wrong.append(f"has only some of the columns {', '.join(_SIDE)}; it must have all or none")
    if wrong:
        raise CatalogError(f"{where}: line 1: {wrong[0]}")


def _parse_column(name: str, column: Sequence[str], where: str) -> list[Any]:
    """Parse each distinct text of a column once.

    Most columns have few distinct texts, and rows with equal texts share the parsed value.
    """
    parse, known = COLUMNS[name], {}
    for text in set(column):
        try:
            known[text] = parse(text)
        except ValueError as error:
            raise CatalogError(f"{where}: line {column.index(text) + 2}: {name}: {error}") from error
    return list(map(known.__getitem__, column))


def _side(workers: int | None, tp: int | None, dp: int | None, ep: bool | None) -> Side | None:  # noqa: FBT001 - a column
    if workers is None or tp is None or dp is None or ep is None:
        return None
    return Side(workers=workers, tp=tp, dp=dp, ep=ep)
