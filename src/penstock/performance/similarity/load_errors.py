"""Models how the error of a setup's predicted times varies with load, so that runs at some loads correct other loads.

The log error at a load is a factor that all loads share, and a deviation that near loads share. Its prior variance is
that of the uncorrected prediction. A run tells most about its own load; far from all runs the correction shrinks
towards the shared factor, and the interval grows towards that of the uncorrected prediction.

Share and distances were fitted to the errors of 7,395 shipped measurements, each predicted without its setup, as
differences between two loads that one setup was measured at on one day. `tools/check_next_run.py` prints how often a
measured load lies within the interval that other loads of its setup give.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from penstock.performance.similarity.cases import LogLoad
from penstock.performance.step.step_work import Array

_DEVIATION_SHARE: Final = 0.85
"""Standard deviation of the deviation, relative to that of the whole error."""
_DOUBLINGS: Final = (3.0, 5.0, 9.0)
"""Doublings of users, of input tokens and of output tokens over which loads share a deviation (length scales)."""
RUN_NOISE: Final = 0.03
"""Standard deviation of the log time per token of a run around its repetitions. Counts as one repetition."""
_SAME_LOAD: Final = 0.3
"""Doublings of users and lengths below which two runs have the same load. Random arrivals change the requests in flight
of an open loop by as much, and the deviation that loads share by less than a third of the noise."""
_P90_SIGMAS: Final = 1.2816
PRIOR_RUNS: Final = 4.0
"""Number of runs that the stated prior variance counts as when runs show a larger variance."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadErrors:
    """Log errors of predicted step times that were measured at some loads of one setup."""

    prior_sigma: float
    """Standard deviation of the log error of the uncorrected prediction."""
    loads: LogLoad
    """Base-2 logarithms of users, input tokens and output tokens of each run."""
    errors: Array
    """Logarithm of measured over predicted time of each run."""

    def mean(self, at: LogLoad) -> Array:
        """Return the expected log error at each load."""
        return np.asarray(self._covariance(at, self.loads) @ (self._inverse @ self.errors))

    def sigma(self, at: LogLoad) -> Array:
        """Return the standard deviation of a further run at each load around its corrected prediction."""
        return np.asarray(self._widening * np.sqrt(self._variance(at) + self.noise**2))

    def sigma_after(self, at: LogLoad, run: LogLoad) -> Array:
        """Return `sigma` at each load after one further run at the load `run`."""
        known = self._covariance(at, self.loads) @ self._inverse
        shared = self._covariance(at, run) - known @ self._covariance(self.loads, run)
        told = shared[:, 0] ** 2 / (self._variance(run)[0] + self.noise**2)
        return np.asarray(self._widening * np.sqrt(np.maximum(self._variance(at) - told, 0.0) + self.noise**2))

    def spread(self, at: LogLoad) -> tuple[float, float]:
        """Return P10 and P90 of a further run over its corrected prediction, as logarithms, over the given loads."""
        return spread_of(self.sigma(at))

    @cached_property
    def noise(self) -> float:
        """Return the standard deviation of the log time of a run around its repetitions.

        Repeated runs may differ more than usual, because other work, heat or clocks change the speed of a server. The
        differences of equal loads then raise it, and with it every interval.
        """
        gaps = [np.abs(np.subtract.outer(logs, logs)) for logs in self.loads]
        same = np.max(gaps, axis=0) < _SAME_LOAD
        sizes = same.sum(axis=1)
        deviations = self.errors - same @ self.errors / sizes
        repeated = len(self.errors) - float(np.sum(1 / sizes))
        variance = (RUN_NOISE**2 + float(deviations @ deviations)) / (1 + repeated)
        return max(RUN_NOISE, float(np.sqrt(variance)))

    @cached_property
    def level(self) -> float:
        """Return the mean of the expected log errors over the measured loads."""
        return float(self.mean(self.loads).mean())

    @cached_property
    def _widening(self) -> float:
        """Return the factor on all standard deviations if the runs differ from the prediction more than it states."""
        surprise = float(self.errors @ self._inverse @ self.errors)
        return max(1.0, float(np.sqrt((PRIOR_RUNS + surprise) / (PRIOR_RUNS + len(self.errors)))))

    @cached_property
    def _inverse(self) -> Array:
        whole = self._covariance(self.loads, self.loads)
        whole[np.diag_indices(len(self.errors))] += self.noise**2
        return np.asarray(np.linalg.inv(whole))

    def _variance(self, at: LogLoad) -> Array:
        across = self._covariance(at, self.loads)
        return np.asarray(np.maximum(self.prior_sigma**2 - np.einsum("ij,ij->i", across @ self._inverse, across), 0.0))

    def _covariance(self, one: LogLoad, other: LogLoad) -> Array:
        pairs = zip(one, other, _DOUBLINGS, strict=True)
        distances = [np.subtract.outer(left, right) / doublings for left, right, doublings in pairs]
        near = np.exp(-0.5 * np.sum(np.square(distances), axis=0))
        return np.asarray(self.prior_sigma**2 * (1 + _DEVIATION_SHARE**2 * (near - 1)))


def spread_of(sigmas: Array) -> tuple[float, float]:
    """Return P10 and P90 of the standard deviations at some loads, as one interval."""
    sigma = _P90_SIGMAS * float(np.sqrt(np.mean(np.square(sigmas))))
    return -sigma, sigma
