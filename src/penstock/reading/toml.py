"""Reads the package's TOML data into frozen dataclasses. An unknown key or a quoted number is an error."""

import tomllib
from importlib.resources.abc import Traversable
from typing import Any, TypeVar, cast

from penstock.errors import CatalogError
from penstock.reading.table_reader import PlacedError, reader_of

_T = TypeVar("_T")


def read_toml(path: Traversable) -> dict[str, Any]:
    """Read one TOML file of the package."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CatalogError(f"{path.name}: {error}") from error
    return parse_toml(text, path.name)


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Parse TOML. Error messages name `where`."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{where}: {error}") from error


def strictly(kind: type[_T], raw: object, where: str) -> _T:
    """Convert parsed values strictly to a dataclass, or to a tuple of dataclasses."""
    try:
        made: _T = reader_of(cast("type", kind))(raw)
    except PlacedError as error:
        place = ".".join(map(str, error.place))
        raise CatalogError(": ".join(filter(None, (where, place, str(error))))) from error
    return made
