"""Which deployments are worth considering? Everything that fits and meets the SLO, less what something else beats."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.catalog.accelerator import Accelerator
from penstock.errors import UsageError
from penstock.fleet.deployment import Deployment, Parallelism
from penstock.fleet.engine import engine_defaults
from penstock.model import ModelSpec, cache_dtype
from penstock.model.spec import model_as_measured
from penstock.model.weight import FORMATS
from penstock.performance.memory.budget import fit
from penstock.planning.asked.plan import PartPlan, WorkloadPlan
from penstock.planning.asked.resolve import LeftOut
from penstock.planning.candidates.capacity import Capacity, CapacityOf

CHECKPOINT: Final = "checkpoint"
Step = Callable[[str], None]
"""Called with what is looked at next."""


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
    step: Step = lambda _: None,
) -> Choice:
    """Place a workload on every part in every way; what meets the SLO at no rate under a quick screen is not simulated.

    Only dominance under `capacity_of` itself drops a deployment: without queues two small replicas beat a large one
    that carries more once requests queue, and the cheapest fleet runs the large one.
    """
    kept: list[Candidate] = []
    left_out: list[LeftOut] = []
    considered = 0
    for accelerator, part in parts:
        step(accelerator.id)
        feasible, reason = _feasible(workload, model, accelerator, part)
        considered += len(feasible)
        judged = [_judged(workload, *entry, screen or capacity_of) for entry in feasible]
        useful = [entry for entry in judged if any(entry.rates)]
        if useful and screen is not None:
            useful = [_judged(workload, entry.id, entry.weights, entry.deployment, capacity_of) for entry in useful]
        useful = undominated([entry for entry in useful if any(entry.rates)])
        if not useful:
            why = reason or (judged[0].capacities[0].grounds if judged else "nothing to place")
            left_out.append(LeftOut(what=f"{workload.name} on {accelerator.id}", why=why))
            continue
        kept += useful
    return Choice(candidates=tuple(kept), considered=considered, left_out=tuple(left_out))


def undominated(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Drop what other candidates of the same workload and part beat: as many devices or fewer, and no length slower.

    Several copies of a smaller replica may stand for a larger one: sizes divide a node, so they fit where it fits.
    """
    kept: list[Candidate] = []
    for one in sorted(candidates, key=lambda entry: (entry.devices, -sum(entry.rates), entry.id)):
        if not any(_beats(other, one) for other in kept):
            kept.append(one)
    return kept


def _beats(other: Candidate, one: Candidate) -> bool:
    copies = one.devices // other.devices
    same = (other.workload, other.accelerator.id) == (one.workload, one.accelerator.id)
    return same and copies > 0 and all(b * copies >= a for a, b in zip(one.rates, other.rates, strict=True))


def _judged(
    workload: WorkloadPlan, ident: str, weights: str, deployment: Deployment, capacity_of: CapacityOf
) -> Candidate:
    return Candidate(
        id=ident,
        workload=workload.name,
        weights=weights,
        deployment=deployment,
        capacities=tuple(capacity_of(deployment, share.bucket, workload.slo) for share in workload.shares),
    )


def _feasible(
    workload: WorkloadPlan, model: ModelSpec, accelerator: Accelerator, part: PartPlan
) -> tuple[list[tuple[str, str, Deployment]], str | None]:
    """List what fits the shortest requests, or the reason of the last thing that did not."""
    shortest = min(share.bucket.context_tokens for share in workload.shares)
    found, reason = [], None
    for weights, spec in _stored(workload, model):
        # Engines widen what a checkpoint comes in; nobody converts weights to a format the part cannot multiply.
        emulated = () if spec is model else accelerator.emulated(spec.formats)
        if emulated:
            # What a part emulates has no predicted speed, so it is not offered.
            reason = f"{accelerator.id} has no datapath for {emulated[0]} weights"
            continue
        for tp in part.tp or _splits(accelerator):
            placed = _placed(workload, spec, accelerator, tp)
            result = fit(placed, shortest)
            if result.fits:
                found.append((f"{workload.name} {accelerator.id} tp{tp} {weights}", weights, placed))
            elif result.obstacle is not None:
                reason = result.obstacle.reason
    return found, reason


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


def _placed(workload: WorkloadPlan, spec: ModelSpec, accelerator: Accelerator, tp: int) -> Deployment:
    return Deployment(
        model=spec,
        accelerator=accelerator,
        engine=engine_defaults("vllm", accelerator, tp=tp),
        parallelism=Parallelism(tp=tp),
        cache_dtype=None if workload.kv == "auto" else cache_dtype(workload.kv),
    )
