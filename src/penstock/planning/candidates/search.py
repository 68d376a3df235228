"""Which deployments are worth considering? Everything that fits and meets the SLO, less what something else beats."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.catalog.accelerator import Accelerator
from penstock.errors import UsageError
from penstock.fleet.deployment import Deployment, Parallelism
from penstock.fleet.engine import EngineName, engine_defaults
from penstock.model import ModelSpec, cache_dtype
from penstock.model.spec import model_as_measured
from penstock.model.weight import FORMATS
from penstock.performance.memory.budget import fit
from penstock.planning.asked.plan import PartPlan, WorkloadPlan
from penstock.planning.asked.resolve import LeftOut
from penstock.planning.candidates.capacity import Capacity, CapacityOf, Option, mixed_rate

CHECKPOINT: Final = "checkpoint"
UNMEASURED: Final = "vllm"
"""The engine of a part nobody measured: its kin speak for it."""
_SCREEN_MARGIN: Final = 1.1
"""By how much a pool may carry more than the screen's closed loop: what is behind even so is not simulated."""
Step = Callable[[str], None]
"""Called with what is looked at next."""
EnginesOf = Callable[[str], Sequence[str]]
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

    @property
    def accelerator(self) -> Accelerator:
        """What it runs on."""
        return self.deployment.accelerator

    @property
    def devices(self) -> int:
        """Devices it takes from its nodes: a split that does not divide a node takes whole ones."""
        wanted, node = self.deployment.parallelism.devices, self.accelerator.node.devices
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
            id=self.id, weights=self.weights, deployment=self.deployment, measured_engine=self.measured_engine
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
    parts: Sequence[tuple[Accelerator, PartPlan]],
    capacity_of: CapacityOf,
    *,
    screen: CapacityOf | None = None,
    engines_of: EnginesOf = lambda _: (),
    step: Step = lambda _: None,
) -> Choice:
    """Place a workload on every part in every way, with every engine that was measured there."""
    kept: list[Candidate] = []
    left_out: list[LeftOut] = []
    considered = 0
    for accelerator, part in parts:
        step(accelerator.id)
        feasible, reason = _feasible(workload, model, accelerator, part, engines_of(accelerator.id) or (UNMEASURED,))
        considered += len({option.id for option in feasible})
        judged = [_judged(workload, option, screen or capacity_of) for option in feasible]
        useful = [entry for entry in judged if any(entry.rates)]
        if screen is not None:
            bounds = zip(feasible, judged, strict=True)
            useful = _simulated(workload, [pair for pair in bounds if any(pair[1].rates)], capacity_of)
        useful = undominated(_best_engines(workload, useful))
        if not useful:
            why = reason or (judged[0].capacities[0].grounds if judged else "nothing to place")
            left_out.append(LeftOut(what=f"{workload.name} on {accelerator.id}", why=why))
            continue
        kept += useful
    return Choice(candidates=tuple(kept), considered=considered, left_out=tuple(left_out))


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
    )


def _feasible(
    workload: WorkloadPlan, model: ModelSpec, accelerator: Accelerator, part: PartPlan, engines: Sequence[str]
) -> tuple[list[Option], str | None]:
    """List what fits the shortest requests, or the reason of the last thing that did not."""
    shortest = min(share.bucket.context_tokens for share in workload.shares)
    found: list[Option] = []
    reason = None
    for weights, spec in _stored(workload, model):
        # Engines widen what a checkpoint comes in; nobody converts weights to a format the part cannot multiply.
        emulated = () if spec is model else accelerator.emulated(spec.formats)
        if emulated:
            # What a part emulates has no predicted speed, so it is not offered.
            reason = f"{accelerator.id} has no datapath for {emulated[0]} weights"
            continue
        for tp in part.tp or _splits(accelerator):
            ident = f"{workload.name} {accelerator.id} tp{tp} {weights}"
            placed = {name: _placed(workload, spec, accelerator, tp, name) for name in {_settings(e) for e in engines}}
            fits = {name: fit(deployment, shortest) for name, deployment in placed.items()}
            for engine in engines:
                result = fits[_settings(engine)]
                if result.fits:
                    deployment = placed[_settings(engine)]
                    found.append(Option(id=ident, weights=weights, deployment=deployment, measured_engine=engine))
                elif result.obstacle is not None:
                    reason = result.obstacle.reason
    return found, reason


def _settings(engine: str) -> EngineName:
    """Whose settings and memory accounting an engine is taken to have: those of the two that were read."""
    return "sglang" if engine == "sglang" else "vllm"


def _stored(workload: WorkloadPlan, model: ModelSpec) -> Iterator[tuple[str, ModelSpec]]:
    seen = set()
    for name in workload.weights:
        if name == CHECKPOINT:
            spec = model
        elif name in FORMATS:
            spec = model_as_measured(model, name)
        else:
            raise UsageError(f"weights: '{name}' is not a format; write {CHECKPOINT}, {', '.join(FORMATS)}")
        label = next(iter(spec.formats), CHECKPOINT)
        if label not in seen:
            seen.add(label)
            yield label, spec


def _splits(accelerator: Accelerator) -> list[int]:
    """Powers of two up to a node: what engines run well, and sizes that add up in a node without gaps."""
    return [2**power for power in range(12) if 2**power <= accelerator.node.devices]


def _placed(
    workload: WorkloadPlan, spec: ModelSpec, accelerator: Accelerator, tp: int, settings: EngineName
) -> Deployment:
    return Deployment(
        model=spec,
        accelerator=accelerator,
        engine=engine_defaults(settings, accelerator, tp=tp),
        parallelism=Parallelism(tp=tp),
        cache_dtype=None if workload.kv == "auto" else cache_dtype(workload.kv),
    )
