"""Computes whether a model fits in memory, and how much memory is left for the KV cache: `penstock.fit`."""

from collections.abc import Sequence
from dataclasses import dataclass

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
from penstock.api.options.fit_options import FitOptions
from penstock.api.options.option_fields import takes
from penstock.catalog.device_prices import DevicePrice, rent_of
from penstock.economics.rent_rates import rent_usd_per_gib_month
from penstock.errors import UnknownArchitecture, UsageError
from penstock.fleet import Deployment
from penstock.fleet.deployment import default_cache_dtype
from penstock.fleet.release import Release
from penstock.fleet.serving_engines import profile_of
from penstock.model import ModelSpec, Part
from penstock.performance.memory.budget import usual_context_tokens
from penstock.performance.memory.minimum_change import FitReport, report_fit
from penstock.report.fit.document import FitDocument
from penstock.report.fit.terminal import render_fit


@dataclass(frozen=True, kw_only=True, repr=False)
class FitAnswer(ApiAnswer):
    """Reports on whether a model fits, one for each accelerator."""

    document_type = FitDocument
    model: ModelSpec
    context_tokens: int
    reports: tuple[FitReport, ...]
    rents: tuple[DevicePrice | None, ...]
    """Rent of each accelerator by the hour, None if the catalog has no price."""

    @property
    def good(self) -> bool:
        """Return whether the model fits on every accelerator."""
        return all(report.fit.fits for report in self.reports)

    @property
    def kv_rents_usd_per_gib_month(self) -> list[float | None]:
        """Return the rent per month and GiB left for the KV cache, one for each accelerator."""
        return [_kv_rent(report, rent) for report, rent in zip(self.reports, self.rents, strict=True)]

    def rows(self) -> list[Row]:
        """Return one row per accelerator."""
        return [_row(report, rent) for report, rent in zip(self.reports, self.rents, strict=True)]

    def render(self, columns: int) -> RenderableType:
        """Return what `fit` prints."""
        return render_fit(
            self.model, self.reports, self.context_tokens, columns, (self.rents, self.kv_rents_usd_per_gib_month)
        )

    def _summary(self) -> tuple[str, Sequence[str]]:
        return self.model.name, [_piece(report) for report in self.reports]


@takes(FitOptions)
def fit(options: FitOptions) -> FitAnswer:
    """Compute whether a model fits, as `penstock fit` does: `fit("llama-3.1-70b", "mi300x,h100:2")`."""
    for name in ("starts", "reloads"):
        if getattr(options, name) is not None:
            raise UsageError(f"--{name} is for several models: `penstock fit A,B --on X`; leave it out for one")
    asked_tokens = None if options.context is None else tokens_choice(options.context)
    cache_dtype, targets = cache_choice(options.kv), counted_targets(options.on)
    try:
        spec = model_choice(options.model, options.precision)
    except UnknownArchitecture as reason:
        hint = "`penstock preflight` answers what needs no shape"
        raise UnknownArchitecture(f"not known here, nothing checked: {reason}; {hint}") from None
    if options.draft and Part.MTP not in spec.params_by_part:
        raise UsageError(f"--draft: {spec.name} has no multi-token-prediction layers of its own; drop this flag")
    context_tokens = asked_tokens or usual_context_tokens(spec)
    reports = []
    for accelerator, devices in targets:
        split = split_choice(accelerator, devices, tp=options.tp, pp=options.pp, dp=options.dp, ep=options.ep)
        engine = engine_choice(options, accelerator, split)
        deployment = Deployment(
            model=spec,
            accelerator=accelerator,
            engine=engine,
            parallelism=split,
            cache_dtype=cache_dtype or default_cache_dtype(spec, accelerator, engine.name, Release(engine.version)),
            speculative=options.draft,
        )
        reports.append(report_fit(deployment, context_tokens))
    rents = tuple(rent_of(accelerator) for accelerator, _ in targets)
    return FitAnswer(model=spec, context_tokens=context_tokens, reports=tuple(reports), rents=rents)


def _row(report: FitReport, rent: DevicePrice | None) -> Row:
    fit_, budget, capacity = report.fit, report.fit.budget, report.fit.capacity
    placed = fit_.deployment
    return {
        "accelerator": placed.accelerator.id,
        "devices": placed.parallelism.devices,
        "split": str(placed.parallelism),
        "engine": profile_of(placed.engine).name,
        "engine_version": placed.engine.version if placed.engine.stands_for is None else None,
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
        "kv_tokens_logged": None if capacity is None else capacity.logged_tokens,
        "concurrent_requests": None if capacity is None else capacity.concurrent_requests,
        "longest_context_tokens": None if capacity is None else capacity.longest_context_tokens,
        "fewest_devices": report.fewest_devices,
        "rent_usd_per_device_hour": None if rent is None else rent.usd_per_device,
        "rent_usd_per_kv_gib_month": _kv_rent(report, rent),
        "tier": report.tier,
        "flags": " ".join(report.flags) or None,
        "obstacle": None if fit_.obstacle is None else fit_.obstacle.reason,
    }


def _kv_rent(report: FitReport, rent: DevicePrice | None) -> float | None:
    """Return the rent per GiB left for the KV cache. None if nothing is left or the rent is unknown."""
    budget = report.fit.budget
    if rent is None or budget is None or not report.fit.fits or budget.kv_bytes <= 0:
        return None
    return rent_usd_per_gib_month(rent.usd_per_device, budget.kv_bytes)


def _piece(report: FitReport) -> str:
    placed = report.fit.deployment
    name = device_label(placed.accelerator.id, placed.parallelism.devices)
    if not report.fit.fits:
        return f"{name} does not fit"
    capacity = report.fit.capacity
    room = "" if capacity is None else f", {capacity.tokens:,} KV tokens"
    flags = f" with {' '.join(report.flags)}" if report.flags else ""
    return f"{name} {'fits' if report.fit.certain else 'is tight'}{flags}{room}"
