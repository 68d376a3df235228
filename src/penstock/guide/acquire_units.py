"""Finds the cheapest way to acquire units of an offer."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, inf
from typing import Final

from penstock.planning.optimizer.problem import Offer, Problem
from penstock.planning.spec.plan_types import Acquisition

_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquiring:
    """A way to acquire units, with their spares, and its cost over the horizon."""

    kind: Acquisition
    units: int
    usd: float
    number: int = 0
    """Index of the contract among the offer's contracts; 0 if the units are not on contract."""


def best_way(problem: Problem, offer: Offer, serving: int) -> Acquiring | None:
    """Return the cheapest way to acquire serving units with their spares; None beyond a limit or without a price."""
    units = serving + problem.spare_nodes
    limit = problem.max_nodes.get(offer.accelerator)
    if limit is not None and units * offer.nodes_per_unit > limit + _ROUNDING:
        return None
    return min(_ways(offer, units), key=lambda way: way.usd, default=None)


def least_unit_usd(offer: Offer) -> float:
    """Return a lower bound on the cost of one unit among many; infinite without a price."""
    return min((way.usd / way.units for way in _ways(offer, _MANY)), default=inf)


_MANY: Final = 10**9
"""Units at which every price level and whole purchase lots are reached."""


def _ways(offer: Offer, units: int) -> Iterator[Acquiring]:
    if offer.rent_usd is not None:
        yield Acquiring(kind="rent", units=units, usd=units * offer.rent_usd[0])
    for number, contract in enumerate(offer.contracts):
        if contract.signable:
            yield Acquiring(kind="contract", units=units, usd=units * contract.node_usd[0], number=number)
    for tier in offer.tiers:
        least = max(units, ceil(tier.min_devices / offer.devices))
        bought = ceil(least / offer.lot_nodes) * offer.lot_nodes
        yield Acquiring(kind="buy", units=bought, usd=bought * tier.node_usd[0])
