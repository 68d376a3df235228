"""Computes which models fit together on one device, and what is left for their KV caches: `penstock.fit_together`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType

from penstock.api.answer import ApiAnswer, Row, device_label
from penstock.api.arguments.choices import (
    cache_choice,
    counted_targets,
    engine_choice,
    model_choice,
    split_choice,
    tokens_choice,
)
from penstock.api.arguments.host_loads_argument import host_loads_choice
from penstock.api.options.fit_options import FitOptions
from penstock.api.options.option_fields import takes
from penstock.catalog.accelerator import Accelerator
from penstock.errors import UsageError
from penstock.fleet import Deployment, Parallelism
from penstock.fleet.serving_engines import ENGINES, serving_engine
from penstock.model import ModelSpec
from penstock.performance.memory.budget import usual_context_tokens
from penstock.performance.residency.packing import pack
from penstock.performance.residency.shared_devices import ModelOnDevice, SharedDevices, describe_packing
from penstock.report.fit.together import FitTogetherDocument, render_together


@dataclass(frozen=True, kw_only=True, repr=False)
class FitTogetherAnswer(ApiAnswer):
    """Which models share a device, one result for each accelerator."""

    document_type = FitTogetherDocument
    models: tuple[str, ...]
    shared: tuple[SharedDevices, ...]

    @property
    def good(self) -> bool:
        """Return whether all models fit together on one device of every accelerator."""
        return all(one.together for one in self.shared)

    def rows(self) -> list[Row]:
        """Return one row per model and accelerator."""
        return [_row(one, model) for one in self.shared for model in one.models]

    def render(self, columns: int) -> RenderableType:
        """Return what `fit` prints for several models."""
        return render_together(self.shared, columns)

    def _summary(self) -> tuple[str, Sequence[str]]:
        pieces = [f"{device_label(one.accelerator, one.devices)} " + _phrase(one) for one in self.shared]
        return f"{len(self.models)} models", pieces


@takes(FitOptions)
def fit_together(options: FitOptions) -> FitTogetherAnswer:
    """Compute which models fit together: `fit_together("llama-3.1-8b,qwen3-14b", "mi355x")`.

    Models that do not fit on one device are packed on the fewest devices that hold them.
    """
    asked = options.model
    names = [name.strip() for name in asked.split(",")] if isinstance(asked, str) else [asked]
    if not all(names):
        raise UsageError("a model's name is empty; write the names with one comma between them")
    if options.draft or options.pp > 1 or options.dp > 1 or options.ep:
        raise UsageError("models share one device or one tensor-parallel group; leave out --draft, --pp, --dp and --ep")
    specs = [model_choice(name, options.precision) for name in names]
    if len({spec.name for spec in specs}) < len(specs):
        raise UsageError("two models have the same name; name each model once")
    starts, reloads = host_loads_choice("starts", options.starts), host_loads_choice("reloads", options.reloads)
    shared = []
    for accelerator, devices in counted_targets(options.on):
        split = split_choice(accelerator, devices, tp=options.tp, pp=1, dp=1, ep=False)
        placed = [_deployment(options, spec, accelerator, split) for spec in specs]
        contexts = [_context_tokens(options, spec) for spec in specs]
        server = ENGINES[serving_engine(options.engine)].server
        shared.append(describe_packing(placed, pack(placed, contexts), server, starts=starts, reloads=reloads))
    return FitTogetherAnswer(models=tuple(spec.name for spec in specs), shared=tuple(shared))


def names_several(model: str) -> bool:
    """Return whether a text names several models: it has commas, and no file or directory has this name."""
    return "," in model and not Path(model).exists()


def _context_tokens(options: FitOptions, spec: ModelSpec) -> int:
    asked = None if options.context is None else tokens_choice(options.context)
    limit = spec.max_context_tokens
    return usual_context_tokens(spec) if asked is None else min(asked, limit or asked)


def _deployment(options: FitOptions, spec: ModelSpec, accelerator: Accelerator, split: Parallelism) -> Deployment:
    return Deployment(
        model=spec,
        accelerator=accelerator,
        engine=engine_choice(options, accelerator, split),
        parallelism=split,
        cache_dtype=cache_choice(options.kv),
    )


def _phrase(shared: SharedDevices) -> str:
    if shared.too_large:
        return f"does not hold {', '.join(shared.too_large)}"
    return "holds all" if shared.together else f"holds all on {shared.groups} of them"


def _row(shared: SharedDevices, model: ModelOnDevice) -> Row:
    wake, new = model.wake, model.start
    return {
        "accelerator": shared.accelerator,
        "devices": shared.devices,
        "group": model.group,
        "model": model.name,
        "context_tokens": model.context_tokens,
        "weight_bytes": model.weight_bytes,
        "engine_bytes": model.engine_bytes,
        "kv_bytes": model.kv_bytes,
        "kv_tokens": model.kv_tokens,
        "concurrent_requests": model.concurrent_requests,
        "asleep_bytes": model.asleep_bytes,
        "memory_fraction": model.memory_fraction,
        "wake_s": None if wake is None else wake.median_s,
        "wake_s_p10": None if wake is None else wake.low_s,
        "wake_s_p90": None if wake is None else wake.high_s,
        "start_s": None if new is None else new.median_s,
        "start_s_p10": None if new is None else new.low_s,
        "start_s_p90": None if new is None else new.high_s,
    }
