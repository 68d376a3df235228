"""What could be started at all? Every way to store a model and split it over a part that holds it, engine by engine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from penstock.catalog.accelerator import Accelerator
from penstock.errors import UsageError
from penstock.fleet.deployment import Deployment, Parallelism
from penstock.fleet.engines import EngineName, engine_defaults
from penstock.model import ModelSpec, cache_dtype
from penstock.model.model_spec import model_as_measured
from penstock.model.weight import FORMATS
from penstock.performance.memory.budget import MemoryFit, fit
from penstock.performance.prediction.predict_deployment import Speculation
from penstock.planning.candidates.replica_capacity import Option, way_of
from penstock.planning.candidates.splits import linked_devices, splits_of, stages_of
from penstock.planning.spec.plan_types import AcceleratorPlan, WorkloadPlan

CHECKPOINT: Final = "checkpoint"
UNMEASURED: Final = "vllm"
"""The engine of a part nobody measured: its kin speak for it."""
DraftsOf = Callable[[ModelSpec, str, str, int], Speculation | None]
"""What a checkpoint's own draft layers give with an engine on a vendor's part, in so many ranks; None where it has
none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOnAccelerator:
    """A workload that is placed on a part."""

    workload: WorkloadPlan
    accelerator: Accelerator
    part: AcceleratorPlan
    drafts_of: DraftsOf

    @property
    def shortest_tokens(self) -> int:
        """Of a request: what holds none of these serves nothing."""
        return min(share.bucket.context_tokens for share in self.workload.shares)

    def speculation(self, spec: ModelSpec, split: Parallelism, engine: str) -> Speculation | None:
        """Draft with the checkpoint's own layers; no engine does so across the stages of a pipeline."""
        if not self.workload.mtp or split.pp > 1:
            return None
        return self.drafts_of(spec, engine, self.accelerator.vendor, split.dp)

    def deployment(self, spec: ModelSpec, split: Parallelism, settings: EngineName, drafts: bool) -> Deployment:  # noqa: FBT001 - the fourth of four choices
        """Describe one replica with its engine's defaults."""
        return Deployment(
            model=spec,
            accelerator=self.accelerator,
            engine=engine_defaults(settings, self.accelerator, tp=split.tp, pp=split.pp),
            parallelism=split,
            cache_dtype=None if self.workload.kv == "auto" else cache_dtype(self.workload.kv),
            speculative=drafts,
        )


def options_of(
    model: ModelSpec, placing: WorkloadOnAccelerator, engines: Sequence[str]
) -> tuple[list[Option], str | None]:
    """List what holds the shortest requests, and the reason of the last thing that does not."""
    found: list[Option] = []
    reason = None
    for weights, spec in stored(placing.workload, model):
        emulated = emulated_format(placing, model, spec)
        if emulated is not None:
            reason = f"{placing.accelerator.id} has no datapath for {emulated} weights"
            continue
        held, obstacle = _split(weights, spec, placing, engines or (UNMEASURED,))
        found += held
        reason = obstacle or reason
    return found, reason


def emulated_format(placing: WorkloadOnAccelerator, model: ModelSpec, spec: ModelSpec) -> str | None:
    """Name a format nobody converts weights to for this part: what it emulates has no predicted speed.

    Engines widen what a checkpoint comes in.
    """
    return None if spec is model else next(iter(placing.accelerator.emulated(spec.formats)), None)


def stored(workload: WorkloadPlan, model: ModelSpec) -> Iterator[tuple[str, ModelSpec]]:
    """The model in every weight format asked for."""
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


def _split(
    weights: str, spec: ModelSpec, placing: WorkloadOnAccelerator, engines: Sequence[str]
) -> tuple[list[Option], str | None]:
    """Split in every way that is considered; in stages only where nothing else holds the model."""
    named = tuple(Parallelism(tp=tp) for tp in placing.part.tp)
    found, reason = _fitting(weights, spec, placing, named or splits_of(spec, placing.accelerator), engines)
    linked = linked_devices(placing.accelerator)
    if named or any(option.deployment.parallelism.devices <= linked for option in found):
        return found, reason
    staged, _ = _fitting(weights, spec, placing, stages_of(placing.accelerator), engines)
    return found + staged, reason


def _fitting(
    weights: str, spec: ModelSpec, placing: WorkloadOnAccelerator, splits: Sequence[Parallelism], engines: Sequence[str]
) -> tuple[list[Option], str | None]:
    found: list[Option] = []
    reason = None
    for split in splits:
        fits: dict[tuple[EngineName, bool], MemoryFit] = {}
        for engine, drafts in product(engines, (False, True)):
            speculation = placing.speculation(spec, split, engine) if drafts else None
            if drafts and speculation is None:
                continue
            key = settings_of(engine), drafts
            if key not in fits:
                fits[key] = fit(placing.deployment(spec, split, *key), placing.shortest_tokens)
            result = fits[key]
            if result.fits:
                way = way_of(result.deployment, speculation)
                found.append(
                    Option(
                        id=f"{placing.workload.name} {placing.accelerator.id} {way} {weights}",
                        weights=weights,
                        deployment=result.deployment,
                        measured_engine=engine,
                        speculation=speculation,
                    )
                )
            elif result.obstacle is not None:
                reason = result.obstacle.reason
    return found, reason


def settings_of(engine: str) -> EngineName:
    """Whose settings and memory accounting an engine is taken to have: those of the two that were read."""
    return "sglang" if engine == "sglang" else "vllm"
