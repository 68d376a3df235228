"""Lists the weight formats and splits with which an accelerator holds a model, for each engine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from penstock.catalog.accelerator import Accelerator
from penstock.errors import UsageError
from penstock.fleet.deployment import Deployment, Parallelism
from penstock.fleet.serving_engines import measured_defaults
from penstock.model import ModelSpec, cache_dtype
from penstock.model.model_spec import model_as_measured
from penstock.model.weight import FORMATS
from penstock.performance.memory.budget import fit
from penstock.performance.prediction.speculation import Speculation
from penstock.planning.candidates.replica_capacity import Option, way_of
from penstock.planning.candidates.splits import linked_devices, splits_of, stages_of
from penstock.planning.spec.plan_types import AcceleratorPlan, WorkloadPlan

CHECKPOINT: Final = "checkpoint"
UNMEASURED: Final = "vllm"
"""Engine assumed for an accelerator without measurements, whose speed is predicted from similar accelerators."""
DraftsOf = Callable[[ModelSpec, str, str, int], Speculation | None]
"""Function from model, engine, vendor and number of ranks to speculative decoding with the checkpoint's draft layers.

The function returns None if the checkpoint has no draft layers.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOnAccelerator:
    """A workload, and an accelerator that may run it."""

    workload: WorkloadPlan
    accelerator: Accelerator
    planned: AcceleratorPlan
    drafts_of: DraftsOf

    @property
    def shortest_tokens(self) -> int:
        """Return the tokens of the shortest request; a replica that cannot hold this request serves nothing."""
        return min(share.bucket.context_tokens for share in self.workload.shares)

    def speculation(self, spec: ModelSpec, split: Parallelism, engine: str) -> Speculation | None:
        """Return the speculative decoding that uses the checkpoint's own draft layers.

        Return None if the plan forbids drafting, or if the split has pipeline stages, with which no engine drafts.
        """
        if not self.workload.mtp or split.pp > 1:
            return None
        return self.drafts_of(spec, engine, self.accelerator.vendor, split.dp)

    def deployment(self, spec: ModelSpec, split: Parallelism, engine: str, drafts: bool) -> Deployment:  # noqa: FBT001 - the fourth of four choices
        """Return the deployment of one replica with its engine's default settings."""
        return Deployment(
            model=spec,
            accelerator=self.accelerator,
            engine=measured_defaults(engine, self.accelerator, tp=split.tp, pp=split.pp),
            parallelism=split,
            cache_dtype=None if self.workload.kv == "auto" else cache_dtype(self.workload.kv),
            speculative=drafts,
        )


def options_of(
    model: ModelSpec, placing: WorkloadOnAccelerator, engines: Sequence[str]
) -> tuple[list[Option], str | None]:
    """Return the options that can hold the shortest request, and the reason for the last option that cannot."""
    found: list[Option] = []
    reason = None
    for weights, spec in weight_formats(placing.workload, model):
        emulated = emulated_format(placing, model, spec)
        if emulated is not None:
            reason = f"{placing.accelerator.id} has no datapath for {emulated} weights"
            continue
        held, obstacle = _split(weights, spec, placing, engines or (UNMEASURED,))
        found += held
        reason = obstacle or reason
    return found, reason


def engines_to_consider(asked: Sequence[str], *, measured: Sequence[str]) -> Sequence[str] | None:
    """Return the measured engines that the plan requests, or all measured engines if the plan requests none.

    Return None if the plan requests only engines that were not measured on the accelerator. If the accelerator has no
    measurements at all, any requested engine is allowed, and similar accelerators predict its speed.
    """
    if not asked or not measured:
        return asked or measured
    return [engine for engine in measured if engine in asked] or None


def unmeasured_reason(workload: WorkloadPlan, measured: Sequence[str]) -> str:
    """Return why none of the engines that a workload names is considered."""
    return f"not measured with {' or '.join(workload.engines)}; measured: {', '.join(measured)}"


def emulated_format(placing: WorkloadOnAccelerator, model: ModelSpec, spec: ModelSpec) -> str | None:
    """Return a weight format of the converted model that the accelerator only emulates; None if there is none.

    The speed of an emulated format cannot be predicted. Formats of the checkpoint itself are allowed, because engines
    convert them to a wider format.
    """
    return None if spec is model else next(iter(placing.accelerator.emulated_formats(spec.formats)), None)


def emulated_formats(model: ModelSpec, placing: WorkloadOnAccelerator) -> dict[str, str]:
    """Map each requested weight format that the accelerator only emulates to the reason why it is left out."""
    found = {
        weights: emulated_format(placing, model, spec) for weights, spec in weight_formats(placing.workload, model)
    }
    return {
        weights: f"{placing.accelerator.id} has no datapath for {emulated} weights"
        for weights, emulated in found.items()
        if emulated is not None
    }


def weight_formats(workload: WorkloadPlan, model: ModelSpec) -> Iterator[tuple[str, ModelSpec]]:
    """Yield the name of every requested weight format with the model in that format, each format once."""
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
    """Return the options with room for the shortest request, and the reason why the last rejected option has no room.

    Pipeline splits are tried only if the plan states no splits and the model does not fit on devices linked at full
    speed.
    """
    named = tuple(Parallelism(tp=tp) for tp in placing.planned.tp)
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
        for engine, drafts in product(engines, (False, True)):
            speculation = placing.speculation(spec, split, engine) if drafts else None
            if drafts and speculation is None:
                continue
            result = fit(placing.deployment(spec, split, engine, drafts), placing.shortest_tokens)
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
