"""Compares a claim with the distribution of comparable published figures.

The quartiles of the published figures decide, and not the nearest figure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Final, Literal

from penstock.audit.claims.amount import Amount
from penstock.audit.judgement import Verdict, Working, plainly, working_line

_ENOUGH: Final = 4
_NARROW: Final = 1.1
"""With four or more figures, a claim is implausible if it lies outside their range by more than this factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Comparable published figures. Each load, setup or provider has one figure."""

    values: Sequence[float]
    noun: tuple[str, str]
    """Singular and plural noun for a figure, such as `published load` and `published loads`."""
    write: Callable[[float], str]
    """Function that formats a figure with its unit."""
    repeat: float = 1.0
    """Maximum ratio between two runs of one setup. The interquartile range is widened by this factor at both ends."""
    margin: float = 1.25
    """With at most three figures, a claim is implausible if it lies outside their range by more than this factor."""
    modest: Literal["low", "high"] | None = "low"
    """Side of the published figures (low or high) on which a claim promises less than they do. None for prices."""
    sides: tuple[str, str] = ("above", "below")
    """Words for a claim above the figures and for a claim below the figures."""

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile of the figures."""
        if len(self.values) == 1:
            return (self.values[0],) * 3
        low, middle, high = quantiles(self.values, n=4, method="inclusive")
        return low, middle, high

    @property
    def median(self) -> float:
        """Median of the figures."""
        return self.quartiles[1]

    def judge(self, amount: Amount) -> tuple[Verdict, str]:
        """Return the verdict on a claim by its position among the figures, and a description of that position."""
        if self._confirms(amount):
            return Verdict.CONFIRMED, self._position(amount, confirmed=True)
        inside = amount.overlaps(*self._range)
        return Verdict.PLAUSIBLE if inside else Verdict.IMPLAUSIBLE, self._position(amount, confirmed=False)

    @property
    def _range(self) -> tuple[float, float]:
        margin = self.margin if len(self.values) < _ENOUGH else min(self.margin, _NARROW)
        return min(self.values) / margin, max(self.values) * margin

    def is_modest(self, amount: Amount) -> bool:
        """Return whether a claim promises less than every published figure."""
        if self.modest == "low":
            return amount.high + amount.slack < min(self.values)
        return self.modest == "high" and amount.low - amount.slack > max(self.values)

    def line(self, amount: Amount, times: float = 1.0, unit: str = "") -> Working:
        """Return the line of arithmetic that divides the claim by the median.

        The factor `times` converts both values to `unit`.
        """
        claimed, middle = plainly(times * amount.middle), plainly(times * self.median)
        of = f"median of {len(self.values)} {self.noun[1]}" if len(self.values) > 1 else f"the only {self.noun[0]}"
        return working_line(f"{claimed} / {middle}", float(claimed) / float(middle), f"claimed / {of}{unit}")

    def _confirms(self, amount: Amount) -> bool:
        """Return whether a claim is near the median.

        A single figure must be within the interquartile range, widened by `repeat` and by the claim's rounding. A
        claimed range is also near the median if it contains the median and both its ends lie within the range of the
        published figures, widened by `margin`. A claim with `over` or `under` must hold for three quarters of the
        figures.
        """
        low, median, high = self.quartiles
        if amount.at_least or amount.at_most:
            return amount.meets(low if amount.at_least else high)
        first, last = amount.low + amount.slack, amount.high - amount.slack
        if first >= low / self.repeat and last <= high * self.repeat:
            return True
        lowest, highest = self._range
        return amount.low <= median <= amount.high and lowest <= first and last <= highest

    def _position(self, amount: Amount, *, confirmed: bool) -> str:
        low, median, high = (self.write(value) for value in self.quartiles)
        count, (one, several) = len(self.values), self.noun
        over = sum(value < amount.low - amount.slack for value in self.values)
        under = sum(value > amount.high + amount.slack for value in self.values)
        beyond, side = (over, self.sides[0]) if over > under else (under, self.sides[1])
        side = "more modest than" if self.is_modest(amount) else side
        if count == 1:
            where = side if beyond and not confirmed else "near"
            return f"{amount.noun_phrase} is {where} the only {one}, which is {median}"
        if amount.at_least or amount.at_most or (amount.low < amount.high and beyond < count):
            met = sum(amount.meets(value) for value in self.values)
            return f"{amount.noun_phrase} is true of {met} of {count} {several}, median {median}"
        if beyond == count:
            lowest, highest = self.write(min(self.values)), self.write(max(self.values))
            number = "both" if count == 2 else f"all {count}"
            return f"{amount.noun_phrase} is {side} {number} {several}, {lowest} to {highest}, median {median}"
        where = "within the middle half" if confirmed else f"{side} {beyond}"
        spread = f"median {median}, middle half from {low} to {high}"
        return f"{amount.noun_phrase} is {where} of {count} {several}, {spread}"
