"""What does `fit --json` print? The same answer as the table, every number in bytes and tokens."""

from collections.abc import Sequence

from penstock.model import ModelSpec
from penstock.performance.minimum import FitReport
from penstock.report.plain import plain, plain_fields


def fit_document(model: ModelSpec, reports: Sequence[FitReport], context_tokens: int) -> dict[str, object]:
    """Collect the answer for all accelerators."""
    return {
        "model": model_document(model),
        "context_tokens": context_tokens,
        "fits": all(report.fit.fits for report in reports),
        "deployments": [_deployment(report) for report in reports],
        "method": "docs/methodology.md#memory",
    }


def model_document(model: ModelSpec) -> dict[str, object]:
    """Describe the model in a few values."""
    return {
        "name": model.name,
        "architecture": model.architecture,
        "total_params": model.total_params,
        "active_params": model.active_params,
        "weight_bytes": model.weight_bytes,
        "weight_bytes_by_format": plain(model.formats),
        "quantisation": model.quantisation,
        "cache_dtype": model.cache_dtype.value,
        "cache_bytes_per_token": model.cache_bytes_per_token(),
        "state_bytes_per_sequence": model.state_bytes_per_sequence(),
        "layers_by_kind": plain(model.layer_kinds),
        "max_context_tokens": model.max_context_tokens,
        "notes": list(model.notes),
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
        "obstacle": plain(fit.obstacle),
        "remedies": plain(report.remedies),
        "fewest_devices": report.fewest_devices,
        "fewest_split": report.fewest_split,
        "budget": None if fit.budget is None else {**plain_fields(fit.budget), "weight_bytes": fit.budget.weight_bytes},
        "capacity": plain(fit.capacity),
        "tier": report.tier,
        "notes": list(report.notes),
    }
