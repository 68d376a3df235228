"""The figures of README and of docs/evidence.md are the ones the package gives."""

from functools import cache
from pathlib import Path

import pytest

from penstock.catalog import load_measurements
from penstock.performance.shipped.shipped_runs import shipped_errors
from penstock.report.accuracy import SPLITS, Published

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
EVIDENCE = (REPOSITORY / "docs" / "evidence.md").read_text(encoding="utf-8").replace("\n  ", " ")
TABLE = ("setup", "month", "model", "accelerator")
MAX_LINES = 60


@cache
def published(name: str) -> Published:
    return Published.of(name, *shipped_errors(name))


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= MAX_LINES


@pytest.mark.parametrize("split", TABLE)
def test_the_table_of_readme_is_that_of_the_shipped_rows(split: str) -> None:
    found, winners = published(split).summary(), published(split).winners
    assert winners is not None
    name = SPLITS[split].removesuffix(", as applied")
    row = f"| {name} | {found.median:.1%} | {found.coverage:.0%} | {winners.named:.0%} ({winners.fixed_ranking:.0%}) |"
    assert row in README


@pytest.mark.parametrize(
    ("split", "words"),
    [
        ("month", "for the next month"),
        ("setup", "for a new setup"),
        ("model", "for a new model"),
        ("accelerator", "for a new accelerator"),
    ],
)
def test_median_errors_are_those_of_the_shipped_rows(split: str, words: str) -> None:
    assert f"{published(split).summary().median:.1%} {words}" in EVIDENCE


def test_the_rows_are_counted() -> None:
    assert f"[all {len(load_measurements()):,} rows]" in EVIDENCE
    assert f"{published('model').summary().rows:,} public serving measurements" in EVIDENCE


def test_the_share_of_right_winners_is_that_of_the_shipped_rows() -> None:
    found = {name: published(name).winners for name in ("setup", "model", "month")}
    ranked = []
    for name, words in (("setup", "a new setup"), ("model", "a new model"), ("month", "the next month")):
        winners = found[name]
        assert winners is not None
        assert f"{winners.named:.0%} for {words}" in EVIDENCE
        ranked.append(f"{100 * winners.fixed_ranking:.0f}")
    assert f"ranking of accelerators is right in {ranked[0]}, {ranked[1]} and {ranked[2]}%" in EVIDENCE
