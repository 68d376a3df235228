"""Converts parsed TOML strictly to dataclasses, by the types of their fields.

Pydantic could do it too, but importing pydantic takes as long as the rest of `penstock fit`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import date
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

Reader: TypeAlias = Callable[[Any], Any]
_NAMES: Final[Mapping[type, str]] = {
    str: "a text in quotes",
    int: "a whole number without quotes",
    float: "a number without quotes",
    bool: "true or false",
    date: "a date such as 2027-06-01, without quotes",
    NoneType: "absent",
}


class PlacedError(ValueError):
    """Error about a value inside a table. `place` is the path of keys and positions to the value."""

    def __init__(self, problem: str, place: Sequence[str | int] = ()) -> None:
        super().__init__(problem)
        self.place = tuple(place)


@cache
def reader_of(kind: Any) -> Reader:  # noqa: ANN401 - a type, or a generic such as `tuple[str, ...]`
    """Return the function that converts a parsed value to a type. An unsuitable value raises `PlacedError`."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda raw: raw
    if origin is Literal:
        return _literal(inner)
    if origin in {Union, UnionType}:
        return _union(inner)
    if origin in {tuple, list}:
        return _sequence(cast("type", origin), reader_of(inner[0]))
    if origin in {dict, Mapping}:
        return _mapping(*map(reader_of, inner))
    if is_dataclass(kind):
        return _table(cast("type", kind))
    if issubclass(kind, Enum):
        return _literal(tuple(member.value for member in kind), kind)
    return _scalar(kind)


def _scalar(kind: type) -> Reader:
    accepted = (int, float) if kind is float else (kind,)  # TOML writes 700.0 as 700, and datetime is a date

    def read(raw: object) -> object:
        if type(raw) not in accepted:
            raise PlacedError(f"must be {_NAMES[kind]}, not {raw!r}")
        return float(cast("float", raw)) if kind is float else raw

    return read


def _literal(allowed: Sequence[object], make: Reader | None = None) -> Reader:
    def read(raw: object) -> object:
        if raw not in allowed:
            raise PlacedError(f"{raw!r} is not one of {', '.join(map(str, allowed))}")
        return raw if make is None else make(raw)

    return read


def _union(kinds: Sequence[Any]) -> Reader:
    """Return a reader that prefers the type that the value already has, and else tries the types in their order."""
    readers = {kind: reader_of(kind) for kind in kinds}
    *earlier, last = (reader for kind, reader in readers.items() if kind is not NoneType)

    def read(raw: object) -> object:
        if type(raw) in readers:
            return readers[type(raw)](raw)
        for reader in earlier:
            try:
                return reader(raw)
            except PlacedError:
                continue
        return last(raw)

    return read


def _sequence(kind: type, item: Reader) -> Reader:
    def read(raw: object) -> object:
        if not isinstance(raw, list | tuple):
            raise PlacedError(f"must be a list, not {raw!r}")
        return kind(_inside(place, item, value) for place, value in enumerate(raw))

    return read


def _mapping(key: Reader, item: Reader) -> Reader:
    def read(raw: object) -> object:
        return {_inside(name, key, name): _inside(name, item, value) for name, value in _keys_of(raw).items()}

    return read


def _table(kind: type) -> Reader:
    types = get_type_hints(kind)
    readers = {field.name: reader_of(types[field.name]) for field in fields(kind)}
    required = [field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]

    def read(raw: object) -> object:
        table = _keys_of(raw)
        for name in table:
            if name not in readers:
                raise PlacedError(f"unexpected key; known keys: {', '.join(readers)}", (name,))
        for name in required:
            if name not in table:
                raise PlacedError("is missing", (name,))
        values = {name: _inside(name, readers[name], value) for name, value in table.items()}
        try:
            return kind(**values)
        except ValueError as error:
            raise PlacedError(str(error)) from error

    return read


def _keys_of(raw: object) -> Mapping[str, object]:
    if not isinstance(raw, Mapping):
        raise PlacedError(f"must be a table with keys, not {raw!r}")
    return raw


def _inside(step: str | int, reader: Reader, value: object) -> object:
    """Convert a value inside a table or a list. An error gets the position of the value."""
    try:
        return reader(value)
    except PlacedError as error:
        raise PlacedError(str(error), (step, *error.place)) from error.__cause__
