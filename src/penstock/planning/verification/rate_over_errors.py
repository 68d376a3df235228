"""Computes the curve of a pool's sustained rate over the prediction error of its step times."""

from math import exp
from typing import Final, Protocol

import numpy as np

from penstock.performance.calibration.error_summary import Logs
from penstock.planning.candidates.replica_capacity import P10_ERROR, RateCurve

_ERRORS: Final = (-2.5, -1.9, P10_ERROR, -0.6, 0.0, 0.6, -P10_ERROR, 2.0)
"""Errors at which the rate is simulated, in standard deviations."""
_ABOVE_EDGE: Final = (0.15, 0.5)
"""Further points between the largest error with which the SLO can be met and the next error of `_ERRORS`.

The rate falls fastest there.
"""
_HALVINGS: Final = 5
"""Bisections between two errors of `_ERRORS` for the largest error with which the SLO can be met: to 0.02."""


class StepSlowdowns(Protocol):
    """Sustained rates of a pool whose steps take longer or shorter than predicted."""

    def feasible(self, slowdown: float) -> bool:
        """Return whether the SLO is met at any rate if every step takes `slowdown` times as long."""

    def sustained_per_s(self, slowdown: float) -> float:
        """Return the highest rate that meets the SLO if every step takes `slowdown` times as long; 0 if none does."""


def slowdown_at(error: float, spread: Logs) -> float:
    """Return the factor on step times at an error, given the logarithms of the P10 and the P90 of this factor.

    The logarithm of the factor has a two-piece normal distribution whose median is 0.
    """
    fastest, slowest = min(spread[0], 0.0), max(spread[1], 0.0)
    return exp((slowest if error < 0 else fastest) * abs(error / P10_ERROR))


def curve_over_errors(steps: StepSlowdowns, spread: Logs) -> RateCurve:
    """Return the sustained rate over the error of step times, whose P10 and P90 are `spread`, as logarithms."""
    possible = [error for error in _ERRORS if steps.feasible(slowdown_at(error, spread))]
    if not possible:
        return RateCurve(errors=(0.0,), requests_per_s=(0.0,))
    errors, number = possible, _ERRORS.index(possible[0])
    edge = None
    if number > 0:
        edge, first = _edge(steps, spread, _ERRORS[number - 1], possible[0])
        errors = sorted({first, *(first + (possible[0] - first) * part for part in _ABOVE_EDGE), *possible})
    rates = [steps.sustained_per_s(slowdown_at(error, spread)) for error in errors]
    # Searches end within 1% of the rate, so that a faster replica may by chance be found to sustain less.
    rising = np.maximum.accumulate(rates).tolist()
    if edge is None:
        return RateCurve(errors=tuple(errors), requests_per_s=tuple(rising))
    return RateCurve(errors=(edge, *errors), requests_per_s=(0.0, *rising))


def _edge(steps: StepSlowdowns, spread: Logs, missed: float, met: float) -> tuple[float, float]:
    """Return two errors closer than 0.02: with the first the SLO is missed at any rate, with the second it is met."""
    for _ in range(_HALVINGS):
        middle = (missed + met) / 2
        if steps.feasible(slowdown_at(middle, spread)):
            met = middle
        else:
            missed = middle
    return missed, met
