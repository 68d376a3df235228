"""Reads the package's TOML data into frozen dataclasses. An unknown key or a quoted number is an error."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from penstock.errors import CatalogError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

STRICT: Final[Mapping[str, object]] = {"extra": "forbid"}
"""`__pydantic_config__` of a dataclass that rejects unknown keys."""

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
    import pydantic_core  # noqa: PLC0415 - a tenth of a second that `--help` must not pay

    try:
        # JSON mode is used, because strict Python mode would refuse a table where it expects a dataclass.
        made: _T = _adapter(cast("type", kind)).validate_json(pydantic_core.to_json(raw), strict=True)
    except pydantic_core.ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise CatalogError(f"{where}: {place}: {problem['msg']}") from error
    return made


@cache
def _adapter(kind: type) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter  # noqa: PLC0415 - as above

    return TypeAdapter(kind)
