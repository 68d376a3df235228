"""JSON document of `fit --json`: the values of the table, in bytes and tokens."""

from collections.abc import Sequence
from typing import Final

from penstock.model import ModelSpec
from penstock.performance.memory.minimum import FitReport
from penstock.report.drawing.plain_json import plain, plain_fields
from penstock.report.model_heading import model_document

SCHEMA: Final = "penstock.fit/1"
"""Schema version. It changes if a field is renamed, removed or redefined; new fields do not change it."""


def fit_document(model: ModelSpec, reports: Sequence[FitReport], context_tokens: int) -> dict[str, object]:
    """Collect the fit of all accelerators."""
    return {
        "schema": SCHEMA,
        "model": model_document(model),
        "context_tokens": context_tokens,
        "fits": all(report.fit.fits for report in reports),
        "deployments": [_deployment(report) for report in reports],
    }


def _deployment(report: FitReport) -> dict[str, object]:
    fit = report.fit
    deployment = fit.deployment
    return {
        "accelerator": deployment.accelerator.id,
        "devices": deployment.parallelism.devices,
        "parallelism": plain(deployment.parallelism),
        "engine": plain(deployment.engine),
        "cache_dtype": deployment.chosen_cache_dtype.value,
        "fits": fit.fits,
        "certain": fit.certain,
        "flags": list(report.flags),
        "with_defaults": plain(report.with_defaults),
        "obstacle": plain(fit.obstacle),
        "remedies": plain(report.remedies),
        "fewest_devices": report.fewest_devices,
        "fewest_split": report.fewest_split,
        "budget": None if fit.budget is None else {**plain_fields(fit.budget), "weight_bytes": fit.budget.weight_bytes},
        "capacity": plain(fit.capacity),
        "tier": report.tier,
        "notes": list(report.notes),
    }
