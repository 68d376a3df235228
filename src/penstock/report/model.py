"""How is a model named in a document? The few values every JSON output opens with."""

from penstock.model import ModelSpec
from penstock.report.drawing.plain import plain


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
