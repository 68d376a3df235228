"""Types shared by documents."""

from typing_extensions import TypedDict


class ModelDocument(TypedDict):
    """The model, in a few values."""

    name: str
    architecture: str
    total_params: int
    active_params: int
    weight_bytes: int
    weight_bytes_by_format: dict[str, int]
    quantisation: str | None
    cache_dtype: str
    cache_bytes_per_token: int
    state_bytes_per_sequence: int
    layers_by_kind: dict[str, int]
    max_context_tokens: int | None
    notes: list[str]
