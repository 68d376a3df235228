from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penstock.errors import UsageError
from penstock.workload import Gamma, Records, Workload, describe, fit_empirical, sample
from penstock.workload import fit as fitting
from workloads import CHAT, joined, recorded

if TYPE_CHECKING:
    from numpy.typing import NDArray

WHOLE = Records(
    name="whole",
    source="a test",
    columns=joined(
        Workload(name="x", arrivals=Gamma(cv=2, rate_per_s=5), lengths=CHAT).blocks(seed=9, requests=70_000)
    ),
)


def truth(quantity: str, statistic: str) -> float:
    columns = WHOLE.columns
    quantities: dict[str, NDArray[Any]] = {
        "input_tokens": columns.input_tokens,
        "output_tokens": columns.output_tokens,
        "gap_s": np.diff(columns.arrival_s),
    }
    values = quantities[quantity]
    if statistic == "mean":
        return float(values.mean())
    return float(np.quantile(values, {"p50": 0.5, "p99": 0.99}[statistic], method="inverted_cdf"))


@pytest.mark.parametrize("stretches", [100, 4000])
def test_the_stated_range_holds_the_truth_as_often_as_it_says(stretches: int) -> None:
    runs, held, figures = 60, 0, 0
    for seed in range(runs):
        for error in sample(WHOLE, requests=4000, seed=seed, stretches=stretches).errors:
            figures += 1
            held += error.low <= truth(error.quantity, error.statistic) <= error.high
    # 540 correlated figures at 95%; a wrong formula (without clusters, or twice too narrow) falls below 85%.
    assert figures == 9 * runs
    assert 0.90 <= held / figures <= 0.99


def test_a_sample_has_the_rate_and_the_burstiness_of_the_whole() -> None:
    whole, part = describe(WHOLE.blocks()), describe(sample(WHOLE, requests=20_000, seed=1).recording.blocks())
    assert whole is not None
    assert part is not None
    assert part.requests == 20_000
    assert whole.rate_per_s is not None
    assert part.rate_per_s == pytest.approx(whole.rate_per_s, rel=0.1)
    assert part.gap_cv == pytest.approx(whole.gap_cv, rel=0.1)


def test_stretches_are_runs_of_the_recording_with_their_own_gaps() -> None:
    recording = recorded([float(at**2) for at in range(100)], list(range(1, 101)), [1] * 100)
    taken = sample(recording, requests=30, seed=4, stretches=3)
    rows = taken.recording.columns.input_tokens - 1
    runs = rows.reshape(3, 10)
    assert (np.diff(runs, axis=1) == 1).all()
    assert len(set(runs[:, 0].tolist())) == 3
    gaps = rows[1:] ** 2 - (rows[1:] - 1) ** 2
    assert np.diff(taken.recording.columns.arrival_s) == pytest.approx(gaps)
    assert (taken.of_requests, taken.stretches) == (100, 3)


def test_taking_everything_leaves_no_error() -> None:
    errors = sample(WHOLE, requests=70_000, seed=1, stretches=70_000).errors
    assert all(error.low == error.value == error.high for error in errors if error.statistic != "mean")
    assert all(error.relative == pytest.approx(0, abs=1e-12) for error in errors)
    means = {error.quantity: error.value for error in errors if error.statistic == "mean"}
    assert means["input_tokens"] == pytest.approx(truth("input_tokens", "mean"))


def test_more_requests_mean_a_smaller_error() -> None:
    small, large = (sample(WHOLE, requests=count, seed=2).errors[0].relative for count in (1000, 25_000))
    # Five times as small, if the truth were known; the spread of 100 stretches is known to 7%.
    assert small / large == pytest.approx(5 / (1 - 25_000 / 70_000) ** 0.5, rel=0.35)


def test_long_traces_are_fitted_to_a_sample_of_their_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "MAX_PAIRS", 500)
    pairs = fit_empirical(WHOLE)
    known = set(zip(WHOLE.columns.input_tokens.tolist(), WHOLE.columns.output_tokens.tolist(), strict=True))
    assert len(pairs.input_tokens) == 500
    assert set(zip(pairs.input_tokens.tolist(), pairs.output_tokens.tolist(), strict=True)) <= known


@pytest.mark.parametrize(
    ("requests", "stretches", "confidence"), [(1, 1, 0.95), (70_001, 10, 0.95), (10, 11, 0.95), (10, 5, 1.0)]
)
def test_a_sample_that_cannot_be_taken_is_refused(requests: int, stretches: int, confidence: float) -> None:
    with pytest.raises(UsageError):
        sample(WHOLE, requests=requests, seed=1, stretches=stretches, confidence_fraction=confidence)


def test_requests_of_one_moment_have_no_gaps() -> None:
    at_once = recorded([0.0] * 10, [3] * 10, [1] * 10)
    errors = sample(at_once, requests=4, seed=1, stretches=2).errors
    assert [error.value for error in errors if error.quantity == "gap_s"] == [0.0, 0.0, 0.0]
    assert all(error.relative == 0.0 for error in errors)
