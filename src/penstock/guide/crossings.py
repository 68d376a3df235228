"""Finds where the cheapest vendor changes along the axes of a grid."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import sqrt
from typing import Final

from penstock.guide.cheapest_fleet import SizedFleet
from penstock.guide.guide_result import Axis, Crossing, GuideCell

_LOAD_HALVINGS: Final = 3
"""Halvings of a load interval: an interval of a factor of 4 is narrowed to 19%."""
_PROMPT_HALVINGS: Final = 1
"""Halvings of a prompt interval. Each prompt between two rows is a workload whose replicas are simulated."""
_DIGITS: Final = 3
FleetsAt = Callable[[float], Sequence[SizedFleet]]
"""Function that returns the cheapest fleet of each vendor at a value of the axis, the cheapest first."""


def load_crossings(cells: Sequence[GuideCell], fleets_at: FleetsAt) -> Iterator[Crossing]:
    """Yield the loads at which the winning vendor changes. The cells have one shape, in order of their load.

    Between two loads with different winners, the interval is halved by simulation. Costs are steps of whole units, so
    within a wide interval the answer may turn several times; one turn is found.
    """
    for one, other in _turns(cells):
        found = _crossing(one, other, "load", one.requests_per_s, other.requests_per_s)
        found = _narrow(found, fleets_at, _LOAD_HALVINGS)
        yield replace(found, requests_per_s=sqrt(found.low * found.high))


def context_crossings(
    cells: Sequence[GuideCell], fleets_at: Callable[[GuideCell, GuideCell, float], Sequence[SizedFleet]]
) -> Iterator[Crossing]:
    """Yield the prompt lengths at which the winning vendor changes. The cells have one load, in order of their prompt.

    The interval is halved by simulation, as that of a load. `fleets_at` gets two cells and a prompt between them.
    """
    for one, other in _turns(cells):
        found = _crossing(one, other, "context", one.shape.input_tokens, other.shape.input_tokens)
        found = _narrow(found, partial(fleets_at, one, other), _PROMPT_HALVINGS)
        yield replace(found, input_tokens=round(sqrt(found.low * found.high)))


def _turns(cells: Sequence[GuideCell]) -> Iterator[tuple[GuideCell, GuideCell]]:
    """Yield neighbours with winners of different vendors."""
    for one, other in pairwise(cells):
        if one.winner is not None and other.winner is not None and one.winner.vendor != other.winner.vendor:
            yield one, other


def _crossing(one: GuideCell, other: GuideCell, axis: Axis, low: float, high: float) -> Crossing:
    if one.winner is None or other.winner is None:
        raise ValueError("a crossing lies between two cells with winners")
    return Crossing(
        axis=axis,
        shape=one.shape,
        requests_per_s=one.requests_per_s,
        input_tokens=one.shape.input_tokens,
        low=low,
        high=high,
        below=one.winner.accelerator,
        above=other.winner.accelerator,
        below_vendor=one.winner.vendor,
        above_vendor=other.winner.vendor,
    )


def _narrow(crossing: Crossing, fleets_at: FleetsAt, halvings: int) -> Crossing:
    """Return a crossing with its interval halved on a logarithmic scale."""
    for _ in range(halvings):
        middle = float(f"{sqrt(crossing.low * crossing.high):.{_DIGITS}g}")
        fleets = fleets_at(middle) if crossing.low < middle < crossing.high else ()
        if not fleets:
            break
        vendor, accelerator = fleets[0].vendor, fleets[0].accelerator
        if vendor == crossing.below_vendor:
            crossing = replace(crossing, low=middle, below=accelerator)
        else:
            crossing = replace(crossing, high=middle, above=accelerator, above_vendor=vendor)
    return crossing
