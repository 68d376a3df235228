"""Finds the load up to which an API costs less than a fleet, with fleets that are resized to each load."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.planning.optimizer.problem import Mix, Problem
from penstock.planning.optimizer.resize_fleet import Worlds, resized_usd

_RANGE: Final = 100.0
"""Loads from the plan's load divided by this, to the plan's load times this, are compared."""
_PER_SIDE: Final = 233
"""Number of loads compared on each side of the plan's load: neighbours differ by 2%."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiBreakEven:
    """The load up to which an API costs less than every compared fleet."""

    load_factor: float
    """Largest compared load at which the API costs less, relative to the plan's load; 0 if there is none."""
    compared_factor: float
    """Largest compared load: the compared fleets carry it. Above `load_factor` and up to it, a fleet costs less."""


def api_break_even(problem: Problem, fleets: Sequence[Mix], api_usd: float) -> ApiBreakEven:
    """Compare an API, whose cost is `api_usd` at the plan's load, with the cheapest of several fleets at many loads.

    All demands are scaled alike. A fleet is resized, so its cost may be overestimated, and a load at which only other
    fleets would be enough ends the comparison.
    """
    factors = np.geomspace(1 / _RANGE, _RANGE, 2 * _PER_SIDE + 1)
    keys = [(demand.key[0], period) for demand in problem.demands for period in range(problem.periods)]
    worlds = Worlds(count=len(factors), capacity={}, bought_usd={}, rented_usd={}, demand=dict.fromkeys(keys, factors))
    usd = np.min(np.vstack([resized_usd(mix, problem, worlds) for mix in fleets]), axis=0)
    too_large = np.flatnonzero(~np.isfinite(usd) & (factors > 1.0))
    compared = int(too_large[0]) if len(too_large) else len(factors)
    cheaper = np.flatnonzero(api_usd * factors[:compared] < usd[:compared])
    return ApiBreakEven(
        load_factor=float(factors[cheaper[-1]]) if len(cheaper) else 0.0,
        compared_factor=float(factors[compared - 1]),
    )
