from math import exp, log, sqrt

import numpy as np
import pytest

from penstock.errors import UsageError
from penstock.workload import (
    Empirical,
    Fixed,
    LogNormal,
    Poisson,
    Records,
    Uniform,
    Workload,
    fit_empirical,
    fit_log_normal,
)
from penstock.workload.randomness import RandomStream, generator
from penstock.workload.summary import length_fit as fitting
from workloads import joined, recorded

RNG = (11, RandomStream.LENGTHS, 0)
DRAWS = 200_000


def test_fixed_lengths_are_fixed() -> None:
    inputs, outputs = Fixed(input_tokens=7, output_tokens=3).draw(generator(*RNG), 5)
    assert inputs.tolist() == [7] * 5
    assert outputs.tolist() == [3] * 5


def test_uniform_lengths_fill_their_range() -> None:
    lengths = Uniform(input_low_tokens=7, input_high_tokens=13, output_low_tokens=3, output_high_tokens=7)
    inputs, outputs = lengths.draw(generator(*RNG), DRAWS)
    assert set(inputs.tolist()) == set(range(7, 14))
    assert set(outputs.tolist()) == set(range(3, 8))
    # A uniform over 7 values has variance (49 - 1) / 12.
    assert inputs.mean() == pytest.approx(10, abs=4 * sqrt(48 / 12 / DRAWS))


def test_log_normal_lengths_have_their_median_spread_and_correlation() -> None:
    lengths = LogNormal(
        input_median_tokens=5000, input_sigma=0.7, output_median_tokens=3000, output_sigma=0.4, correlation=0.6
    )
    logs = np.log(np.stack(lengths.draw(generator(*RNG), DRAWS)))
    error = 4 / sqrt(DRAWS)
    assert logs.mean(axis=1) == pytest.approx([log(5000), log(3000)], abs=0.7 * error)
    assert logs.std(axis=1) == pytest.approx([0.7, 0.4], rel=error)
    assert np.corrcoef(logs)[0, 1] == pytest.approx(0.6, abs=error)


def test_log_normal_lengths_are_cut_not_wrapped() -> None:
    wild = LogNormal(
        input_median_tokens=100, input_sigma=500, output_median_tokens=0.01, output_sigma=0, max_input_tokens=4096
    )
    inputs, outputs = wild.draw(generator(*RNG), 1000)
    assert (inputs.min(), inputs.max()) == (1, 4096)
    assert set(outputs.tolist()) == {1}


def test_pairs_stay_pairs() -> None:
    seen = Empirical(input_tokens=np.array([1, 2, 3], np.int32), output_tokens=np.array([10, 20, 30], np.int32))
    inputs, outputs = seen.draw(generator(*RNG), 3000)
    assert (outputs == 10 * inputs).all()
    assert np.bincount(inputs)[1:] == pytest.approx(1000, abs=4 * sqrt(3000 * 2 / 9))


def test_a_fit_finds_what_the_trace_was_drawn_from_and_calls_it_close() -> None:
    drawn = LogNormal(
        input_median_tokens=900, input_sigma=0.8, output_median_tokens=200, output_sigma=0.5, correlation=0.3
    )
    workload = Workload(name="drawn", arrivals=Poisson(rate_per_s=1), lengths=drawn)
    recording = Records(name="drawn", source="", columns=joined(workload.blocks(seed=3, requests=50_000)))
    fit = fit_log_normal(recording)
    assert fit.lengths.input_median_tokens == pytest.approx(900, rel=4 * 0.8 / sqrt(50_000))
    assert fit.lengths.output_sigma == pytest.approx(0.5, rel=4 / sqrt(50_000))
    assert fit.lengths.correlation == pytest.approx(0.3, abs=0.02)
    assert fit.close
    assert "as close as chance allows" in str(fit)


def test_the_distance_is_kolmogorov_and_smirnovs() -> None:
    # Half the prompts have 1 token and half exp(4) = 55: mean log 2, sigma 2. The fitted curve has reached
    # Phi((ln 54.5 - 2) / 2) = 0.841 of the prompts just before 55, when only half of those seen are that short.
    fit = fit_log_normal(recorded([0, 1], [1, round(exp(4))], [8, 8]))
    assert fit.input_distance == pytest.approx(0.841 - 0.5, abs=2e-3)
    assert fit.output_distance == 0.0
    assert fit.lengths.correlation == 0.0


def test_a_shape_that_is_not_log_normal_is_said_to_be_another() -> None:
    two_kinds = recorded(list(range(1000)), [10] * 500 + [10_000] * 500, [5] * 1000)
    assert not fit_log_normal(two_kinds).close
    assert "another shape" in str(fit_log_normal(two_kinds))


def test_an_empirical_fit_keeps_every_pair() -> None:
    seen = fit_empirical(recorded([0, 1, 2], [5, 6, 7], [1, 2, 3]))
    assert seen.input_tokens.tolist() == [5, 6, 7]
    assert seen.output_tokens.tolist() == [1, 2, 3]


def test_long_traces_keep_a_sample_of_their_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "MAX_PAIRS", 500)
    long = recorded([float(at) for at in range(70_000)], list(range(1, 70_001)), list(range(2, 70_002)))
    pairs = fit_empirical(long)
    assert len(set(pairs.input_tokens.tolist())) == 500
    assert (pairs.output_tokens == pairs.input_tokens + 1).all()
    # 500 of 70,000 places at random: their mean is within four standard errors of the middle.
    assert pairs.input_tokens.mean() == pytest.approx(35_000, abs=4 * 70_000 / sqrt(12 * 500))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(input_tokens=0, output_tokens=1),
        lambda: Fixed(input_tokens=1, output_tokens=2**30),
        lambda: Uniform(input_low_tokens=2, input_high_tokens=1, output_low_tokens=1, output_high_tokens=1),
        lambda: LogNormal(input_median_tokens=0, input_sigma=1, output_median_tokens=1, output_sigma=1),
        lambda: LogNormal(input_median_tokens=1, input_sigma=-1, output_median_tokens=1, output_sigma=1),
        lambda: LogNormal(
            input_median_tokens=1, input_sigma=1, output_median_tokens=1, output_sigma=1, correlation=1.1
        ),
        lambda: Empirical(input_tokens=np.empty(0, np.int32), output_tokens=np.empty(0, np.int32)),
        lambda: Empirical(input_tokens=np.array([0], np.int32), output_tokens=np.array([1], np.int32)),
        lambda: fit_log_normal(recorded([], [], [])),
    ],
)
def test_lengths_that_cannot_be_meant_are_refused(make: object) -> None:
    with pytest.raises(UsageError):
        make()  # type: ignore[operator]
