"""Computes the probability that a request misses its SLO, from the ratio of predicted time to limit.

With r as this ratio, the probability is log-logistic around the prediction: r^n / (1 + r^n). n is one over the relative
uncertainty of the prediction, rounded to a power of two so that the power takes a few squarings.
"""

from penstock.compiled.marks import compiled

LENGTH_SQUARINGS = 1
"""Squarings for times that depend on answer length. Lengths vary by about their own size, so n is 2."""

_MAX_SQUARINGS = 6
_HALFWAY = 0.7071067811865476
_HOPELESS = 1e3
"""Ratio of time to limit beyond which a request is late for certain; higher powers would overflow."""


@compiled
def squarings(doubt_fraction: float) -> int:
    """Return the number s of squarings for which 2^s is nearest to one over the uncertainty."""
    times = 0
    while times < _MAX_SQUARINGS and doubt_fraction < _HALFWAY:
        doubt_fraction *= 2.0
        times += 1
    return times


@compiled
def power(ratio: float, times: int) -> float:
    """Return a ratio squared `times` times; the ratio is capped to avoid overflow."""
    powered = min(ratio, _HOPELESS)
    for _ in range(times):
        powered = powered * powered
    return powered


@compiled
def chance(ratio: float, times: int) -> float:
    """Return the probability that a time exceeds its limit, given the ratio of its prediction to the limit."""
    powered = power(ratio, times)
    return powered / (1.0 + powered)


@compiled
def strain(ratio: float, times: int) -> float:
    """Return the harm to residents at a ratio of time to limit.

    Below a ratio of 1 the harm is a power of the ratio. Above 1 it is linear, with the slope that the power has at 1.
    The harm is convex, so that more load never means less harm: an overloaded endpoint does not attract more requests.
    """
    if ratio >= 1.0:
        return 1.0 + (1 << times) * (ratio - 1.0)
    return power(ratio, times)


@compiled
def strain_slope(ratio: float, times: int) -> float:
    """Return the slope of `strain` at a ratio, which is a lower bound on the harm per added share of the limit."""
    squared, slope = min(ratio, 1.0), float(1 << times)
    for _ in range(times):
        slope *= squared
        squared *= squared
    return slope
