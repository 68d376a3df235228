"""Forecasts the request rate from counts in short intervals, which are mostly noise.

The level is the median of the last minute, so that one outlier changes nothing. The slope is the median of the slopes
between all pairs of reports within a loading time (Theil-Sen), so that a spike does not make it steep. The slope is
reduced for the part that Poisson noise alone would give. A rate that has stopped rising, as after a step, is not
extrapolated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import fmean, median
from typing import Final

_BY_CHANCE: Final = 2.0
"""Number of standard errors of a slope that noise exceeds with 5% probability."""

_FEW: Final = 5
"""Minimum number of reports in the later half of the history, for a slope of that half alone."""


@dataclass(frozen=True, slots=True)
class ObservedRate:
    """The observed rate of one interval."""

    now_s: float
    """End of the interval, in seconds."""
    requests_per_s: float


def expected_requests_per_s(seen: Sequence[ObservedRate], ahead_s: float, settle_s: float) -> float:
    """Return the expected rate `ahead_s` after the last report.

    Reports are ordered oldest first. A fall is not forecast.
    """
    lately = [one.requests_per_s for one in seen if one.now_s >= seen[-1].now_s - settle_s]
    return median(lately) + ahead_s * rising_per_s2(seen)


def rising_per_s2(seen: Sequence[ObservedRate]) -> float:
    """Return the rise of the request rate per second; 0 if the rate falls or the rise may be noise."""
    if len(seen) < 2:  # a slope needs two reports
        return 0.0
    later = seen[len(seen) // 2 :]
    slope = min(_median_slope(seen), _median_slope(later)) if len(later) >= _FEW else _median_slope(seen)
    interval_s = (seen[-1].now_s - seen[0].now_s) / (len(seen) - 1)
    middle_s = fmean(one.now_s for one in seen)
    spread_s = sqrt(sum((one.now_s - middle_s) ** 2 for one in seen))
    chance = _BY_CHANCE * sqrt(fmean(one.requests_per_s for one in seen) / interval_s) / spread_s
    return slope * (1.0 - (chance / slope) ** 2) if slope > chance else 0.0


def _median_slope(seen: Sequence[ObservedRate]) -> float:
    return median((b.requests_per_s - a.requests_per_s) / (b.now_s - a.now_s) for a, b in combinations(seen, 2))
