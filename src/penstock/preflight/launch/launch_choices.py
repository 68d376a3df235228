"""The options of a launch that the user chooses."""

from dataclasses import dataclass

from penstock.fleet import Parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchChoices:
    """Launch options that the user chose."""

    parallelism: Parallelism
    cache_dtype: str | None = None
    context_tokens: int | None = None
    drafted_tokens: int = 0
    """Number of tokens that the checkpoint's multi-token-prediction layers draft per step."""
    quantization: str | None = None
    """Quantisation at load that the user requests. With None, the quantisation of the checkpoint is kept."""
