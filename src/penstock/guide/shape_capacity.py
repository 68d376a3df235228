"""Finds what replicas carry for one workload shape, without its load.

The planner's own functions compute everything: candidates, rate curves, headroom and sustained rates. Results are kept
by pool size, so that loads only add arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from penstock.errors import UsageError
from penstock.guide.capacity_memory import KnownCapacity, ShapeMemory
from penstock.guide.grid import WorkloadShape
from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.candidates.replica_capacity import Capacity
from penstock.planning.candidates_by_workload import search_candidates
from penstock.planning.make_plan import resolve_inputs
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.problem import Offer, Problem
from penstock.planning.plan_sources import Sources
from penstock.planning.spec.plan_types import Plan, WorkloadPlan
from penstock.planning.spec.resolve_plan import LeftOut, Resolved
from penstock.planning.uncertainty.plan_headroom import plan_headroom
from penstock.planning.verification.simulated_capacity import PoolLoad, pool_of_size, reference_load, simulated_size
from penstock.planning.verification.verify_fleet import MAY_CARRY
from penstock.simulation.run_options import StageProgress

_LOWER_HEADROOM = 0.97
"""Factor on the headroom at the highest load, below which the headroom at a lower load is never assumed."""


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
    left_out: tuple[LeftOut, ...]
    memory: ShapeMemory
    _sized: dict[tuple[str, int], tuple[Candidate, float]] = field(default_factory=dict)

    @property
    def utilisation(self) -> float:
        """Return the highest planned utilisation."""
        return self.problem.utilisation_fraction

    def workload(self, requests_per_s: float) -> WorkloadPlan:
        """Return the workload at a load."""
        return self.shape.workload(self.resolved.plan.workloads[0], requests_per_s)

    def at_load(self, requests_per_s: float) -> Resolved:
        """Return the inputs of the plan at a load."""
        plan = replace(self.resolved.plan, workloads=(self.workload(requests_per_s),))
        return replace(self.resolved, plan=plan)

    def candidate_at(self, kind: PoolKind, requests_per_s: float) -> tuple[Candidate, float]:
        """Return the candidate as a plan of this load simulates it, and its headroom; infinite if it is too unsure."""
        entry = kind.candidate
        reference = self._reference(entry, requests_per_s)
        key = (entry.id, reference.replicas)
        if key not in self._sized:
            known = self.memory.curve(*key)
            if known is None:
                known = self._simulate(entry, reference, requests_per_s)
                self.memory.keep_curve(*key, known)
            found = replace(entry, capacities=(known.capacity_like(entry.capacities[0]),))
            self._sized[key] = found, known.headroom
        return self._sized[key]

    def _reference(self, entry: Candidate, requests_per_s: float) -> PoolLoad:
        light = self.memory.screened_rate(entry.id)
        if light is None:
            screen = self.sources.screen or self.sources.capacity_of
            light = screen(entry.option, self.workload(requests_per_s))[0].requests_per_s.value
            self.memory.keep_screened(entry.id, light)
        found = reference_load(entry.option, self.workload(requests_per_s), (_rate_only(entry.capacities[0], light),))
        if found is None:
            raise ValueError(f"{entry.id} serves no request of the workload")
        return found

    def _simulate(self, entry: Candidate, reference: PoolLoad, requests_per_s: float) -> KnownCapacity:
        workload = self.workload(requests_per_s)
        curve_of = self.sources.curve_of or self.sources.capacity_of
        (capacity,) = curve_of(entry.option, workload)
        if not capacity.meets_slo:
            return KnownCapacity.of(capacity, inf)
        self.memory.keep_rate(entry.id, reference.replicas, capacity.requests_per_s.value)
        confident = plan_headroom(self.at_load(requests_per_s), (replace(entry, capacities=(capacity,)),))
        headroom = (confident.resolved.headroom or {}).get((entry.id, 0), inf)
        return KnownCapacity.of(capacity, headroom)

    def headroom_bound(self, kind: PoolKind) -> float:
        """Return a lower bound on the headroom of a kind at any load up to the highest."""
        return max(
            1.0, self.candidate_at(kind, self.resolved.plan.workloads[0].peak_requests_per_s)[1] * _LOWER_HEADROOM
        )

    def rate_bound(self, kind: PoolKind, replicas: int) -> tuple[float, bool]:
        """Return an upper bound on the rate of one replica in a pool of this size, and whether it is exact."""
        if self.sources.sustained_of is None:
            return kind.candidate.rates[0], True
        entry, size = kind.candidate, simulated_size(kind.candidate.option, replicas)
        known = self.memory.rates(entry.id)
        if size in known:
            return known[size], True
        larger = [rate for other, rate in known.items() if other > size]
        highest = max(known.values(), default=entry.rates[0]) * MAY_CARRY
        return min([highest, *larger]), False

    def find_rate(self, kind: PoolKind, replicas: int) -> float:
        """Return the simulated rate of one replica in a pool of this size; the estimate if there is no simulator."""
        entry = kind.candidate
        if self.sources.sustained_of is None:
            return entry.rates[0]
        load = pool_of_size(self._reference(entry, self.resolved.plan.workloads[0].peak_requests_per_s), replicas)
        known = self.memory.rates(entry.id)
        if load.replicas not in known:
            self.memory.keep_rate(entry.id, load.replicas, self.sources.sustained_of(load) / load.replicas)
        return self.memory.rates(entry.id)[load.replicas]


def _rate_only(like: Capacity, rate: float) -> Capacity:
    return replace(like, curve=type(like.curve)(errors=(0.0,), requests_per_s=(rate,)))


def search_shape(
    shape: WorkloadShape, template: Plan, highest_load: float, sources: Sources, progress: StageProgress
) -> ShapeCapacity:
    """Find the candidates of a shape, as a plan of its highest load does."""
    resolved = resolve_inputs(shape.plan(template, highest_load), sources)[0]
    choice = search_candidates(resolved, sources, progress)
    memory = ShapeMemory()
    problem = build_problem(resolved, choice.candidates)
    if problem.periods > 1:
        raise UsageError("a guide plans one period; shorten `horizon_years`, or use `acquire: [rent]`")
    kinds = tuple(
        PoolKind(candidate=entry, offer=offer)
        for entry in choice.candidates
        for offer in problem.offers
        if entry.accelerator.id == offer.accelerator and _holds(offer, entry)
    )
    return ShapeCapacity(
        shape=shape,
        resolved=resolved,
        sources=sources,
        problem=problem,
        kinds=kinds,
        left_out=(*resolved.left_out, *choice.left_out),
        memory=memory,
    )


def _holds(offer: Offer, entry: Candidate) -> bool:
    most = offer.max_replica_devices
    return offer.min_replica_devices <= entry.devices and (most is None or entry.devices <= most)


def vendors_of(kinds: Sequence[PoolKind]) -> tuple[str, ...]:
    """Return the vendors of pool kinds, in their order."""
    return tuple(dict.fromkeys(kind.vendor for kind in kinds))
