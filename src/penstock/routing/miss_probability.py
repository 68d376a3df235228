"""How likely is a promise kept? From a predicted time over its limit, with the doubt a prediction has.

The chance to be late is log-logistic around the prediction: r^n / (1 + r^n), where one over the doubt is n, taken as a
power of two so that it is a few squarings.
"""

from penstock.routing.policy_compiler import native

LENGTH_SQUARINGS = 1
"""Of what hangs on an answer's length: lengths are about as far apart as they are long, so that n is 2."""

_MAX_SQUARINGS = 6
_HALFWAY = 0.7071067811865476
_HOPELESS = 1e3
"""Beyond so many times its limit a time is late for sure; its powers would overflow."""


@native
def squarings(doubt_fraction: float) -> int:
    """How often a ratio is squared so that its power is nearest to one over the doubt."""
    times = 0
    while times < _MAX_SQUARINGS and doubt_fraction < _HALFWAY:
        doubt_fraction *= 2.0
        times += 1
    return times


@native
def power(ratio: float, times: int) -> float:
    """Return a ratio squared so often; of one that is hopeless no more than can be told."""
    powered = min(ratio, _HOPELESS)
    for _ in range(times):
        powered = powered * powered
    return powered


@native
def chance(ratio: float, times: int) -> float:
    """Chance that a time exceeds its limit, predicted as this share of it: log-logistic around the prediction."""
    powered = power(ratio, times)
    return powered / (1.0 + powered)


@native
def strain(ratio: float, times: int) -> float:
    """What residents suffer at this share of their limit: as the chance below it, and on with its slope above.

    It is convex, so that more load is never less harm: an endpoint beyond saving does not attract more.
    """
    if ratio >= 1.0:
        return 1.0 + (1 << times) * (ratio - 1.0)
    return power(ratio, times)


@native
def strain_slope(ratio: float, times: int) -> float:
    """How fast that grows there: no further load adds less than this for each share of the limit."""
    squared, slope = min(ratio, 1.0), float(1 << times)
    for _ in range(times):
        slope *= squared
        squared *= squared
    return slope
