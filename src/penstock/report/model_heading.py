"""The values that describe a model in every JSON document."""

from penstock.model import CacheDtype, ModelSpec
from penstock.report.drawing.plain_json import plain


def model_document(model: ModelSpec, cache_dtype: CacheDtype | None = None) -> dict[str, object]:
    """Describe the model in a few values; `cache_dtype` overrides the KV cache type of the checkpoint."""
    return {
        "name": model.name,
        "architecture": model.architecture,
        "total_params": model.total_params,
        "active_params": model.active_params,
        "weight_bytes": model.weight_bytes,
        "weight_bytes_by_format": plain(model.formats),
        "quantisation": model.quantisation,
        "cache_dtype": (cache_dtype or model.cache_dtype).value,
        "cache_bytes_per_token": model.cache_bytes_per_token(cache_dtype),
        "state_bytes_per_sequence": model.state_bytes_per_sequence(cache_dtype),
        "layers_by_kind": plain(model.layer_kinds),
        "max_context_tokens": model.max_context_tokens,
        "notes": list(model.notes),
    }
