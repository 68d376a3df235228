"""Enumerates the fleets that serve one workload at one load, and returns the cheapest.

A fleet is one pool, or two pools of the same accelerator in units of different sizes. Capacities that are not known yet
are bounded from above. The cheapest fleet under these bounds is simulated, until the cheapest fleet is one whose
capacities are all simulated. Pairs of kinds that cannot be cheaper than the best fleet so far are not enumerated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, count
from math import ceil, inf, isfinite
from typing import Final

from penstock.guide.shape_capacity import PoolKind, ShapeCapacity
from penstock.planning.candidates.candidate_search import Candidate

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
        self._units = dict[int, _KindUnits]()
        """Maps the identity of each kind to its units, with what is known at this load."""

    def cheapest(self, kinds: Sequence[PoolKind], most_usd: float = inf) -> SizedFleet | None:
        """Return the cheapest fleet of these kinds; None if none of them serves the load for at most `most_usd`.

        Fleets that cost more by their bounds are not simulated.
        """
        while True:
            found = self._cheapest_bounded(kinds)
            if found is None or found.cost_usd > most_usd:
                return None
            if all(self._settle(pool) for pool in found.pools):
                return found

    def _settle(self, pool: SizedPool) -> bool:
        """Simulate what is only bounded of a pool; return whether nothing had to be simulated."""
        entry = pool.kind.candidate
        if entry.id not in self._settled:
            self._settled[entry.id] = self.capacity.candidate_at(entry, self.load)
        elif self.capacity.rate_bound(entry, pool.replicas)[1]:
            return True
        else:
            self.capacity.find_rate(entry, pool.replicas)
        self._units = {key: units for key, units in self._units.items() if units.kind.candidate.id != entry.id}
        return False

    def _cheapest_bounded(self, kinds: Sequence[PoolKind]) -> SizedFleet | None:
        """Return the cheapest of the smallest fleets of each kind and of each two kinds of one accelerator."""
        known = [units for kind in kinds if (units := self._units_of(kind)).usd_per_rate < inf]
        best: SizedFleet | None = None
        for one in known:
            best = _cheaper(best, self._fleet((one, one.fewest(self.need))))
        for one, other in combinations(known, 2):
            offers = one.kind.offer, other.kind.offer
            if offers[0].accelerator == offers[1].accelerator and offers[0].key != offers[1].key:
                few, rest = (one, other) if offers[0].devices <= offers[1].devices else (other, one)
                best = self._cheapest_pair(few, rest, best)
        return best

    def _cheapest_pair(self, few: "_KindUnits", rest: "_KindUnits", best: SizedFleet | None) -> SizedFleet | None:
        """Return the cheapest fleet of two kinds, or `best` if none of them is cheaper."""
        limit = inf if best is None else best.cost_usd
        shared_usd = self._vendor_usd(few.kind.vendor) + rest.spares_usd
        if min(few.usd_per_rate, rest.usd_per_rate) * self.need + shared_usd >= limit:
            return best
        for units in count(1):
            left = self.need - few.capacity_of(units)
            if left <= 0:
                break
            if few.usd(units) + left * rest.usd_per_rate + shared_usd < limit:
                best = _cheaper(best, self._fleet((few, units), (rest, rest.fewest(left))))
                limit = inf if best is None else best.cost_usd
        return best

    def _fleet(self, *asked: tuple["_KindUnits", int]) -> SizedFleet | None:
        usd = sum(units.usd(number) for units, number in asked)
        if not isfinite(usd):
            return None
        pools = tuple(SizedPool(kind=units.kind, units=number) for units, number in asked)
        return SizedFleet(pools=pools, cost_usd=usd + self._vendor_usd(pools[0].kind.vendor))

    def _vendor_usd(self, vendor: str) -> float:
        return self.capacity.problem.vendor_usd.get(vendor, (0.0,))[0]

    def _units_of(self, kind: PoolKind) -> "_KindUnits":
        if id(kind) not in self._units:
            entry, headroom = self._settled.get(kind.candidate.id) or (
                kind.candidate,
                self.capacity.headroom_bound(kind.candidate),
            )
            # Once the load is known, so is the engine that a plan of this load chooses.
            chosen = PoolKind(candidate=entry, offer=kind.offer)
            self._units[id(kind)] = _KindUnits(capacity=self.capacity, kind=chosen, headroom=headroom)
        return self._units[id(kind)]


@dataclass(kw_only=True, eq=False)
class _KindUnits:
    """Units of one kind: what they carry at most as far as is known, and what they cost."""

    capacity: ShapeCapacity
    kind: PoolKind
    headroom: float
    """Headroom at the load, or a lower bound on it."""
    _known: dict[int, float] = field(default_factory=dict)

    def capacity_of(self, units: int) -> float:
        """Return an upper bound on the load, without headroom, that a number of units carry."""
        if units not in self._known:
            replicas = self.kind.replicas(units)
            rate = self.capacity.rate_bound(self.kind.candidate, replicas)[0] if replicas else 0.0
            self._known[units] = replicas * rate / self.headroom
        return self._known[units]

    def fewest(self, load: float) -> int:
        """Return the fewest units that carry a load."""
        step = self.kind.unit_step
        units = max(1, ceil(load / self._rate_per_unit / step - _ROUNDING)) * step
        while self.capacity_of(units) < load * (1 - _ROUNDING):
            units += step
        return units

    def usd(self, units: int) -> float:
        """Return the cost of serving units with their spares, acquired in the cheapest way; infinite if impossible."""
        return self.capacity.units_usd(self.kind.offer, units)

    @cached_property
    def _rate_per_unit(self) -> float:
        """Return an upper bound on the load per unit."""
        rate = self.capacity.highest_rate(self.kind.candidate) / self.headroom
        return rate * self.kind.offer.devices / self.kind.candidate.devices

    @cached_property
    def usd_per_rate(self) -> float:
        """Return a lower bound on the cost of one request per second; infinite if no number of units serves it."""
        rate = self._rate_per_unit
        return self.capacity.least_unit_usd(self.kind.offer) / rate if rate > 0 else inf

    @property
    def spares_usd(self) -> float:
        """Return a lower bound on the cost of the spare units."""
        return self.capacity.problem.spare_nodes * self.capacity.least_unit_usd(self.kind.offer)


def _cheaper(best: SizedFleet | None, found: SizedFleet | None) -> SizedFleet | None:
    return found if best is None or (found is not None and found.cost_usd < best.cost_usd) else best
