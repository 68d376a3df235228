"""Forecasts the request rate from request counts in short intervals, in which noise dominates.

The present rate is the median over the last minute, so that one outlier changes nothing. The slope is the median of the
slopes between all pairs of reports (Theil-Sen), so that a spike does not make the slope steep. Reports reach back one
loading time of a replica. A rise is reduced by the amount that Poisson noise alone could explain. A rate that has
stopped rising, as after a sudden step, is not extrapolated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import fmean, median
from typing import Final

_BY_CHANCE: Final = 2.0
"""With 5% probability, noise alone makes a slope exceed this number of standard errors, up or down."""

_FEW: Final = 5
"""Minimum number of reports in the later half of the history, if a separate slope is computed for this half."""


@dataclass(frozen=True, slots=True)
class ObservedRate:
    """Request rate observed in one interval."""

    now_s: float
    """End of the interval, in seconds."""
    requests_per_s: float


def expected_requests_per_s(seen: Sequence[ObservedRate], ahead_s: float, settle_s: float) -> float:
    """Return the request rate expected `ahead_s` seconds after the last report.

    Reports are ordered oldest first. A fall is not forecast.
    """
    lately = [one.requests_per_s for one in seen if one.now_s >= seen[-1].now_s - settle_s]
    return median(lately) + ahead_s * rising_per_s2(seen)


def rising_per_s2(seen: Sequence[ObservedRate]) -> float:
    """Return how fast the request rate rises, in requests/s per second; 0 if it falls or the rise may be noise."""
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
