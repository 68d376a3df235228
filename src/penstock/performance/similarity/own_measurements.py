"""Makes the predicted times of a deployment pass through the measurements of exactly this setup.

The covariance of all rows predicts a time for every load, but it smooths: it also weighs other setups, older software
and noise. At a load that was measured, the measurement is the better answer. So the difference between the measured and
the predicted log time is interpolated over users and token lengths, and added to the predictions of this setup. The
interpolated difference falls to zero away from the measured loads.
"""

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.performance.similarity.cases import Cases, LogLoad
from penstock.performance.step.step_work import Array

_WIDE_DOUBLINGS, _NARROW_DOUBLINGS = 2.0, 0.25
"""Distances, in doublings of users or of a token length, over which loads share a difference. A setup that is slower
than predicted at 64 users is probably slower at 128 users (wide). The rest belongs to one load (narrow)."""
_REPEAT_SPREAD: Final = 0.004
"""Standard deviation of repetitions of one measurement on one day, as a logarithm."""
_SAME_DAYS: Final = 10
"""Measurements of one load within this many days count as repetitions. Their median is used."""
_MAX_DRIFT: Final = 0.25
"""Maximum change of a log time by newer software. A measurement that newer software changes by more is outdated: it is
not the answer for its load."""

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceSpread:
    """Standard deviations of the difference between measured and predicted log times."""

    wide: float
    """Standard deviation of the difference that neighbouring loads share."""
    narrow: float
    """Standard deviation of the difference that belongs to one load."""


TIME_PER_TOKEN: Final = DifferenceSpread(wide=0.1, narrow=0.03)
FIRST_TOKEN: Final = DifferenceSpread(wide=0.6, narrow=0.1)


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnMeasurements:
    """Measurements of one setup, one per load."""

    loads: LogLoad
    log_seconds: Array
    drift: Array
    """Predicted change of each log time between the software of the measurement and the software of the prediction."""
    spread: DifferenceSpread = TIME_PER_TOKEN

    def __len__(self) -> int:
        return len(self.drift)

    def take(self, kept: npt.NDArray[np.bool_]) -> "OwnMeasurements":
        """Return the selected measurements."""
        users, inputs, outputs = (each[kept] for each in self.loads)
        return replace(self, loads=(users, inputs, outputs), log_seconds=self.log_seconds[kept], drift=self.drift[kept])

    def interpolate(self, at: LogLoad, differences: Array) -> Array:
        """Return the difference at each load in `at`, given the difference at each measured load."""
        if not len(self):
            return np.zeros(len(at[0]))
        own = np.sqrt(self.own_variance)
        nearest = own[np.argmax(self._wide(at), axis=1)]
        across = self._wide(at) + _near(at, self.loads, _NARROW_DOUBLINGS) * np.outer(nearest, own)
        return np.asarray(across @ (self._inverse @ differences))

    def unexplained_share(self, at: LogLoad) -> Array:
        """Return the share of the variance that is left at each load in `at`: 0 near measurements, 1 far from them."""
        if not len(self):
            return np.ones(len(at[0]))
        wide = self._wide(at)
        explained = np.einsum("ij,ij->i", wide @ self._inverse, wide) / self.spread.wide**2
        return np.asarray(np.clip(1 - explained, 0.0, 1.0))

    @cached_property
    def own_variance(self) -> Array:
        """Return the variance of the difference that belongs to each measured load alone.

        A measurement with older software says more about its own load than about other loads.
        """
        return np.asarray(self.spread.narrow**2 + self.drift**2)

    @cached_property
    def _inverse(self) -> Array:
        own = np.sqrt(self.own_variance)
        whole = self._wide(self.loads) + _near(self.loads, self.loads, _NARROW_DOUBLINGS) * np.outer(own, own)
        whole[np.diag_indices(len(self))] += _REPEAT_SPREAD**2
        return np.asarray(np.linalg.inv(whole))

    def _wide(self, at: LogLoad) -> Array:
        return self.spread.wide**2 * _near(at, self.loads, _WIDE_DOUBLINGS)


def _near(one: LogLoad, other: LogLoad, doublings: float) -> Array:
    distances = [np.subtract.outer(*pair) / doublings for pair in zip(one, other, strict=True)]
    return np.asarray(np.exp(-0.5 * np.sum(np.square(distances), axis=0)))


def newest_of_each_load(cases: Cases, seconds: Array, rows: Rows, day: float, same_days: float = _SAME_DAYS) -> Rows:
    """Return one of `rows` per load: the median of the measurements closest to a day.

    Measurements within `same_days` of the closest count as repetitions. A median over months is used only for loads
    without a dated measurement.
    """
    loads: dict[tuple[float, ...], list[int]] = defaultdict(list)
    for row in rows.tolist():
        loads[cases.users[row], round(cases.input_tokens[row]), round(cases.output_tokens[row])].append(row)
    return np.array([_median_row(cases, seconds, found, day, same_days) for found in loads.values()], np.intp)


def _median_row(cases: Cases, seconds: Array, rows: list[int], day: float, same_days: float) -> int:
    dated = [row for row in rows if not cases.undated[row]] or rows
    distance = {row: abs(float(cases.day[row]) - day) for row in dated}
    latest = min(distance.values()) + same_days
    repeated = sorted((row for row in dated if distance[row] <= latest), key=lambda row: float(seconds[row]))
    return repeated[(len(repeated) - 1) // 2]


def is_current(drift: Array, undated: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which measurements of one setup are answers for their loads: those that newer software has not outdated.

    If a setup has only medians over months, nothing newer is known, and all of them are current.
    """
    return np.asarray((np.abs(drift) <= _MAX_DRIFT) | undated.all())
