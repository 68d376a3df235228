"""Finds the rates that a fleet sustains if its steps take longer or shorter than predicted."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, log
from typing import Final

from penstock.simulation.capacity import MIN_SHARE, Trial

_EXACT, _NEAR = 1.01, 1.06
"""Ratios of two rates, one that meets the SLO and one that misses it, at which a search ends.

The rate between two rates of ratio 1.06 is interpolated, unless the higher rate is close to saturation.
"""
_GENTLE: Final = 1.15
"""Ratio of the limits of two trials up to which the rate between them is interpolated."""
_CLOSEST: Final = 0.1
_STEP: Final = 1.1
_MAX_TRIALS: Final = 16


@dataclass(slots=True)
class SlowerSteps:
    """Searches the sustained rate for several factors on step times, with the same trials for all factors.

    Every trial is run at the predicted step times and tells how much slower the steps may be (`slowdown_limit`).
    """

    run: Callable[[float], Trial]
    """Function that runs a trial at a rate."""
    begin_per_s: float
    """A rate near the sustained rate at the predicted step times."""
    trials: list[Trial]
    """All trials known so far, in any order."""
    _found: dict[float, float] = field(default_factory=dict)

    def feasible(self, slowdown: float) -> bool:
        """Return whether the SLO is met at any rate if every step takes `slowdown` times as long."""
        least = min(self.trials, key=_rate)
        if least.asked_per_s > MIN_SHARE * self.begin_per_s * _EXACT:
            least = self._try(MIN_SHARE * self.begin_per_s)
        return _limit(least) >= slowdown

    def sustained_per_s(self, slowdown: float) -> float:
        """Return the highest rate that meets the SLO if every step takes `slowdown` times as long; 0 if none does."""
        if slowdown not in self._found:
            self._found[slowdown] = self._search(slowdown) / slowdown
        return self._found[slowdown]

    def _search(self, slowdown: float) -> float:
        """Return the highest rate at which the replicas may be this much slower."""
        step = _STEP
        for _ in range(_MAX_TRIALS):
            held, missed = self._ends(slowdown)
            if held is None:
                if not self.feasible(slowdown):
                    return 0.0
            elif missed is None:
                self._try(held.asked_per_s * step)
                step **= 2
            else:
                low, high, between = held.asked_per_s, missed.asked_per_s, _place_between(held, missed, slowdown)
                gentle = _limit(held) <= _GENTLE * _limit(missed) and high <= _NEAR * low
                if high <= _EXACT * low or gentle:
                    return low + (high - low) * (between or 0.0)
                place = 0.5 if between is None else min(1 - _CLOSEST, max(_CLOSEST, between))
                self._try(low + (high - low) * place)
        held, _ = self._ends(slowdown)
        return 0.0 if held is None else held.asked_per_s

    def _ends(self, slowdown: float) -> tuple[Trial | None, Trial | None]:
        """Return the highest rate below the lowest miss at which steps may take `slowdown` times as long, and the miss.

        By chance a rate above a miss may meet the SLO; it does not count.
        """
        missed = min((entry for entry in self.trials if _limit(entry) < slowdown), key=_rate, default=None)
        below = inf if missed is None else missed.asked_per_s
        held = [entry for entry in self.trials if entry.asked_per_s < below]
        return max(held, key=_rate, default=None), missed

    def _try(self, rate_per_s: float) -> Trial:
        found = self.run(rate_per_s)
        self.trials.append(found)
        return found


def _rate(entry: Trial) -> float:
    return entry.asked_per_s


def _limit(entry: Trial) -> float:
    """Return how much slower the steps may be; 0 if the queue keeps growing or any request is oversized."""
    if entry.slowdown_limit is None:
        raise ValueError("this fleet has times that do not grow with its steps; simulate it with slower steps")
    return 0.0 if entry.saturated or entry.oversized else entry.slowdown_limit


def _place_between(held: Trial, missed: Trial, slowdown: float) -> float | None:
    """Estimate where the limit falls below `slowdown`, as a fraction of the way from `held` to `missed`.

    Return None if the higher rate is missed because its queue keeps growing.
    """
    ends = _limit(held), _limit(missed)
    if min(ends) <= 0 or max(ends) == inf:
        return None
    above, below = (log(limit / slowdown) for limit in ends)
    return above / (above - below)
