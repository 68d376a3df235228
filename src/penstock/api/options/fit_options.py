"""Options of `fit`."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import TYPE_CHECKING

from penstock.api.options.model_options import ModelOptions
from penstock.api.options.option_fields import option, options

if TYPE_CHECKING:
    from penstock.api.options.argument_types import Tokens


@options
class FitOptions(ModelOptions):
    """A model, accelerators, a context length, and the engine's settings."""

    _: KW_ONLY
    context: Tokens | None = option(
        "Tokens per request, prompt and answer together: 4096, 32k, 1M. Default: 8k, or the model's limit if lower.",
        default=None,
    )
    tp: int | None = option("Tensor parallel ranks, the same on every accelerator in --on.", default=None, min=1)
    pp: int = option("Pipeline stages.", default=1, min=1)
    engine: str = option("Engine: vllm, sglang, vllm-atom, sglang-atom, atom or trtllm.", default="vllm")
    engine_version: str | None = option(
        "Release of the engine, such as 0.11.2. Defaults and memory accounting differ between releases.", default=None
    )
    memory_fraction: float | None = option(
        "Share of the device memory that the engine may use.", default=None, min=0.05, max=1.0
    )
    batched_tokens: int | None = option("Maximum tokens per step: max_num_batched_tokens.", default=None, min=1)
    sequences: int | None = option("Maximum requests per step (max_num_seqs).", default=None, min=1)
    starts: str | None = option(
        "Starts of an engine that you measured, with the size of the weights, for several models: 0.5GB=30s,16GB=75s. "
        "Default: published times.",
        default=None,
    )
    reloads: str | None = option(
        "Loads of weights into a live engine that you measured, for several models: 0.5GB=1s,16GB=9s. "
        "Default: published times.",
        default=None,
    )
    draft: bool = option("Load the checkpoint's own multi-token-prediction layers.", default=False)
