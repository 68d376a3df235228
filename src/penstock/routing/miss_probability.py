"""Computes the probability that a request misses its SLO, from the ratio of predicted time to limit.

With r as the ratio of predicted time to limit, the probability is log-logistic: r^n / (1 + r^n). The exponent n is one
over the relative uncertainty of the prediction. The exponent is rounded to a power of two, so that r^n takes only a few
squarings.
"""

from penstock.compiled.marks import compiled
from penstock.routing.records import Record

_MAX_SQUARINGS = 6
_HALFWAY = 0.7071067811865476
_HOPELESS = 1e3
"""Ratio of predicted time to limit above which a request is certainly late. Powers of higher ratios would overflow."""


@compiled
def squarings(doubt_fraction: float) -> int:
    """Return the number of squarings s for which 2^s is nearest to one over the uncertainty."""
    times = 0
    while times < _MAX_SQUARINGS and doubt_fraction < _HALFWAY:
        doubt_fraction *= 2.0
        times += 1
    return times


@compiled
def length_squarings(p: Record, kind: int) -> int:
    """Return the number of squarings for times that depend on the answer lengths of a class, at least 1."""
    return max(1, squarings(max(p["class_length_doubt"][kind], p["doubt_fraction"])))


@compiled
def power(ratio: float, times: int) -> float:
    """Return a ratio after `times` squarings. The ratio is capped first, to avoid overflow."""
    powered = min(ratio, _HOPELESS)
    for _ in range(times):
        powered = powered * powered
    return powered


@compiled
def chance(ratio: float, times: int) -> float:
    """Return the probability that a latency exceeds its limit, given the ratio of predicted latency to limit."""
    powered = power(ratio, times)
    return powered / (1.0 + powered)


@compiled
def strain(ratio: float, times: int) -> float:
    """Return the harm to requests already at an endpoint, given their ratio of predicted time to limit.

    Below a ratio of 1 the harm is a power of the ratio. Above a ratio of 1 the harm is linear, with the slope that the
    power has at 1. The harm is convex, so that more load never means less harm: an overloaded endpoint does not attract
    more requests.
    """
    if ratio >= 1.0:
        return 1.0 + (1 << times) * (ratio - 1.0)
    return power(ratio, times)


@compiled
def strain_slope(ratio: float, times: int) -> float:
    """Return the slope of `strain` at a ratio.

    Adding to the ratio adds at least this slope times the increase to the harm.
    """
    squared, slope = min(ratio, 1.0), float(1 << times)
    for _ in range(times):
        slope *= squared
        squared *= squared
    return slope
