"""Errors of a JSON document name the file, the key and the value."""

import pytest

from penstock.errors import UnreadableFile
from penstock.reading.json_tree import parse_json

TREE = parse_json('{"a": {"b": [1, "x", null, true, 1e999]}, "n": 2.5}', "file.json")


def test_values_are_found_by_their_keys() -> None:
    assert TREE.number("a", "b", 0) == 1
    assert TREE.text("a", "b", 1) == "x"
    assert TREE.find("a", "b", 2) is None
    assert TREE.find("a", "c", "d") is None
    assert "n" in TREE
    assert TREE.keys() == ["a", "n"]


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        (("a", "c"), "a.c is missing"),
        (("a", "b", 1), "a.b.1 must be a number, not 'x'"),
        (("a", "b", 3), "must be a number"),
        (("a", "b", 4), "must be at least 0"),
    ],
)
def test_an_error_names_the_key(place: tuple[str | int, ...], problem: str) -> None:
    with pytest.raises(UnreadableFile, match=r"^file\.json: ") as caught:
        TREE.number(*place)
    assert problem in str(caught.value)


def test_a_fraction_is_not_a_whole_number() -> None:
    with pytest.raises(UnreadableFile, match="must be a whole number"):
        TREE.whole("n")
