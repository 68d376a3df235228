"""Finds what replicas carry for one workload shape, without its load.

The planner's own functions compute everything: candidates, rate curves, headroom and sustained rates. Results are kept
by pool size, so that loads only add arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from penstock.guide.acquire_units import Acquiring, best_way, least_unit_usd
from penstock.guide.capacity_memory import KnownCapacity, ShapeMemory
from penstock.guide.grid import WorkloadShape
from penstock.planning.candidates.candidate_search import Candidate, judge_option
from penstock.planning.candidates.replica_capacity import Capacity, Option, RateCurve
from penstock.planning.candidates.replica_limit import Resource
from penstock.planning.optimizer.problem import Offer, OfferKey, Problem
from penstock.planning.plan_sources import Sources
from penstock.planning.spec.plan_types import WorkloadPlan
from penstock.planning.spec.resolve_plan import Resolved
from penstock.planning.uncertainty.plan_headroom import plan_headroom
from penstock.planning.verification.simulated_capacity import PoolLoad, pool_of_size, reference_load, simulated_size
from penstock.planning.verification.verify_fleet import MAY_CARRY

_LOWER_HEADROOM = 0.97
"""Factor on the headroom at the highest load, below which the headroom at a lower load is never assumed."""


def kind_name(option: Option) -> str:
    """Return the name of a kind of replica: its split and its engine."""
    return f"{option.id} with {option.measured_engine}"


@dataclass(frozen=True, kw_only=True, eq=False)
class PoolKind:
    """A kind of replica on an offer: the units of one pool."""

    candidate: Candidate
    offer: Offer

    @property
    def vendor(self) -> str:
        """Return the vendor of the accelerator."""
        return self.offer.vendor

    def replicas(self, units: int) -> int:
        """Return how many replicas fill a number of units."""
        return units * self.offer.devices // self.candidate.devices

    @property
    def unit_step(self) -> int:
        """Return how many units one replica takes at least; 1 unless a replica spans several nodes."""
        return max(1, self.candidate.devices // self.offer.devices)


@dataclass(kw_only=True, eq=False)
class ShapeCapacity:
    """Capacities of all candidates of one workload shape, found when they are first needed."""

    shape: WorkloadShape
    resolved: Resolved
    sources: Sources
    problem: Problem
    """The offers, the costs per vendor and the spare units; its demand is not used."""
    kinds: tuple[PoolKind, ...]
    engines: dict[str, tuple[Option, ...]]
    """Maps each split to its options, one for each engine that can be launched."""
    memory: ShapeMemory
    _candidates: dict[tuple[str, float], tuple[Candidate, float]] = field(default_factory=dict)
    """Maps a split and a load to the answer of `candidate_at`."""
    _ways: dict[tuple[OfferKey, int], Acquiring | None] = field(default_factory=dict, init=False)
    _least_usd: dict[OfferKey, float] = field(default_factory=dict, init=False)

    @property
    def highest_load(self) -> float:
        """Return the load at which the candidates were searched."""
        return self.resolved.plan.workloads[0].peak_requests_per_s

    def workload(self, requests_per_s: float) -> WorkloadPlan:
        """Return the workload at a load."""
        return self.shape.workload(self.resolved.plan.workloads[0], requests_per_s)

    def candidate_at(self, entry: Candidate, requests_per_s: float) -> tuple[Candidate, float]:
        """Return the candidate as a plan of this load simulates it, and its headroom; infinite if it is too unsure.

        As in a plan, the engine is the one with the highest quick estimate at this load.
        """
        key = entry.id, requests_per_s
        if key not in self._candidates:
            self._candidates[key] = self._find_candidate(entry, requests_per_s)
        return self._candidates[key]

    def _find_candidate(self, entry: Candidate, requests_per_s: float) -> tuple[Candidate, float]:
        options = self.engines.get(entry.id, (entry.option,))
        option = max(options, key=lambda one: self._sketch(one, requests_per_s))
        reference = self._reference(option, requests_per_s)
        if reference is None:
            return entry, inf
        curves = self.memory.curves.setdefault(kind_name(option), {})
        if reference.replicas not in curves:
            curves[reference.replicas] = self._simulate(option, reference, requests_per_s)
            self.memory.changed = True
        known = curves[reference.replicas]
        found = _candidate(option, entry.workload, known.capacity(option.measured_engine))
        return found, known.headroom

    def _sketch(self, option: Option, requests_per_s: float) -> float:
        """Return the quick estimate of an option's rate; 0 if it serves no request in time."""
        if len(self.engines.get(option.id, ())) < 2:
            return 1.0
        reference = self._reference(option, requests_per_s)
        if reference is None:
            return 0.0
        known = self.memory.sketches.setdefault(kind_name(option), {})
        if reference.replicas not in known:
            found = judge_option(self.workload(requests_per_s), option, self.sources.capacity_of)
            known[reference.replicas] = found.rates[0]
            self.memory.changed = True
        return known[reference.replicas]

    def _reference(self, option: Option, requests_per_s: float) -> PoolLoad | None:
        """Return the pool in which a plan of this load simulates an option; None if it serves no request in time."""
        name, known = kind_name(option), self.memory.screened
        if name not in known:
            screen = self.sources.screen or self.sources.capacity_of
            known[name] = screen(option, self.workload(requests_per_s))[0].requests_per_s.value
            self.memory.changed = True
        return reference_load(option, self.workload(requests_per_s), (_rate_alone(known[name]),))

    def _simulate(self, option: Option, reference: PoolLoad, requests_per_s: float) -> KnownCapacity:
        workload = self.workload(requests_per_s)
        (capacity,) = (self.sources.curve_of or self.sources.capacity_of)(option, workload)
        if not capacity.meets_slo:
            return KnownCapacity.of(capacity, inf)
        self.memory.rates.setdefault(kind_name(option), {})[reference.replicas] = capacity.requests_per_s.value
        resolved = replace(self.resolved, plan=replace(self.resolved.plan, workloads=(workload,)))
        confident = plan_headroom(resolved, (_candidate(option, workload.name, capacity),))
        return KnownCapacity.of(capacity, confident.resolved.headroom.get((option.id, 0), inf))

    def headroom_bound(self, entry: Candidate) -> float:
        """Return a lower bound on the headroom of a candidate at any load up to the highest."""
        return max(1.0, self.candidate_at(entry, self.highest_load)[1] * _LOWER_HEADROOM)

    def rate_bound(self, entry: Candidate, replicas: int) -> tuple[float, bool]:
        """Return an upper bound on the rate of one replica in a pool of this size, and whether it is exact."""
        if self.sources.sustained_of is None:
            return entry.rates[0], True
        size, known = simulated_size(entry.option, replicas), self.memory.rates.get(kind_name(entry.option), {})
        if size in known:
            return known[size], True
        larger = [rate for other, rate in known.items() if other > size]
        highest = max(known.values(), default=entry.rates[0]) * MAY_CARRY
        return min([highest, *larger]), False

    def highest_rate(self, entry: Candidate) -> float:
        """Return an upper bound on the rate of one replica in a pool of any size; 0 if large pools serve nothing."""
        largest = self.rate_bound(entry, 10**6)[0]
        known = self.memory.rates.get(kind_name(entry.option), {})
        return max([largest, *known.values()]) if largest > 0 else 0.0

    def best_way(self, offer: Offer, serving: int) -> Acquiring | None:
        """Return the cheapest way to acquire serving units with their spares; None beyond a limit or without a price.

        It does not depend on the load.
        """
        key = offer.key, serving
        if key not in self._ways:
            self._ways[key] = best_way(self.problem, offer, serving)
        return self._ways[key]

    def units_usd(self, offer: Offer, serving: int) -> float:
        """Return the cost of serving units with their spares; infinite beyond a limit or without a price."""
        way = self.best_way(offer, serving)
        return inf if way is None else way.usd

    def least_unit_usd(self, offer: Offer) -> float:
        """Return a lower bound on the cost of one unit; infinite without a price."""
        if offer.key not in self._least_usd:
            self._least_usd[offer.key] = least_unit_usd(offer)
        return self._least_usd[offer.key]

    def limit(self, entry: Candidate) -> tuple[Resource, float] | None:
        """Return the resource that limits a replica, and the part of its hardware limit that it reaches.

        None if a replica serves no request in time or its limit is not known.
        """
        name, known = kind_name(entry.option), self.memory.limits
        if name not in known:
            found = self.sources.limit_of(entry.option, self.workload(1.0).shares[0].bucket, self.shape.slo)
            known[name] = None if found is None else (found.resource, found.roofline_fraction)
            self.memory.changed = True
        return known[name]

    def find_rate(self, entry: Candidate, replicas: int) -> float:
        """Return the simulated rate of one replica in a pool of this size; the estimate if there is no simulator."""
        if self.sources.sustained_of is None:
            return entry.rates[0]
        size, known = simulated_size(entry.option, replicas), self.memory.rates.setdefault(kind_name(entry.option), {})
        if size not in known:
            reference = self._reference(entry.option, self.highest_load)
            if reference is None:
                return 0.0
            load = pool_of_size(reference, size)
            known[size] = self.sources.sustained_of(load) / size
            self.memory.changed = True
        return known[size]


def _rate_alone(rate: float) -> Capacity:
    return Capacity(
        curve=RateCurve(errors=(0.0,), requests_per_s=(rate,)), tier="", grounds="predicted", prefill_fraction=None
    )


def _candidate(option: Option, workload: str, capacity: Capacity) -> Candidate:
    return Candidate(
        id=option.id,
        workload=workload,
        weights=option.weights,
        deployment=option.deployment,
        capacities=(capacity,),
        speculation=option.speculation,
    )


def vendors_of(kinds: Sequence[PoolKind]) -> tuple[str, ...]:
    """Return the vendors of pool kinds, in their order."""
    return tuple(dict.fromkeys(kind.vendor for kind in kinds))
