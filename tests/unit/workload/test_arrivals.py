from itertools import islice
from math import sqrt

import numpy as np
import pytest

from penstock.errors import UsageError
from penstock.workload import ClosedLoop, Diurnal, Gamma, Poisson, day_curve
from penstock.workload.requests import Float64s
from penstock.workload.synthetic.arrivals import DAY_S, OpenLoop

BLOCKS = 4
DRAWN = BLOCKS * 65536


def arrivals(process: OpenLoop, rate_per_s: float, blocks: int = BLOCKS) -> Float64s:
    return np.concatenate(list(islice(process.times(7, rate_per_s), blocks)))


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.0, 4.0])
def test_gaps_have_the_mean_and_the_burstiness_asked_for(cv: float) -> None:
    gaps = np.diff(arrivals(Gamma(cv=cv), 5.0), prepend=0.0)
    assert gaps.min() >= 0
    # The mean of n gaps has a standard error of cv / sqrt(n); four of them are exceeded once in 16,000 runs.
    assert gaps.mean() == pytest.approx(1 / 5, rel=4 * cv / sqrt(DRAWN))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_a_cv_of_one_is_poisson_and_of_zero_a_metronome() -> None:
    assert arrivals(Gamma(cv=1.0), 3.0, 1).tobytes() == arrivals(Poisson(), 3.0, 1).tobytes()
    assert np.diff(arrivals(Gamma(cv=0.0), 4.0, 1)) == pytest.approx(0.25)


def test_counts_of_poisson_arrivals_vary_as_much_as_their_mean() -> None:
    times = arrivals(Poisson(), 10.0)
    counts = np.bincount(times.astype(np.int64))[:-1]
    # Variance over mean of n Poisson counts is 1 with standard error sqrt(2 / n).
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=4 * sqrt(2 / len(counts)))


def test_a_day_has_its_mean_rate_and_its_peak() -> None:
    rate = DRAWN / (3 * DAY_S)  # Three whole days.
    times = arrivals(Diurnal(weights=day_curve(4.0, peak_hour=15.0), start_hour=0.0), rate)
    by_hour = np.bincount((times[times < 3 * DAY_S] % DAY_S // 3600).astype(int), minlength=24)
    assert len(times) / times[-1] == pytest.approx(rate, rel=0.01)
    assert by_hour.argmax() in {14, 15}
    assert by_hour.argmin() in {2, 3}
    # Twelve hours apart lie the moments whose ratio was asked for; an hour's mean is a little less extreme.
    assert by_hour.max() / by_hour.min() == pytest.approx(4.0, rel=0.08)


def test_a_day_begins_at_its_peak_unless_told_otherwise() -> None:
    day = Diurnal(weights=day_curve(4.0))
    # A sine between 1 and 4 has the mean 2.5.
    assert day.peak_over_mean == pytest.approx(4.0 / 2.5, rel=1e-3)
    assert 13.5 <= day.first_hour <= 14.0
    times = arrivals(day, 10.0)
    first_hour = times[times < 3600]
    assert len(first_hour) / 3600 == pytest.approx(10.0 * day.peak_over_mean, rel=0.02)


def test_hourly_weights_are_met_and_the_start_moves_them() -> None:
    weights = tuple(float(hour + 1) for hour in range(24))
    at_midnight = arrivals(Diurnal(weights=weights, start_hour=0.0), 1.0)
    at_noon = arrivals(Diurnal(weights=weights, start_hour=12.0), 1.0)
    first_hour = 3600 * np.array([weights[0], weights[12]]) / (sum(weights) / 24)
    counted = np.array([(at_midnight < 3600).sum(), (at_noon < 3600).sum()])
    assert counted == pytest.approx(first_hour, rel=0.15)
    assert at_noon[0] >= 0


def test_a_flat_day_is_poisson() -> None:
    assert arrivals(Diurnal(weights=(2.0, 2.0)), 3.0, 1) == pytest.approx(arrivals(Poisson(), 3.0, 1))


def test_a_day_can_be_bursty() -> None:
    gaps = np.diff(arrivals(Diurnal(weights=(1.0,), cv=3.0), 2.0))
    assert gaps.std() / gaps.mean() == pytest.approx(3.0, rel=0.05)


def test_in_a_closed_loop_answers_decide() -> None:
    assert not next(ClosedLoop(users=3).times(1, 0.0)).any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Poisson(rate_per_s=0.0),
        lambda: Poisson(rate_per_s=float("nan")),
        lambda: Gamma(cv=-1.0),
        lambda: Gamma(cv=float("inf")),
        lambda: Diurnal(weights=()),
        lambda: Diurnal(weights=(1.0, 0.0)),
        lambda: Diurnal(weights=(1.0,), start_hour=24.0),
        lambda: day_curve(0.5),
        lambda: ClosedLoop(users=0),
        lambda: ClosedLoop(users=1, think_s=-1.0),
    ],
)
def test_arrivals_that_cannot_be_meant_are_refused(make: object) -> None:
    with pytest.raises(UsageError):
        make()  # type: ignore[operator]
