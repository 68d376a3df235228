"""Defines the values that describe a model in every JSON document."""

from typing import Annotated

from typing_extensions import TypedDict

from penstock.model import CacheDtype, ModelSpec
from penstock.report.drawing.json_document import at, build


class ModelDocument(TypedDict):
    """Summary of the model."""

    name: str
    architecture: str
    total_params: int
    active_params: int
    weight_bytes: int
    weight_bytes_by_format: Annotated[dict[str, int], at("formats")]
    quantisation: str | None
    cache_dtype: str
    cache_bytes_per_token: Annotated[int, at(lambda model: model.cache_bytes_per_token())]
    state_bytes_per_sequence: Annotated[int, at(lambda model: model.state_bytes_per_sequence())]
    layers_by_kind: Annotated[dict[str, int], at("layer_kinds")]
    max_context_tokens: int | None
    notes: list[str]


def model_document(model: ModelSpec, cache_dtype: CacheDtype) -> ModelDocument:
    """Describe a model with the given KV cache type.

    The given KV cache type may differ from the type that the checkpoint states.
    """
    return build(
        ModelDocument,
        model,
        cache_dtype=cache_dtype,
        cache_bytes_per_token=model.cache_bytes_per_token(cache_dtype),
        state_bytes_per_sequence=model.state_bytes_per_sequence(cache_dtype),
    )
