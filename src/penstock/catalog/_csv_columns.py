"""Reads CSV files strictly, column by column. An error message is one line that names the file, line and column.

The files have too many rows to parse them row by row.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import date
from math import inf
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from penstock.errors import CatalogError

Parse = Callable[[str], Any]
Shape = TypeVar("Shape")
_TRUTH: Final = {"0": False, "1": True}


def text(written: str) -> str:
    """Return a text that must not be empty."""
    if not written or written != written.strip():
        raise ValueError("must not be empty, and must not start or end with a space")
    return written


def one_of(*allowed: str) -> Parse:
    """Return a parser that accepts only the given texts."""

    def parse(written: str) -> str:
        if written not in allowed:
            raise ValueError(f"'{written}' is not one of {', '.join(filter(None, allowed))}")
        return written

    return parse


def truth(written: str) -> bool:
    """Parse 0 or 1."""
    if written not in _TRUTH:
        raise ValueError(f"'{written}' must be 0 or 1")
    return _TRUTH[written]


def count(written: str) -> int:
    """Parse a whole number above zero."""
    if not written.isdecimal() or written.startswith("0"):
        raise ValueError(f"'{written}' must be a whole number above zero")
    return int(written)


def amount(written: str) -> float:
    """Parse a finite number above zero."""
    value = float(written)
    if 0 < value < inf:
        return value
    raise ValueError(f"'{written}' must be a finite number above zero")


def optional(parse: Parse) -> Parse:
    """Return a parser that gives None for an empty text."""
    return lambda written: parse(written) if written else None


_PARSERS: Final[Mapping[type, Parse]] = {str: str, int: count, float: amount, bool: truth, date: date.fromisoformat}
"""Parser of each type of field."""


def read_columns(
    table: str, where: str, known: Mapping[str, Parse], required: frozenset[str]
) -> tuple[dict[str, list[Any]], int]:
    """Parse the columns of a file. Return them by name, and the number of rows."""
    records = list(csv.reader(table.splitlines()))
    header, lines = (records[0], records[1:]) if records else ([], [])
    _check_header(header, where, known, required)
    for number, line in enumerate(lines, start=2):
        if len(line) != len(header):
            raise CatalogError(f"{where}: line {number}: has {len(line)} fields, but the header has {len(header)}")
    columns = zip(header, zip(*lines, strict=True), strict=False)
    return {name: _parse_column(name, known[name], column, where) for name, column in columns}, len(lines)


def _check_header(header: Sequence[str], where: str, known: Mapping[str, Parse], required: frozenset[str]) -> None:
    wrong = [f"no column '{name}'" for name in sorted(required.difference(header))]
    wrong += [f"unknown column '{name}'" for name in header if name not in known]
    wrong += [f"column '{name}' twice" for name in sorted({name for name in header if header.count(name) > 1})]
    if wrong:
        raise CatalogError(f"{where}: line 1: {wrong[0]}")


def _parse_column(name: str, parse: Parse, column: Sequence[str], where: str) -> list[Any]:
    """Parse each distinct text of a column once.

    Most columns have few distinct texts, and rows with equal texts share the parsed value.
    """
    parsed = {}
    for written in set(column):
        try:
            parsed[written] = parse(written)
        except ValueError as error:
            raise CatalogError(f"{where}: line {column.index(written) + 2}: {name}: {error}") from error
    return list(map(parsed.__getitem__, column))


def parsers_of(shape: type[Any]) -> dict[str, Parse]:
    """Return the parser of each field of a dataclass, as its type says."""
    hints = get_type_hints(shape)
    return {field.name: _parser_of(hints[field.name], required=field.default is MISSING) for field in fields(shape)}


def _parser_of(hint: Any, *, required: bool) -> Parse:  # noqa: ANN401 - a type is an object of any kind
    if get_origin(hint) is Literal:
        return one_of(*get_args(hint))
    if get_origin(hint) is UnionType:
        (inner,) = (part for part in get_args(hint) if part is not NoneType)
        return optional(_parser_of(inner, required=required))
    return text if hint is str and required else _PARSERS[hint]


def read_table(shape: type[Shape], table: str, where: str) -> tuple[Shape, ...]:
    """Read a file whose columns are fields of a dataclass. Fields that have no column get their defaults."""
    required = frozenset(field.name for field in fields(shape) if field.default is MISSING)  # type: ignore[arg-type]
    columns, _ = read_columns(table, where, parsers_of(shape), required)
    return tuple(shape(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True))
