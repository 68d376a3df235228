"""Enumerates the fleets that serve one workload at one load, and returns the cheapest.

A fleet is one pool, or two pools of the same accelerator in units of different sizes. Capacities that are not known yet
are bounded from above. The cheapest fleet under these bounds is simulated, until the cheapest fleet is one whose
capacities are all simulated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, inf, isfinite
from typing import Final

from penstock.guide.shape_capacity import PoolKind, ShapeCapacity
from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.problem import Offer, Problem
from penstock.planning.spec.plan_types import Acquisition

_ROUNDING: Final = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class SizedPool:
    """Units of one kind, without spare units."""

    kind: PoolKind
    units: int

    @property
    def replicas(self) -> int:
        """Return the number of serving replicas."""
        return self.kind.replicas(self.units)


@dataclass(frozen=True, kw_only=True, eq=False)
class SizedFleet:
    """A fleet that serves the workload, and its cost over the horizon."""

    pools: tuple[SizedPool, ...]
    cost_usd: float

    @property
    def vendor(self) -> str:
        """Return the vendor of the fleet."""
        return self.pools[0].kind.vendor

    @property
    def accelerator(self) -> str:
        """Return the accelerator of the fleet."""
        return self.pools[0].kind.offer.accelerator


class FleetSearch:
    """Searches the cheapest fleet of a workload shape at one load."""

    def __init__(self, capacity: ShapeCapacity, requests_per_s: float) -> None:
        self.capacity, self.load = capacity, requests_per_s
        self.need = requests_per_s / capacity.problem.utilisation_fraction
        self._settled = dict[str, tuple[Candidate, float]]()
        """Maps each split to its candidate at this load and its headroom, once they are known."""

    def cheapest(self, kinds: Sequence[PoolKind]) -> SizedFleet | None:
        """Return the cheapest fleet of these kinds; None if none of them can serve the load."""
        while True:
            found = min(self._fleets(kinds), key=lambda fleet: fleet.cost_usd, default=None)
            if found is None or all(self._settle(pool) for pool in found.pools):
                return found

    def _settle(self, pool: SizedPool) -> bool:
        """Simulate what is only bounded of a pool; return whether nothing had to be simulated."""
        entry = pool.kind.candidate
        if entry.id not in self._settled:
            self._settled[entry.id] = self.capacity.candidate_at(entry, self.load)
            return False
        if not self.capacity.rate_bound(entry, pool.replicas)[1]:
            self.capacity.find_rate(entry, pool.replicas)
            return False
        return True

    def _fleets(self, kinds: Sequence[PoolKind]) -> Iterator[SizedFleet]:
        """Yield the smallest fleet of each kind, and of each two kinds of one accelerator."""
        known = [self._with_engine(kind) for kind in kinds]
        for kind in known:
            yield from self._fleet((kind, self._smallest(kind, self.need)))
        for one, other in combinations(known, 2):
            if one.offer.accelerator == other.offer.accelerator and one.offer.key != other.offer.key:
                yield from self._pairs(*sorted((one, other), key=lambda kind: kind.offer.devices))

    def _pairs(self, few: PoolKind, rest: PoolKind) -> Iterator[SizedFleet]:
        most = few.offer.max_units
        if most is None:
            return
        for units in range(1, most + 1):
            left = self.need - self._capacity_of(few, units)
            if left <= 0:
                return
            yield from self._fleet((few, units), (rest, self._smallest(rest, left)))

    def _fleet(self, *asked: tuple[PoolKind, int | None]) -> Iterator[SizedFleet]:
        usd = sum(units_usd(self.capacity.problem, kind.offer, units) for kind, units in asked if units is not None)
        if any(units is None for _, units in asked) or not isfinite(usd):
            return
        vendor_usd = self.capacity.problem.vendor_usd.get(asked[0][0].vendor, (0.0,))[0]
        pools = tuple(SizedPool(kind=kind, units=units) for kind, units in asked if units is not None)
        yield SizedFleet(pools=pools, cost_usd=usd + vendor_usd)

    def _with_engine(self, kind: PoolKind) -> PoolKind:
        """Return the kind with the engine that a plan of this load chooses, once it is known."""
        known = self._settled.get(kind.candidate.id)
        return kind if known is None else PoolKind(candidate=known[0], offer=kind.offer)

    def headroom(self, kind: PoolKind) -> float:
        """Return the headroom of a kind at this load, or a lower bound on it."""
        known = self._settled.get(kind.candidate.id)
        return self.capacity.headroom_bound(kind.candidate) if known is None else known[1]

    def _capacity_of(self, kind: PoolKind, units: int) -> float:
        """Return an upper bound on the load, without headroom, that a number of units carry."""
        replicas = kind.replicas(units)
        return (
            replicas * self.capacity.rate_bound(kind.candidate, replicas)[0] / self.headroom(kind) if replicas else 0.0
        )

    def _smallest(self, kind: PoolKind, need: float) -> int | None:
        """Return the fewest units that carry a load; None if the headroom is infinite."""
        headroom = self.headroom(kind)
        if not isfinite(headroom):
            return None
        # No pool carries more per replica than the bound for the largest size.
        best = self.capacity.rate_bound(kind.candidate, 10**6)[0] / headroom
        step = kind.unit_step
        units = max(1, ceil(need / best * kind.candidate.devices / kind.offer.devices / step - _ROUNDING)) * step
        while self._capacity_of(kind, units) < need * (1 - _ROUNDING):
            units += step
        return units


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquiring:
    """A way to acquire units, with their spares, and its cost over the horizon."""

    kind: Acquisition
    units: int
    usd: float
    number: int = 0
    """Index of the contract among the offer's contracts; 0 if the units are not on contract."""


def units_usd(problem: Problem, offer: Offer, serving: int) -> float:
    """Return the cost of serving units with their spares, acquired in the cheapest way; infinite beyond a limit."""
    way = best_way(problem, offer, serving)
    return inf if way is None else way.usd


def best_way(problem: Problem, offer: Offer, serving: int) -> Acquiring | None:
    """Return the cheapest way to acquire serving units with their spares; None beyond a limit or without a price."""
    units = serving + problem.spare_nodes
    limit = problem.max_nodes.get(offer.accelerator)
    if (offer.max_units is not None and units > offer.max_units) or (
        limit is not None and units * offer.nodes_per_unit > limit + _ROUNDING
    ):
        return None
    ways = [] if offer.rent_usd is None else [Acquiring(kind="rent", units=units, usd=units * offer.rent_usd[0])]
    ways += [
        Acquiring(kind="contract", units=units, usd=units * contract.node_usd[0], number=number)
        for number, contract in enumerate(offer.contracts)
        if contract.signable
    ]
    for tier in offer.tiers:
        least = max(units, ceil(tier.min_devices / offer.devices))
        bought = ceil(least / offer.lot_nodes) * offer.lot_nodes
        ways.append(Acquiring(kind="buy", units=bought, usd=bought * tier.node_usd[0]))
    return min(ways, key=lambda way: way.usd, default=None)
