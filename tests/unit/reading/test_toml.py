"""Shipped data is read strictly, and what is wrong with it names its place."""

from dataclasses import dataclass

import pytest

from penstock.errors import CatalogError
from penstock.reading.toml import parse_toml, strictly


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    id: str
    watts: float


def test_a_table_becomes_the_dataclass_it_describes() -> None:
    raw = parse_toml("[[part]]\nid = 'a'\nwatts = 700\n[[part]]\nid = 'b'\nwatts = 1e3\n", "parts.toml")
    assert strictly(tuple[Part, ...], raw["part"], "parts.toml") == (Part(id="a", watts=700), Part(id="b", watts=1000))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("id = 'a'", "part.toml: watts: is missing"),
        ("id = 'a'\nwatts = '700'", "part.toml: watts: must be a number without quotes, not '700'"),
        ("id = 'a'\nwatts = 700\ncolour = 'red'", "part.toml: colour: unexpected key; known keys: id, watts"),
        ("id = ", "part.toml: Invalid value (at end of document)"),
    ],
)
def test_a_mistake_names_the_file_and_the_place(text: str, complaint: str) -> None:
    with pytest.raises(CatalogError) as refused:
        strictly(Part, parse_toml(text, "part.toml"), "part.toml")
    assert str(refused.value) == complaint
