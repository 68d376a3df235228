"""Generates arrival times: processes with a given mean rate, the times of a trace, or a closed loop of users."""

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
    """Poisson arrivals of independent users: exponential gaps, the same rate all day."""

    rate_per_s: float | None = None
    """Default mean rate in requests per second."""

    def __post_init__(self) -> None:
        _require_rate(self.rate_per_s)

    def times(self, seed: int, rate_per_s: float) -> Iterator[Float64s]:
        """Yield arrival times in seconds, a native block at a time, without end."""
        return (mean_gaps / rate_per_s for mean_gaps in _renewals(seed, cv=1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gamma:
    """Bursty arrivals: gamma gaps with standard deviation `cv` times their mean; 1 is Poisson, 0 is constant gaps."""

    cv: float
    rate_per_s: float | None = None

    def __post_init__(self) -> None:
        _require_rate(self.rate_per_s)
        _require_cv(self.cv)

    def times(self, seed: int, rate_per_s: float) -> Iterator[Float64s]:
        """Yield arrival times in seconds, a native block at a time, without end."""
        return (mean_gaps / rate_per_s for mean_gaps in _renewals(seed, self.cv))


@dataclass(frozen=True, slots=True, kw_only=True)
class Diurnal:
    """Arrivals with a daily curve.

    The rate follows `weights`, equal slices of 24 hours, and its mean over a day is the given rate. Gaps are drawn at a
    constant rate, and time is then stretched by the inverse of the curve's integral, so the curve is met exactly and
    bursts (`cv`) are added to it.
    """

    weights: tuple[float, ...]
    cv: float = 1.0
    start_hour: float | None = None
    """Hour of day at which the workload starts. None means the busiest hour, so that short runs test the peak."""
    rate_per_s: float | None = None

    def __post_init__(self) -> None:
        _require_rate(self.rate_per_s)
        _require_cv(self.cv)
        if not self.weights or not all(0 < weight < np.inf for weight in self.weights):
            raise UsageError("a day's curve needs at least one slice, and every weight must be above 0")
        if not 0 <= self.first_hour < 24:
            raise UsageError(f"hour {self.first_hour:g} is not in a day; write 0 to 23.99")

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
        """Yield arrival times in seconds, a native block at a time, without end."""
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
    """Return the weights of a sinusoidal day with the given ratio of peak to trough rate."""
    if not 1 <= peak_to_trough < np.inf:
        raise UsageError(f"a peak of {peak_to_trough:g} times the trough is out of range; write 1 or more")
    swing = (peak_to_trough - 1) / (peak_to_trough + 1)
    hours = ((quarter + 0.5) * 24 / _QUARTERS for quarter in range(_QUARTERS))
    return tuple(1 + swing * cos(2 * pi * (hour - peak_hour) / 24) for hour in hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsRecorded:
    """Arrivals at the times of a recording.

    A rate other than the recorded one compresses or stretches time: bursts keep their shape relative to the mean gap
    (same cv), while patterns tied to a clock, such as a daily curve or think time, are compressed or stretched too. At
    its end the recording starts again one mean gap later.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """A fixed number of users. Each sends its next request after a pause of `think_s` on average.

    Users who start together and always pause equally long stay synchronised, and wait for each other in waves that no
    real service has. Usually only the mean of the pause is known, and an exponential distribution assumes nothing more.
    If users think independently, the number of users who think at one time depends on little other than that mean.
    """

    users: int
    think_s: float = 0.0

    def __post_init__(self) -> None:
        if self.users < 1:
            raise UsageError(f"a closed loop needs at least one user, not {self.users}")
        if not 0 <= self.think_s < np.inf:
            raise UsageError(f"a think time of {self.think_s:g} s is not possible; write 0 or more")

    def times(self, _seed: int, _rate_per_s: float) -> Iterator[Float64s]:
        """Yield zeros: in a closed loop the answers decide the times."""
        while True:
            yield np.zeros(NATIVE_BLOCK)

    def starts_s(self, seed: int, spread_s: float) -> Float64s:
        """Return the sorted times in seconds of the users' first requests, uniform within `spread_s`."""
        starts: Float64s = np.sort(generator(seed, RandomStream.STARTS, 0).random(self.users)) * spread_s
        return starts

    def pauses(self, seed: int) -> Iterator[Float64s]:
        """Yield think times in seconds, one before each request."""
        for block in count():
            yield generator(seed, RandomStream.PAUSES, block).standard_exponential(NATIVE_BLOCK) * self.think_s


OpenLoop = Poisson | Gamma | Diurnal
Arrivals = OpenLoop | AsRecorded | ClosedLoop


def _renewals(seed: int, cv: float) -> Iterator[Float64s]:
    """Yield the end times of independent gaps of mean 1."""
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
            f"a cv of {cv:g} is out of range; write 0 to 100: 1 is Poisson, production traffic is seldom above 10"
        )
