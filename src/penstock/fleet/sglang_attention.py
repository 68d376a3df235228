"""Chooses SGLang's attention backend on ROCm, and the memory that SGLang leaves free for it."""

from typing import Final

from penstock.fleet.deployment import Deployment
from penstock.fleet.release import Release

_AITER_MLA_HEADS: Final = frozenset({16, 128})
"""Numbers of heads for which SGLang uses AITER's MLA. For other numbers of heads, SGLang uses Triton."""
_TRITON_MODELS: Final = frozenset(
    {
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
        "Olmo2ForCausalLM",
    }
)
"""Architectures that SGLang serves with Triton on ROCm
(sglang@v0.5.18:python/sglang/srt/arg_groups/overrides.py#L1058-L1075 and #L1437-L1452)."""
_LONG_CONTEXT: Final = 8192
_AITER_SHARE: Final = 0.85
_WORKSPACE_SINCE: Final = Release("0.4.7")
"""First tag with the workspace (sglang@v0.4.7:python/sglang/srt/model_executor/model_runner.py#L423-L425). Read again
at v0.5.18 (server_args.py#L6031-L6034) and in 0.5.19 to 0.5.23 (arg_groups/attention_hook.py)."""


def rocm_backend(kinds: frozenset[str], architecture: str, heads: int) -> str:
    """Return the attention backend that SGLang takes on ROCm by itself.

    `kinds` are the kinds of attention of the model, and `heads` are its query heads over all ranks of a replica
    (`_get_default_attn_backend` in server_args.py and the models' own defaults in arg_groups/overrides.py at v0.5.18).
    """
    if "compressed" in kinds:
        return "dsv4"
    if "mla" in kinds and "sparse" in kinds:
        return "dsa"
    if "mla" in kinds:
        return "aiter" if heads in _AITER_MLA_HEADS else "triton"
    return "triton" if "sparse" in kinds or architecture in _TRITON_MODELS else "aiter"


def static_fraction(deployment: Deployment) -> float:
    """Return the memory fraction that SGLang uses for weights and cache.

    The backend `aiter` takes 15% of the fraction as its workspace if a request may be longer than 8,192 tokens.
    """
    engine, model, split = deployment.engine, deployment.model, deployment.parallelism
    if deployment.accelerator.vendor != "amd" or engine.release < _WORKSPACE_SINCE or engine.keeps_stated_fraction:
        return engine.memory_fraction
    heads = max(1, model.query_heads // (split.tp * split.dp))
    backend = engine.attention_backend or rocm_backend(model.attention_kinds, model.architecture, heads)
    limit = engine.context_limit_tokens or model.max_context_tokens or 0
    return engine.memory_fraction * (_AITER_SHARE if backend == "aiter" and limit > _LONG_CONTEXT else 1.0)
