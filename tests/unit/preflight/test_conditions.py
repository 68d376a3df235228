"""Conditions: Kleene's three-valued logic, and what the language refuses."""

from itertools import product

import pytest

from penstock.errors import CatalogError, DeploymentError
from penstock.fleet.release import Release, ReleaseRange
from penstock.preflight.rules.condition import Condition, Facts, Kind, Unknown

KINDS = {
    "a": Kind.FLAG,
    "b": Kind.FLAG,
    "chip": Kind.TEXT,
    "heads": Kind.NUMBER,
    "kinds": Kind.TEXTS,
    "rocm": Kind.RELEASE,
    "host.rocm": Kind.RELEASE,
}
TRUTHS = {"true": True, "false": False, "unknown": None}


def holds(text: str, **facts: object) -> bool | None:
    known: Facts = {name.replace("__", "."): value for name, value in facts.items()}  # type: ignore[misc]
    return Condition.parse(text, KINDS, "test").holds(known)


def fact(truth: bool | None) -> bool | Unknown:  # noqa: FBT001 - a truth value
    return Unknown("asked") if truth is None else truth


@pytest.mark.parametrize(("left", "right"), list(product(TRUTHS.values(), repeat=2)))
def test_and_or_not_follow_kleene(left: bool | None, right: bool | None) -> None:  # noqa: FBT001
    """A known side that settles it settles it; otherwise one unknown side leaves the whole unknown."""
    facts = {"a": fact(left), "b": fact(right)}
    both = False if False in {left, right} else None if None in {left, right} else True
    either = True if True in {left, right} else None if None in {left, right} else False
    assert holds("a and b", **facts) is both
    assert holds("a or b", **facts) is either
    assert holds("not a", **facts) is (None if left is None else not left)


@pytest.mark.parametrize(
    ("text", "facts", "expected"),
    [
        ("chip == 'gfx942'", {"chip": "gfx942"}, True),
        ("chip != 'gfx942'", {"chip": "gfx942"}, False),
        ("chip in ('gfx942', 'gfx950')", {"chip": "gfx950"}, True),
        ("chip not in ('gfx942', 'gfx950')", {"chip": "sm_90"}, True),
        ("'mla' in kinds", {"kinds": frozenset({"mla", "sparse"})}, True),
        ("'mla' not in kinds", {"kinds": frozenset({"gqa"})}, True),
        ("heads % 16 != 0", {"heads": 24}, True),
        ("16 % heads != 0", {"heads": 12}, True),
        ("16 % heads != 0", {"heads": 8}, False),
        ("heads > 128 and heads % 16 != 0", {"heads": 136}, True),
        ("rocm <= '7.2.0'", {"rocm": Release("7.2")}, True),
        ("rocm < '7.2.1'", {"rocm": Release("7.10")}, False),
        ("host.rocm < '7.0'", {"host__rocm": Release("6.4")}, True),
        ("env.NAME == '1'", {"env__NAME": "1"}, True),
        ("chip == 'gfx942'", {}, None),
        ("heads % 16 != 0", {"heads": Unknown("asked")}, None),
        ("16 % heads == 0", {"heads": 0}, None),
        ("chip == 'gfx942' and heads > 3", {"heads": 1}, False),
    ],
)
def test_comparisons(text: str, facts: dict[str, object], expected: bool | None) -> None:  # noqa: FBT001
    assert holds(text, **facts) is expected


@pytest.mark.parametrize(
    "text",
    [
        "unknown_name == 'x'",
        "chip",
        "chip == 3",
        "chip < 'x'",
        "heads == 'x'",
        "heads in 3",
        "chip in (a, 'x')",
        "a + b",
        "__import__('os')",
        "heads < 3 < 4",
        "lambda: a",
        "chip[0] == 'g'",
        "a and",
        "rocm % 2 == 0",
    ],
)
def test_what_cannot_be_answered_is_refused_when_it_is_read(text: str) -> None:
    with pytest.raises(CatalogError):
        Condition.parse(text, KINDS, "test")


def test_missing_facts_are_named() -> None:
    condition = Condition.parse("a and chip == 'x' and heads > 1", KINDS, "test")
    assert condition.missing({"a": True, "heads": Unknown("count them")}) == ("chip", "heads")


def test_candidates_come_before_their_release_and_posts_after() -> None:
    order = ["0.27.1", "0.28.0.dev3", "0.28.0rc1", "0.28.0rc2", "0.28.0", "0.28.0.post1", "0.28.1", "0.100"]
    assert sorted(order, key=Release) == order
    assert Release("v0.28") == Release("0.28.0")
    assert Release("0.32.0+cpu") == Release("0.32.0")


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">=0.21,<0.24", ["0.21.0", "0.23.9"], ["0.20.2", "0.24.0"]),
        ("==0.14.0", ["0.14"], ["0.14.1"]),
        (">=0.28.0rc1", ["0.28.0rc1", "0.28.0"], ["0.27.1"]),
    ],
)
def test_ranges(text: str, inside: list[str], outside: list[str]) -> None:
    asked = ReleaseRange.parse(text)
    assert all(asked.holds(Release(version)) for version in inside)
    assert not any(asked.holds(Release(version)) for version in outside)


@pytest.mark.parametrize("text", ["", "latest", "0.x", "1.2.3.4.5", ">=", "0.24 or so", "9" * 99])
def test_a_version_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(DeploymentError):
        Release(text)
    with pytest.raises(DeploymentError):
        ReleaseRange.parse(text)
