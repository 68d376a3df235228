"""Claims with known answers: no true one is damned, and what is false by half again is caught."""

import csv
from collections import Counter
from itertools import pairwise

import pytest
from result_tables import RESULTS

from penstock.audit.judgement import Verdict
from planted import FACTORS, false_outcomes, missed, true_outcomes

pytestmark = pytest.mark.refit("tools/results/audit-planted.csv")
KINDS = {"spec", "ratio", "limit", "fits", "size", "requests", "speed", "faster", "price", "cost", "saving", "fact"}


def test_no_true_claim_is_called_impossible_or_contradicted() -> None:
    outcomes = true_outcomes()
    assert len(outcomes) >= 100
    assert {outcome.kind for outcome in outcomes} >= KINDS | {"date", "mention", "change", "follows"}
    assert not [outcome for outcome in outcomes if outcome.verdict.damning]
    confirmed = Counter(outcome.verdict for outcome in outcomes)[Verdict.CONFIRMED]
    assert confirmed / len(outcomes) > 0.85


def test_what_is_false_by_half_again_or_more_is_caught() -> None:
    counts = missed(false_outcomes())
    lost, total = (sum(counts[factor][side] for factor in FACTORS if factor >= 1.5) for side in (0, 1))
    assert total >= 100
    assert lost / total <= 0.05


def test_the_larger_the_lie_the_fewer_are_missed() -> None:
    rates = [lost / total for lost, total in missed(false_outcomes()).values()]
    assert all(later <= earlier + 0.02 for earlier, later in pairwise(rates))
    assert rates[0] > 0.5
    assert rates[-1] < 0.01


def test_sums_are_caught_from_a_tenth_on_and_sizes_beyond_what_gib_explain() -> None:
    assert 1.1 > 2**30 / 1e9 > 1.05
    for kind, least in (("follows", 1.1), ("cost", 1.1), ("ratio", 1.2), ("size", 1.2)):
        counts = missed(false_outcomes(), kind)
        assert all(counts[factor][0] == 0 for factor in FACTORS if factor >= least), kind


def test_the_table_of_results_is_what_comes_out() -> None:
    false = false_outcomes()
    counts = {
        "missed, all": missed(false),
        **{kind: missed(false, kind) for kind in sorted({one.kind for one in false})},
    }
    rows = [["false by", *(f"{factor:g}x" for factor in FACTORS)]]
    rows += [[name, *(_share(*found[factor]) for factor in FACTORS)] for name, found in counts.items()]
    with RESULTS.joinpath("audit-planted.csv").open(encoding="utf-8") as table:
        assert list(csv.reader(table)) == rows


def _share(lost: int, total: int) -> str:
    return f"{lost / total:.0%} of {total}" if total else ""
