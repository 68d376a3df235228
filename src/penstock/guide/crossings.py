"""Finds where the cheapest vendor changes along the axes of a grid."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import exp, log, sqrt
from typing import Final

from penstock.guide.cheapest_fleet import SizedFleet
from penstock.guide.guide_result import Crossing, GuideCell

_BISECTIONS: Final = 3
"""Halvings of a load interval: an interval of a factor of 4 is narrowed to 19%."""
FleetsAt = Callable[[float], Sequence[SizedFleet]]
"""Function that returns the cheapest fleet of each vendor at a load, the cheapest first."""


def load_crossings(cells: Sequence[GuideCell], fleets_at: FleetsAt) -> Iterator[Crossing]:
    """Yield the loads at which the winning vendor changes. The cells have one shape, in order of their load.

    Between two loads with different winners, the interval is halved by simulation. Costs are steps of whole units, so
    within a wide interval the answer may turn several times; one turn is found.
    """
    for one, other in pairwise(cells):
        if one.winner is None or other.winner is None or one.winner.vendor == other.winner.vendor:
            continue
        low, high = one.requests_per_s, other.requests_per_s
        below, above = (one.winner.vendor, one.winner.accelerator), (other.winner.vendor, other.winner.accelerator)
        for _ in range(_BISECTIONS):
            middle = float(f"{sqrt(low * high):.3g}")
            fleets = fleets_at(middle)
            if not fleets or not low < middle < high:
                break
            found = fleets[0].vendor, fleets[0].accelerator
            if found[0] == below[0]:
                low, below = middle, found
            else:
                high, above = middle, found
        yield Crossing(
            axis="load",
            shape=one.shape,
            requests_per_s=sqrt(low * high),
            input_tokens=one.shape.input_tokens,
            low=low,
            high=high,
            below=below[1],
            above=above[1],
            below_vendor=below[0],
            above_vendor=above[0],
            simulated=True,
        )


def context_crossings(cells: Sequence[GuideCell]) -> Iterator[Crossing]:
    """Yield the prompt lengths at which the winning vendor changes. The cells have one load, in order of their prompt.

    The cost of each vendor grows with the prompt. Between two prompts it is interpolated on logarithmic scales.
    """
    for one, other in pairwise(cells):
        if one.winner is None or other.winner is None or one.winner.vendor == other.winner.vendor:
            continue
        first, second = one.winner, other.winner
        leads = [_lead(cell, first.vendor, second.vendor) for cell in (one, other)]
        low, high = float(one.shape.input_tokens), float(other.shape.input_tokens)
        at = (low, high) if None in leads else _between(low, high, [lead or 0.0 for lead in leads])
        yield Crossing(
            axis="context",
            shape=one.shape,
            requests_per_s=one.requests_per_s,
            input_tokens=round(sqrt(at[0] * at[1])),
            low=at[0],
            high=at[1],
            below=first.accelerator,
            above=second.accelerator,
            below_vendor=first.vendor,
            above_vendor=second.vendor,
            simulated=False,
        )


def _lead(cell: GuideCell, vendor: str, other: str) -> float | None:
    """Return the logarithm of the other vendor's cost relative to the vendor's; None if one of them has no fleet."""
    usd = {fleet.vendor: fleet.cost_usd for fleet in cell.fleets}
    return None if vendor not in usd or other not in usd else log(usd[other] / usd[vendor])


def _between(low: float, high: float, leads: Sequence[float]) -> tuple[float, float]:
    """Return the prompt at which an interpolated lead is zero, as an interval of no width."""
    share = leads[0] / (leads[0] - leads[1])
    turn = exp(log(low) + share * (log(high) - log(low)))
    return turn, turn
