"""How many requests a second are to be expected? Counts of short intervals are mostly chance; what lasts is not.

The level is the median of the last minute, so that one interval out of line changes nothing. The slope is the median of
the slopes between all reports of a loading time (Theil and Sen), which a spike does not make steep, less what chance
alone would make of Poisson counts; what has stopped to rise, as after a step, rises no more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import fmean, median
from typing import Final

_BY_CHANCE: Final = 2.0
"""Standard errors of a slope that chance makes once in twenty times."""

_FEW: Final = 5
"""Reports whose slope says something of its own."""


@dataclass(frozen=True, slots=True)
class ObservedRate:
    """What came over one interval."""

    now_s: float
    """When it ended."""
    requests_per_s: float


def expected_requests_per_s(seen: Sequence[ObservedRate], ahead_s: float, settle_s: float) -> float:
    """Return what is expected a while after the last of these reports, oldest first; a fall is not foreseen."""
    lately = [one.requests_per_s for one in seen if one.now_s >= seen[-1].now_s - settle_s]
    return median(lately) + ahead_s * rising_per_s2(seen)


def rising_per_s2(seen: Sequence[ObservedRate]) -> float:
    """Return by how much the rate rises every second; 0 where it may be chance or falls."""
    if len(seen) < 2:  # noqa: PLR2004 - a slope is between two
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
