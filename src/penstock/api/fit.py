"""Checks whether a model fits in memory, and the space left for the KV cache: `penstock.fit`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import RenderableType

from penstock.api.answer import ApiAnswer, Row, counted
from penstock.api.arguments.choices import (
    AskedModel,
    Targets,
    Tokens,
    at_least,
    cache_choice,
    counted_targets,
    engine_choice,
    model_choice,
    split_choice,
    tokens_choice,
)
from penstock.catalog.accelerator import Accelerator
from penstock.errors import UsageError
from penstock.fleet import Deployment, Engine, Parallelism, engine_defaults
from penstock.model import ModelSpec, Part
from penstock.performance.memory.budget import usual_context_tokens
from penstock.performance.memory.minimum import FitReport, report_fit
from penstock.performance.memory.tuning import TUNABLE, Tunable
from penstock.report.fit.document import FitDocument
from penstock.report.fit.terminal import render_fit


@dataclass(frozen=True, kw_only=True, repr=False)
class FitAnswer(ApiAnswer):
    """Whether a model fits, one report per accelerator."""

    document_type = FitDocument
    model: ModelSpec
    context_tokens: int
    reports: tuple[FitReport, ...]

    @property
    def good(self) -> bool:
        """Whether the model fits on every accelerator."""
        return all(report.fit.fits for report in self.reports)

    def rows(self) -> list[Row]:
        """Return one row per accelerator."""
        return [_row(report) for report in self.reports]

    def drawn(self, columns: int) -> RenderableType:
        """Draw what `fit` prints."""
        return render_fit(self.model, self.reports, self.context_tokens, columns)

    def _said(self) -> tuple[str, Sequence[str]]:
        return self.model.name, [_piece(report) for report in self.reports]


def fit(
    model: AskedModel,
    on: Targets,
    *,
    context: Tokens | None = None,
    precision: str | None = None,
    kv: str = "auto",
    tp: int | None = None,
    pp: int = 1,
    dp: int = 1,
    ep: bool = False,
    engine: str = "vllm",
    engine_version: str | None = None,
    memory_fraction: float | None = None,
    batched_tokens: int | None = None,
    sequences: int | None = None,
    draft: bool = False,
) -> FitAnswer:
    """Does it fit, and what is left for the KV cache? As `penstock fit`: `fit("llama-3.1-70b", "mi300x,h100:2")`."""
    at_least(1, tp=tp, pp=pp, dp=dp, batched_tokens=batched_tokens, sequences=sequences)
    asked_tokens = None if context is None else tokens_choice(context)
    cache_dtype, targets = cache_choice(kv), counted_targets(on)
    spec = model_choice(model, precision)
    if draft and Part.MTP not in spec.params_by_part:
        raise UsageError(f"--draft: {spec.name} has no multi-token-prediction layers of its own")
    context_tokens = asked_tokens or usual_context_tokens(spec)
    settings = _Settings(engine, engine_version, memory_fraction, batched_tokens, sequences)
    reports = []
    for part, devices in targets:
        split = split_choice(part, devices, tp=tp, pp=pp, dp=dp, ep=ep)
        deployment = Deployment(
            model=spec,
            accelerator=part,
            engine=settings.on(part, split),
            parallelism=split,
            cache_dtype=cache_dtype,
            speculative=draft,
        )
        reports.append(report_fit(deployment, context_tokens, free=settings.free))
    return FitAnswer(model=spec, context_tokens=context_tokens, reports=tuple(reports))


@dataclass(frozen=True, slots=True)
class _Settings:
    """The engine settings given as arguments; the engine's defaults apply to the others."""

    name: str
    version: str | None
    memory_fraction: float | None
    batched_tokens: int | None
    sequences: int | None

    @property
    def free(self) -> frozenset[Tunable]:
        """Settings without an argument, which may be tuned so that the model fits."""
        asked = {"memory_fraction": self.memory_fraction, "max_batched_tokens": self.batched_tokens}
        return frozenset(name for name in TUNABLE if asked[name] is None)

    def on(self, part: Accelerator, split: Parallelism) -> Engine:
        """Build the engine for an accelerator and split."""
        usual = engine_defaults(engine_choice(self.name), part, version=self.version, tp=split.tp, pp=split.pp)
        return replace(
            usual,
            memory_fraction=usual.memory_fraction if self.memory_fraction is None else float(self.memory_fraction),
            max_batched_tokens=self.batched_tokens or usual.max_batched_tokens,
            max_sequences=self.sequences or usual.max_sequences,
        )


def _row(report: FitReport) -> Row:
    fit_, budget, capacity = report.fit, report.fit.budget, report.fit.capacity
    placed = fit_.deployment
    return {
        "accelerator": placed.accelerator.id,
        "devices": placed.parallelism.devices,
        "split": str(placed.parallelism),
        "engine": placed.engine.name,
        "engine_version": placed.engine.version,
        "cache_dtype": placed.chosen_cache_dtype.value,
        "context_tokens": fit_.context_tokens,
        "fits": fit_.fits,
        "certain": fit_.certain,
        "device_bytes": None if budget is None else budget.device_bytes,
        "weight_bytes": None if budget is None else budget.weight_bytes,
        "kv_bytes": None if budget is None else budget.kv_bytes,
        "kv_tokens": None if capacity is None else capacity.tokens,
        "kv_tokens_p10": None if capacity is None else capacity.low_tokens,
        "kv_tokens_p90": None if capacity is None else capacity.high_tokens,
        "concurrent_requests": None if capacity is None else capacity.concurrent_requests,
        "longest_context_tokens": None if capacity is None else capacity.longest_context_tokens,
        "fewest_devices": report.fewest_devices,
        "tier": report.tier,
        "flags": " ".join(report.flags) or None,
        "obstacle": None if fit_.obstacle is None else fit_.obstacle.reason,
    }


def _piece(report: FitReport) -> str:
    placed = report.fit.deployment
    name = counted(placed.accelerator.id, placed.parallelism.devices)
    if not report.fit.fits:
        return f"{name} does not fit"
    capacity = report.fit.capacity
    room = "" if capacity is None else f", {capacity.tokens:,} KV tokens"
    flags = f" with {' '.join(report.flags)}" if report.flags else ""
    return f"{name} {'fits' if report.fit.certain else 'is tight'}{flags}{room}"
