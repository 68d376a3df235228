"""The figures of README and of docs/evidence.md are the ones the package gives."""

from functools import cache
from pathlib import Path

import pytest

from penstock.catalog import load_measurements
from penstock.performance.shipped.shipped_runs import shipped_errors
from penstock.report.accuracy import SPLITS, Published

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
EVIDENCE = (REPOSITORY / "docs" / "evidence.md").read_text(encoding="utf-8")
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
    shares = (winners.named, winners.fixed_ranking, winners.where_amd_won, winners.fixed_ranking_where_amd_won)
    named, ranked, amd_named, amd_ranked = (f"{share:.0%}" for share in shares if share is not None)
    row = f"| {named_split(split)} | {found.median:.1%} | {found.coverage:.0%} | {named} ({ranked}) |"
    assert f"{row} **{amd_named}** ({amd_ranked}) |" in README


@pytest.mark.parametrize("split", SPLITS)
def test_errors_of_evidence_are_those_of_the_shipped_rows(split: str) -> None:
    found = published(split).summary()
    errors = f"{found.median:.1%} | {found.p90:.1%} | {found.bias:+.1%} | {found.coverage:.0%}"
    assert f"| {named_split(split)} | {found.rows:,} | {errors} |" in EVIDENCE


@pytest.mark.parametrize("split", TABLE)
def test_winners_of_evidence_are_those_of_the_shipped_rows(split: str) -> None:
    found = published(split).winners
    assert found is not None
    assert found.where_amd_won is not None
    assert found.fixed_ranking_where_amd_won is not None
    cells = f"{found.comparisons:,} | {found.named:.0%} | {found.fixed_ranking:.0%} | **{found.where_amd_won:.0%}**"
    row = f"| {named_split(split)} | {cells} | {found.fixed_ranking_where_amd_won:.0%} | {found.where_nvidia_won:.0%} |"
    assert row in EVIDENCE


def test_the_rows_are_counted() -> None:
    assert f"{len(load_measurements()):,} of them as evidence" in EVIDENCE
    assert f"{published('model').summary().rows:,} public serving measurements" in EVIDENCE


def named_split(split: str) -> str:
    return SPLITS[split].removesuffix(", as applied")
