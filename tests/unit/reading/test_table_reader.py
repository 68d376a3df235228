"""The strict reader of shipped tables accepts and returns what pydantic accepts and returns in strict mode."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from penstock.reading.table_reader import PlacedError, reader_of


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Inner:
    __pydantic_config__: ClassVar[Mapping[str, object]] = {"extra": "forbid"}

    a: int
    b: Literal["red", "green"] | None = None

    def __post_init__(self) -> None:
        if self.a == 1:
            raise ValueError("a must not be 1")


@dataclass(frozen=True, kw_only=True)
class Outer:
    __pydantic_config__: ClassVar[Mapping[str, object]] = {"extra": "forbid"}

    a: float
    b: Inner | None = None
    c: tuple[Inner, ...] = ()


KINDS = (
    str,
    int,
    float,
    bool,
    Colour,
    Inner,
    Outer,
    Literal["red", "blue"],
    float | None,
    str | int | float | bool | list[str],
    tuple[str, ...],
    list[Colour],
    Mapping[Colour, float],
    dict[str, str | int | float | bool | list[str]],
)
SCALARS = st.sampled_from(["red", "blue", "700", ""]) | st.integers(0, 3) | st.just(0.5) | st.booleans()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c", "red"]), inner),
    max_leaves=6,
)


def read_with_pydantic(kind: type, raw: object) -> object:
    return TypeAdapter(kind).validate_json(to_json(raw), strict=True)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(raw=VALUES)
def test_the_reader_agrees_with_strict_pydantic(kind: type, raw: object) -> None:
    try:
        expected = read_with_pydantic(kind, raw)
    except ValidationError:
        with pytest.raises(PlacedError):
            reader_of(kind)(raw)
        return
    found = reader_of(kind)(raw)
    assert found == expected
    assert repr(found) == repr(expected)


def test_an_error_names_its_place() -> None:
    with pytest.raises(PlacedError, match="must be a whole number without quotes, not 'x'") as refused:
        reader_of(Outer)({"a": 1, "c": [{"a": 2}, {"a": "x"}]})
    assert refused.value.place == ("c", 1, "a")


def test_an_error_of_the_class_itself_names_the_table() -> None:
    with pytest.raises(PlacedError, match="a must not be 1") as refused:
        reader_of(Outer)({"a": 1, "b": {"a": 1}})
    assert refused.value.place == ("b",)
