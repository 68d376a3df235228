"""Finds the deployments worth considering: those that fit, meet the SLO and are not dominated by another deployment."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf
from typing import Final

import numpy as np

from penstock.catalog.accelerator import Accelerator
from penstock.fleet.deployment import Deployment
from penstock.fleet.disaggregated_replica import Disaggregated
from penstock.model import ModelSpec
from penstock.performance.prediction.speculation import Speculation
from penstock.performance.step.step_work import Array
from penstock.planning.candidates.deployment_options import (
    DraftsOf,
    WorkloadOnAccelerator,
    emulated_formats,
    engines_to_consider,
    options_of,
    unmeasured_reason,
)
from penstock.planning.candidates.disaggregated_units import UnitsOf
from penstock.planning.candidates.launch_obstacles import NotLaunched, ObstacleOf
from penstock.planning.candidates.replica_capacity import Capacity, CapacityOf, Option, mixed_rate, way_of
from penstock.planning.in_parallel import in_parallel
from penstock.planning.spec.plan_types import AcceleratorPlan, WorkloadPlan
from penstock.planning.spec.resolve_plan import LeftOut

_SCREEN_MARGIN: Final = 1.1
"""Factor by which the simulated rate of an option may exceed its quick estimate.

An option is not simulated if it would still be dominated with its quick estimate multiplied by this factor.
"""
_NEAR_TIE: Final = 0.99
"""Share of the rate at which an option would be dominated; an option that misses its SLO there is dominated."""
Step = Callable[[str], None]
"""Progress callback, called with the name of an accelerator or candidate."""
CarriesShare = Callable[[Option, WorkloadPlan, float], bool]
"""Function that returns whether an option sustains a share of its quick estimate."""
EnginesOf = Callable[[str, ModelSpec | None], Sequence[str]]
"""Function that returns the engines with which an accelerator was measured, optionally with one model only."""


@dataclass(frozen=True, slots=True)
class Screen:
    """Quick estimates of capacities, and a check by one simulation whether an option sustains a share of them."""

    quick: CapacityOf
    carries_share: CarriesShare

    def __call__(self, option: Option, workload: WorkloadPlan) -> tuple[Capacity, ...]:
        """Return the quick estimate of an option for each length."""
        return self.quick(option, workload)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to run a workload, with its capacity for each length."""

    id: str
    workload: str
    weights: str
    deployment: Deployment
    capacities: tuple[Capacity, ...]
    """One capacity per length bucket, in the workload's order."""
    speculation: Speculation | None = None
    """Speculative decoding with the checkpoint's own draft layers; None if the candidate does not draft."""
    disaggregated: Disaggregated | None = None
    """The replicas of a disaggregated unit; the unit counts as one replica. None if the candidate is not
    disaggregated."""

    @property
    def way(self) -> str:
        """Describe the deployment: split and drafted tokens per step, or the prefill and decode replicas of a unit."""
        return way_of(self.deployment, self.speculation, self.disaggregated)

    @property
    def accelerator(self) -> Accelerator:
        """Return the accelerator that the candidate runs on."""
        return self.deployment.accelerator

    @property
    def devices(self) -> int:
        """Return the number of devices that a replica occupies; whole nodes if its split does not divide a node."""
        wanted = self.deployment.parallelism.devices if self.disaggregated is None else self.disaggregated.devices
        node = self.accelerator.node.devices
        return wanted if wanted <= node and node % wanted == 0 else -(-wanted // node) * node

    @property
    def measured_engine(self) -> str:
        """Return the engine whose measurements predict the capacity.

        Without measurements, return the engine whose memory accounting is used.
        """
        named = (capacity.measured_engine for capacity in self.capacities if capacity.measured_engine is not None)
        return next(named, self.deployment.engine.name)

    @cached_property
    def option(self) -> Option:
        """Return the deployment option from which this candidate was made, with the candidate's measured engine."""
        return Option(
            id=self.id,
            weights=self.weights,
            deployment=self.deployment,
            measured_engine=self.measured_engine,
            speculation=self.speculation,
            disaggregated=self.disaggregated,
        )

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """Return the capacity for each length, in requests per second."""
        return tuple(capacity.requests_per_s.value for capacity in self.capacities)

    def relative_rate_at(self, errors: Array) -> Array:
        """Return the capacity at prediction errors in standard deviations, relative to the capacity without error.

        All lengths of a workload are served at once, so the length that loses most decides.
        """
        curves = [capacity.curve for capacity in self.capacities if capacity.meets_slo]
        return np.asarray(np.min([curve.at(errors) / curve.at(np.zeros(1)) for curve in curves], axis=0))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Candidates for the optimizer, and the accelerators that were left out, each with the reason."""

    candidates: tuple[Candidate, ...]
    considered: int
    left_out: tuple[LeftOut, ...]
    not_launched: tuple[NotLaunched, ...] = ()


def find_candidates(
    workload: WorkloadPlan,
    model: ModelSpec,
    accelerators: Iterable[tuple[Accelerator, AcceleratorPlan]],
    capacity_of: CapacityOf,
    *,
    screen: CapacityOf | None = None,
    engines_of: EnginesOf = lambda *_: (),
    drafts_of: DraftsOf = lambda *_: None,
    units_of: UnitsOf = lambda *_: (),
    obstacle_of: ObstacleOf = lambda *_: None,
) -> Choice:
    """Find the candidates of a workload on every accelerator, with the engines measured on that accelerator.

    If the workload names no engine, the engines measured with its model are considered. If no engine was measured with
    its model, all measured engines are considered. Disaggregated units are added to the replicas that both prefill and
    decode, so that units never make a fleet more expensive. An option whose launch preflight does not pass is left out,
    unless the workload names its engine.
    """
    kept: list[Candidate] = []
    left_out: list[LeftOut] = []
    not_launched: list[NotLaunched] = []
    considered = 0
    for accelerator, planned in accelerators:
        placing = WorkloadOnAccelerator(
            workload=workload, accelerator=accelerator, planned=planned, drafts_of=drafts_of
        )
        measured = engines_of(accelerator.id, None if workload.engines else model)
        engines = engines_to_consider(workload.engines, measured=measured)
        feasible: list[Option] = []
        reason: str | None = unmeasured_reason(workload, measured)
        if engines is not None:
            feasible, reason = options_of(model, placing, engines)
        launch = _Launches(workload, obstacle_of)
        simulation = _Simulation(capacity_of, screen.carries_share if isinstance(screen, Screen) else None, launch)
        useful, ways, why = _whole(workload, feasible, reason, simulation, screen)
        units = units_of(model, placing)
        considered += ways + len(units)
        useful += _units(workload, units, useful, simulation, screen or capacity_of)
        kept += useful
        not_launched += launch.worth_knowing(useful)
        if not useful:
            left_out.append(LeftOut(what=f"{workload.name} on {accelerator.id}", why=launch.why or why))
        else:
            formats = {**emulated_formats(model, placing), **launch.formats()}
            left_out += [
                LeftOut(what=f"{workload.name} in {weights} on {accelerator.id}", why=reason)
                for weights, reason in formats.items()
            ]
    return Choice(
        candidates=tuple(kept),
        considered=considered,
        left_out=tuple(left_out),
        not_launched=tuple(not_launched),
    )


@dataclass(slots=True)
class _Launches:
    """Checks the launches of one workload on one accelerator, and keeps the options whose launch does not pass."""

    workload: WorkloadPlan
    obstacle_of: ObstacleOf
    blocked: list[tuple[NotLaunched, Candidate]] = field(default_factory=list)
    passed: set[str] = field(default_factory=set)
    """Weight formats in which some launch passes."""

    def passes(self, option: Option, bound: Candidate) -> bool:
        """Return whether the launch passes, or the plan names the engine. `bound` is the option's quick estimate."""
        named = option.measured_engine in self.workload.engines
        why = None if named else self.obstacle_of(option, self.workload.model)
        if why is not None:
            self.blocked.append((NotLaunched(workload=self.workload, option=option, why=why), bound))
        else:
            self.passed.add(option.weights)
        return why is None

    def formats(self) -> Mapping[str, str]:
        """Map each weight format that no launch passes to the reason of its fastest option."""
        found = {entry.option.weights: entry.why for entry, _ in reversed(self._best_first())}
        return {weights: why for weights, why in found.items() if weights not in self.passed}

    def worth_knowing(self, kept: Sequence[Candidate]) -> Iterator[NotLaunched]:
        """Yield the options that no kept candidate dominates."""
        for entry, bound in self._best_first():
            if not any(_beats(other, bound, margin=_SCREEN_MARGIN) for other in kept):
                yield entry

    @property
    def why(self) -> str | None:
        """Return why the option with the best quick estimate was left out."""
        return self._best_first()[0][0].why if self.blocked else None

    def _best_first(self) -> list[tuple[NotLaunched, Candidate]]:
        """Return the options in the order of their quick estimates, disaggregated units last."""

        def key(pair: tuple[NotLaunched, Candidate]) -> tuple[bool, float]:
            return pair[1].disaggregated is not None, -_rate_per_device(self.workload, pair[1])

        return sorted(self.blocked, key=key)


@dataclass(frozen=True, slots=True)
class _Simulation:
    """Simulates the options of one workload on one accelerator whose launches pass."""

    capacity_of: CapacityOf
    carries_share: CarriesShare | None
    launches: _Launches

    def is_dominated(self, option: Option, share: float) -> bool:
        """Return whether one simulation shows that an option does not sustain a share of its quick estimate."""
        if self.carries_share is None or not share:
            return False
        return not self.carries_share(option, self.launches.workload, share * _NEAR_TIE)


def with_curves(choice: Choice, workload: WorkloadPlan, curve_of: CapacityOf, step: Step = lambda _: None) -> Choice:
    """Return the candidates with their capacities over the prediction error.

    A candidate that turns out to miss the SLO at any rate is dropped.
    """
    found = []
    searches = in_parallel([partial(curve_of, entry.option, workload) for entry in choice.candidates])
    for entry, capacities in zip(choice.candidates, searches, strict=True):
        found.append(replace(entry, capacities=capacities))
        step(entry.id)
    kept = tuple(entry for entry in found if any(entry.rates))
    served = {entry.accelerator.id for entry in kept}
    left_out = {
        entry.accelerator.id: LeftOut(
            what=f"{workload.name} on {entry.accelerator.id}", why=entry.capacities[0].grounds
        )
        for entry in found
        if entry.accelerator.id not in served
    }
    return replace(choice, candidates=kept, left_out=(*choice.left_out, *left_out.values()))


def _whole(
    workload: WorkloadPlan,
    feasible: Sequence[Option],
    reason: str | None,
    simulation: _Simulation,
    screen: CapacityOf | None,
) -> tuple[list[Candidate], int, str]:
    """Judge replicas that both prefill and decode.

    Return the candidates to keep, the number of options judged, and the reason if no candidate is kept.
    """
    judged = [judge_option(workload, option, screen or simulation.capacity_of) for option in feasible]
    hopeful = [pair for pair in zip(feasible, judged, strict=True) if any(pair[1].rates)]
    if screen is None:
        useful = [entry for option, entry in hopeful if simulation.launches.passes(option, entry)]
    else:
        useful = _simulate_options(workload, hopeful, simulation)
    why = reason or (judged[0].capacities[0].grounds if judged else "no deployment to consider")
    return drop_dominated(_best_engines(workload, useful)), len({option.id for option in feasible}), why


def _simulate_options(
    workload: WorkloadPlan, screened: Sequence[tuple[Option, Candidate]], simulation: _Simulation
) -> list[Candidate]:
    """Simulate options in the order of their quick estimates, and skip options that a simulated option dominates.

    A quick estimate ignores queues, so it is optimistic. An option whose quick estimate is dominated by a simulated
    option need not be simulated. One simulation shows whether another option is dominated: the one at the rate that
    the option needs. Quick estimates are not compared with each other, because they ignore queues. Without queues, two
    small replicas may look better than one large replica, although the large replica carries more when requests queue.
    Data-parallel ranks come last, because each rank has a queue of its own and their estimates are the most optimistic.
    """

    def order(pair: tuple[Option, Candidate]) -> tuple[bool, float]:
        return pair[0].deployment.parallelism.dp > 1, -_rate_per_device(workload, pair[1])

    found: list[Candidate] = []
    for option, bound in sorted(screened, key=order):
        needed = max((_lead(other, bound) for other in found), default=0.0)
        if needed >= _SCREEN_MARGIN or not simulation.launches.passes(option, bound):
            continue
        if simulation.is_dominated(option, needed):
            continue
        careful = judge_option(workload, option, simulation.capacity_of)
        found += [careful] if any(careful.rates) else []
    return found


def _units(
    workload: WorkloadPlan,
    units: Sequence[Option],
    others: Sequence[Candidate],
    simulation: _Simulation,
    screen: CapacityOf,
) -> list[Candidate]:
    """Judge disaggregated units; keep the units that are not dominated by a replica that both prefills and decodes."""
    bounds = [(option, judge_option(workload, option, screen)) for option in units]
    hopeful = [(o, b) for o, b in bounds if not any(_beats(other, b, margin=_SCREEN_MARGIN) for other in others)]
    found = _simulate_options(workload, [(o, b) for o, b in hopeful if any(b.rates)], simulation)
    return [
        one for one in drop_dominated(_best_engines(workload, found)) if not any(_beats(other, one) for other in others)
    ]


def _best_engines(workload: WorkloadPlan, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Keep, for each split, the engine with the highest rate for the workload's mix of lengths."""
    best: dict[str, Candidate] = {}
    for entry in candidates:
        before = best.get(entry.id)
        if before is None or _mixed_rate(workload, entry) > _mixed_rate(workload, before):
            best[entry.id] = entry
    return list(best.values())


def _mixed_rate(workload: WorkloadPlan, candidate: Candidate) -> float:
    return mixed_rate(tuple(share.fraction for share in workload.shares), candidate.rates)


def _rate_per_device(workload: WorkloadPlan, candidate: Candidate) -> float:
    return _mixed_rate(workload, candidate) / candidate.devices


def drop_dominated(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Drop each candidate that is dominated by another candidate of the same workload and accelerator.

    Candidate A dominates candidate B if copies of A, on no more devices than B, serve every length at least as fast as
    B. Replica sizes divide a node, so the copies fit wherever the larger replica fits.
    """
    kept: list[Candidate] = []
    for one in sorted(candidates, key=lambda entry: (entry.devices, -sum(entry.rates), entry.id)):
        if not any(_beats(other, one) for other in kept):
            kept.append(one)
    return kept


def _beats(other: Candidate, one: Candidate, *, margin: float = 1.0) -> bool:
    return _lead(other, one) >= margin


def _lead(other: Candidate, one: Candidate) -> float:
    """Return the rate of copies of `other` on no more devices than `one`, relative to the rate of `one`.

    The length with the smallest ratio decides. Return 0 if no copy fits, or for another workload or accelerator.
    """
    copies = one.devices // other.devices
    same = (other.workload, other.accelerator.id) == (one.workload, one.accelerator.id)
    if not same or not copies:
        return 0.0
    return min((b * copies / a for a, b in zip(one.rates, other.rates, strict=True) if a), default=inf)


def judge_option(workload: WorkloadPlan, option: Option, capacity_of: CapacityOf) -> Candidate:
    """Return an option as a candidate with its capacity for each length."""
    return Candidate(
        id=option.id,
        workload=workload.name,
        weights=option.weights,
        deployment=option.deployment,
        capacities=capacity_of(option, workload),
        speculation=option.speculation,
        disaggregated=option.disaggregated,
    )
