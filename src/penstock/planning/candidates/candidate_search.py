"""Which deployments are worth considering? Everything that fits and meets the SLO, less what something else beats."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.catalog.accelerator import Accelerator
from penstock.fleet.deployment import Deployment
from penstock.fleet.disaggregated_replica import Disaggregated
from penstock.model import ModelSpec
from penstock.performance.prediction.predict_deployment import Speculation
from penstock.planning.candidates.deployment_options import DraftsOf, WorkloadOnAccelerator, options_of
from penstock.planning.candidates.disaggregated_units import UnitsOf
from penstock.planning.candidates.replica_capacity import Capacity, CapacityOf, Option, mixed_rate, way_of
from penstock.planning.spec.plan_types import AcceleratorPlan, WorkloadPlan
from penstock.planning.spec.resolve_plan import LeftOut

_SCREEN_MARGIN: Final = 1.1
"""By how much a pool may carry more than the screen's closed loop: what is behind even so is not simulated."""
Step = Callable[[str], None]
"""Called with what is looked at next."""
EnginesOf = Callable[[str, ModelSpec | None], Sequence[str]]
"""The engines an accelerator was measured with."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to run a workload, with what it carries of each length."""

    id: str
    workload: str
    weights: str
    deployment: Deployment
    capacities: tuple[Capacity, ...]
    """One per length bucket, in the workload's order."""
    speculation: Speculation | None = None
    """How it drafts with the checkpoint's own layers; None where it does not."""
    apart: Disaggregated | None = None
    """The replicas of both kinds where prompts are computed apart; they count as one."""

    @property
    def way(self) -> str:
        """How it is run: its split, and how many tokens a step drafts; or both kinds of a unit."""
        return way_of(self.deployment, self.speculation, self.apart)

    @property
    def accelerator(self) -> Accelerator:
        """What it runs on."""
        return self.deployment.accelerator

    @property
    def devices(self) -> int:
        """Devices it takes from its nodes: a split that does not divide a node takes whole ones."""
        wanted = self.deployment.parallelism.devices if self.apart is None else self.apart.devices
        node = self.accelerator.node.devices
        return wanted if wanted <= node and node % wanted == 0 else -(-wanted // node) * node

    @property
    def measured_engine(self) -> str:
        """The engine whose measurements its capacity rests on, or the one whose memory accounting it has."""
        named = (capacity.measured_engine for capacity in self.capacities if capacity.measured_engine is not None)
        return next(named, self.deployment.engine.name)

    @property
    def option(self) -> Option:
        """The way it is run, with its engine."""
        return Option(
            id=self.id,
            weights=self.weights,
            deployment=self.deployment,
            measured_engine=self.measured_engine,
            speculation=self.speculation,
            apart=self.apart,
        )

    @property
    def rates(self) -> tuple[float, ...]:
        """Requests per second of each length."""
        return tuple(capacity.requests_per_s.value for capacity in self.capacities)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What is left for the optimiser, and what was left out and why."""

    candidates: tuple[Candidate, ...]
    considered: int
    left_out: tuple[LeftOut, ...]


def find_candidates(
    workload: WorkloadPlan,
    model: ModelSpec,
    parts: Sequence[tuple[Accelerator, AcceleratorPlan]],
    capacity_of: CapacityOf,
    *,
    screen: CapacityOf | None = None,
    engines_of: EnginesOf = lambda *_: (),
    drafts_of: DraftsOf = lambda *_: None,
    units_of: UnitsOf = lambda *_: (),
    step: Step = lambda _: None,
) -> Choice:
    """Place a workload on every part in every way, with every engine that served its model there, or else any.

    Units of prefill and decode replicas come on top: what does both stays, so that they never make a fleet dearer.
    """
    kept: list[Candidate] = []
    left_out: list[LeftOut] = []
    considered = 0
    for accelerator, part in parts:
        step(accelerator.id)
        placing = WorkloadOnAccelerator(workload=workload, accelerator=accelerator, part=part, drafts_of=drafts_of)
        measured = engines_of(accelerator.id, None if workload.engines else model)
        engines = asked_engines(workload.engines, measured=measured)
        feasible: list[Option] = []
        reason: str | None = _unmeasured(workload, measured)
        if engines is not None:
            feasible, reason = options_of(model, placing, engines)
        useful, ways, why = _whole(workload, feasible, reason, capacity_of, screen)
        units = units_of(model, placing)
        considered += ways + len(units)
        useful += _units(workload, units, useful, capacity_of, screen or capacity_of)
        kept += useful
        if not useful:
            left_out.append(LeftOut(what=f"{workload.name} on {accelerator.id}", why=why))
    return Choice(candidates=tuple(kept), considered=considered, left_out=tuple(left_out))


def _whole(
    workload: WorkloadPlan,
    feasible: Sequence[Option],
    reason: str | None,
    capacity_of: CapacityOf,
    screen: CapacityOf | None,
) -> tuple[list[Candidate], int, str]:
    """Judge replicas that prefill and decode: those worth keeping, how many ways there are, and why if none is kept."""
    judged = [_judged(workload, option, screen or capacity_of) for option in feasible]
    useful = [entry for entry in judged if any(entry.rates)]
    if screen is not None:
        bounds = zip(feasible, judged, strict=True)
        useful = _simulated(workload, [pair for pair in bounds if any(pair[1].rates)], capacity_of)
    why = reason or (judged[0].capacities[0].grounds if judged else "nothing to place")
    return undominated(_best_engines(workload, useful)), len({option.id for option in feasible}), why


def asked_engines(asked: Sequence[str], *, measured: Sequence[str]) -> Sequence[str] | None:
    """Choose the engines to consider on a part: of those measured there, the ones asked for; None where none is left.

    For a part nobody measured its kin speak, whatever was asked.
    """
    if not asked or not measured:
        return asked or measured
    return [engine for engine in measured if engine in asked] or None


def _unmeasured(workload: WorkloadPlan, measured: Sequence[str]) -> str:
    return f"not measured with {' or '.join(workload.engines)}; measured: {', '.join(measured)}"


def _simulated(
    workload: WorkloadPlan, screened: Sequence[tuple[Option, Candidate]], capacity_of: CapacityOf
) -> list[Candidate]:
    """Judge with care what could still be worth it, the most promising first.

    What the screen says is more than a queue allows, so an option that falls behind a simulated one even so need not
    be simulated. Only that drops one before: without queues two small replicas beat a large one that carries more once
    requests queue, and the cheapest fleet runs the large one.
    """
    found: list[Candidate] = []
    for option, bound in sorted(screened, key=lambda pair: -_mixed(workload, pair[1]) / pair[1].devices):
        if any(_beats(other, bound, margin=_SCREEN_MARGIN) for other in found):
            continue
        careful = _judged(workload, option, capacity_of)
        found += [careful] if any(careful.rates) else []
    return found


def _units(
    workload: WorkloadPlan,
    units: Sequence[Option],
    others: Sequence[Candidate],
    capacity_of: CapacityOf,
    screen: CapacityOf,
) -> list[Candidate]:
    """Judge units that may be worth it beside replicas that do both, and keep those that are."""
    bounds = [(option, _judged(workload, option, screen)) for option in units]
    hopeful = [(o, b) for o, b in bounds if not any(_beats(other, b, margin=_SCREEN_MARGIN) for other in others)]
    found = _simulated(workload, [(o, b) for o, b in hopeful if any(b.rates)], capacity_of)
    return [
        one for one in undominated(_best_engines(workload, found)) if not any(_beats(other, one) for other in others)
    ]


def _best_engines(workload: WorkloadPlan, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Keep the engine that carries most of the workload's mix, for each split."""
    best: dict[str, Candidate] = {}
    for entry in candidates:
        before = best.get(entry.id)
        if before is None or _mixed(workload, entry) > _mixed(workload, before):
            best[entry.id] = entry
    return list(best.values())


def _mixed(workload: WorkloadPlan, candidate: Candidate) -> float:
    return mixed_rate(tuple(share.fraction for share in workload.shares), candidate.rates)


def undominated(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Drop what other candidates of the same workload and part beat: as many devices or fewer, and no length slower.

    Several copies of a smaller replica may stand for a larger one: sizes divide a node, so they fit where it fits.
    """
    kept: list[Candidate] = []
    for one in sorted(candidates, key=lambda entry: (entry.devices, -sum(entry.rates), entry.id)):
        if not any(_beats(other, one) for other in kept):
            kept.append(one)
    return kept


def _beats(other: Candidate, one: Candidate, *, margin: float = 1.0) -> bool:
    copies = one.devices // other.devices
    same = (other.workload, other.accelerator.id) == (one.workload, one.accelerator.id)
    return same and copies > 0 and all(b * copies >= a * margin for a, b in zip(one.rates, other.rates, strict=True))


def _judged(workload: WorkloadPlan, option: Option, capacity_of: CapacityOf) -> Candidate:
    return Candidate(
        id=option.id,
        workload=workload.name,
        weights=option.weights,
        deployment=option.deployment,
        capacities=capacity_of(option, workload),
        speculation=option.speculation,
        apart=option.apart,
    )
