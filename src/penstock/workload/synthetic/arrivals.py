"""Generates arrival times: random with a given mean rate, as in a recorded trace, or from a closed loop of users."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from math import cos, pi

import numpy as np

from penstock.errors import UsageError
from penstock.workload.randomness import NATIVE_BLOCK, RandomStream, generator
from penstock.workload.requests import Float64s

DAY_S = 86400.0
_HOUR_S = 3600.0
_QUARTERS = 96  # A quarter of an hour is finer than the accuracy of a daily curve.


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Poisson arrivals of independent users, with exponential gaps and the same rate all day."""

    rate_per_s: float | None = None
    """Default mean rate in requests per second."""

    def __post_init__(self) -> None:
        _require_rate(self.rate_per_s)

    def times(self, seed: int, rate_per_s: float) -> Iterator[Float64s]:
        """Yield arrival times in seconds without end, one native block at a time."""
        return (mean_gaps / rate_per_s for mean_gaps in _renewals(seed, cv=1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gamma:
    """Bursty arrivals with gamma-distributed gaps.

    `cv` is the standard deviation of the gaps divided by their mean: 1 for Poisson, 0 for constant gaps.
    """

    cv: float
    rate_per_s: float | None = None

    def __post_init__(self) -> None:
        _require_rate(self.rate_per_s)
        _require_cv(self.cv)

    def times(self, seed: int, rate_per_s: float) -> Iterator[Float64s]:
        """Yield arrival times in seconds without end, one native block at a time."""
        return (mean_gaps / rate_per_s for mean_gaps in _renewals(seed, self.cv))


@dataclass(frozen=True, slots=True, kw_only=True)
class Diurnal:
    """Arrivals with a daily curve.

    `weights` gives the relative rate in equal slices of 24 hours; the mean rate over a day is the given rate. Arrivals
    are drawn at a constant rate, and then time is stretched by the inverse of the curve's integral. The expected rate
    therefore equals the curve exactly, and `cv` adds bursts.
    """

    weights: tuple[float, ...]
    cv: float = 1.0
    start_hour: float | None = None
    """Hour of day at which the workload starts. None means the busiest hour, so that a short simulation covers the
    peak."""
    rate_per_s: float | None = None

    def __post_init__(self) -> None:
        _require_rate(self.rate_per_s)
        _require_cv(self.cv)
        if not self.weights or not all(0 < weight < np.inf for weight in self.weights):
            raise UsageError("a daily curve needs at least one weight, and every weight must be above 0")
        if not 0 <= self.first_hour < 24:
            raise UsageError(f"the hour of day must be from 0 to 23.99, not {self.first_hour:g}")

    @property
    def first_hour(self) -> float:
        """Hour of day at which the workload starts."""
        if self.start_hour is not None:
            return self.start_hour
        return 24 * self.weights.index(max(self.weights)) / len(self.weights)

    @property
    def peak_over_mean(self) -> float:
        """Ratio of the rate in the busiest slice to the daily mean."""
        return max(self.weights) * len(self.weights) / sum(self.weights)

    def times(self, seed: int, rate_per_s: float) -> Iterator[Float64s]:
        """Yield arrival times in seconds without end, one native block at a time."""
        edges_s = np.linspace(0.0, DAY_S, len(self.weights) + 1)
        # Seconds that the mean rate would need for the arrivals up to each edge: again 0 to a day.
        mean_s = np.concatenate([[0.0], np.cumsum(self.weights)]) * (DAY_S / sum(self.weights))
        start_s = self.first_hour * _HOUR_S
        start_mean_s = float(np.interp(start_s, edges_s, mean_s))
        for mean_gaps in _renewals(seed, self.cv):
            day, within_s = np.divmod(mean_gaps / rate_per_s + start_mean_s, DAY_S)
            # At the very start the two interpolations may differ in the last bit.
            yield np.maximum(day * DAY_S + np.interp(within_s, mean_s, edges_s) - start_s, 0.0)


def day_curve(peak_to_trough: float, *, peak_hour: float = 14.0) -> tuple[float, ...]:
    """Return the weights of a sinusoidal daily curve with the given ratio of peak rate to lowest rate."""
    if not 1 <= peak_to_trough < np.inf:
        raise UsageError(f"the ratio of the peak rate to the lowest rate must be 1 or more, not {peak_to_trough:g}")
    swing = (peak_to_trough - 1) / (peak_to_trough + 1)
    hours = ((quarter + 0.5) * 24 / _QUARTERS for quarter in range(_QUARTERS))
    return tuple(1 + swing * cos(2 * pi * (hour - peak_hour) / 24) for hour in hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsRecorded:
    """Arrivals at the times of a recording.

    A rate other than the recorded rate compresses or stretches all gaps. Bursts keep their shape relative to the mean
    gap (same cv). Patterns tied to a clock, such as a daily curve or think time, are compressed or stretched too. After
    its last request, the recording starts again one mean gap later.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """A fixed number of users. After an answer, a user pauses for `think_s` on average and sends the next request.

    Pauses are random, because users who start together and pause equally long would stay synchronised and send requests
    in waves that no real service sees. Pauses are exponential, because usually only the mean pause is known. If users
    pause independently, the number of users who pause at the same time depends on little other than the mean pause.
    """

    users: int
    think_s: float = 0.0

    def __post_init__(self) -> None:
        if self.users < 1:
            raise UsageError(f"a closed loop needs at least one user, not {self.users}")
        if not 0 <= self.think_s < np.inf:
            raise UsageError(f"a think time of {self.think_s:g} s is not possible; write 0 or more")

    def times(self, _seed: int, _rate_per_s: float) -> Iterator[Float64s]:
        """Yield zeros, because in a closed loop the answers determine the arrival times."""
        while True:
            yield np.zeros(NATIVE_BLOCK)

    def starts_s(self, seed: int, spread_s: float) -> Float64s:
        """Return the sorted times of the users' first requests in seconds, drawn uniformly from 0 to `spread_s`."""
        starts: Float64s = np.sort(generator(seed, RandomStream.STARTS, 0).random(self.users)) * spread_s
        return starts

    def pauses(self, seed: int) -> Iterator[Float64s]:
        """Yield think times in seconds, one before each request."""
        for block in count():
            yield generator(seed, RandomStream.PAUSES, block).standard_exponential(NATIVE_BLOCK) * self.think_s


OpenLoop = Poisson | Gamma | Diurnal
Arrivals = OpenLoop | AsRecorded | ClosedLoop


def _renewals(seed: int, cv: float) -> Iterator[Float64s]:
    """Yield arrival times whose gaps are independent with mean 1."""
    elapsed = 0.0
    for block in count():
        rng = generator(seed, RandomStream.ARRIVALS, block)
        if cv == 1:
            gaps = rng.standard_exponential(NATIVE_BLOCK)
        elif cv == 0:
            gaps = np.ones(NATIVE_BLOCK)
        else:
            gaps = rng.standard_gamma(cv**-2, NATIVE_BLOCK) * cv**2
        times = elapsed + np.cumsum(gaps)
        yield times
        elapsed = float(times[-1])


def _require_rate(rate_per_s: float | None) -> None:
    if rate_per_s is not None and not 0 < rate_per_s < np.inf:
        raise UsageError(f"a rate of {rate_per_s:g} requests/s is not possible; write a rate above 0")


def _require_cv(cv: float) -> None:
    if not 0 <= cv <= 100:  # beyond it nearly all gaps are zero
        raise UsageError(
            f"cv must be from 0 to 100, not {cv:g}; 1 is Poisson, and production traffic is seldom above 10"
        )
