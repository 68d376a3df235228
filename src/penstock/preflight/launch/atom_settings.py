"""Chooses the flags and variables of ATOM: as a server, and as a plug-in of vLLM and SGLang."""

from penstock.preflight.launch.launch_choices import LaunchChoices
from penstock.preflight.launch.setting import Setting

_SHARED_MEMORY = Setting(
    name="MORI_SHMEM_MODE", value="ISOLATION", why="expert parallelism in ATOM needs it (ATOM's recipe TBO.md)"
)


def atom_server_settings(asked: LaunchChoices) -> tuple[list[Setting], list[Setting]]:
    """Return the flags and variables of ATOM's own server for a split, a KV cache and a context."""
    split, flags, variables = asked.parallelism, list[Setting](), list[Setting]()
    # With DP attention, ATOM turns the tensor-parallel ranks into attention ranks.
    flattened = split.tp == 1 and split.dp > 1
    tp, dp = (split.dp, 1) if flattened else (split.tp, split.dp)
    if tp > 1:
        why = f"{tp} attention ranks share the experts" if flattened else f"split every layer over {tp} devices"
        flags.append(Setting(name="tensor-parallel-size", value=str(tp), why=why))
    if flattened:
        flags.append(Setting(name="enable-dp-attention", value=None, why="ranks keep whole attention layers"))
    if dp > 1:
        flags.append(Setting(name="data-parallel-size", value=str(dp), why=f"{dp} attention ranks share the experts"))
    if split.pp > 1:
        why = f"put the layers in {split.pp} stages"
        flags.append(Setting(name="pipeline-parallel-size", value=str(split.pp), why=why))
    if split.expert_parallel:
        flags.append(Setting(name="enable-expert-parallel", value=None, why="each device holds whole experts"))
        variables.append(_SHARED_MEMORY)
    if asked.context_tokens is not None:
        flags.append(Setting(name="max-model-len", value=str(asked.context_tokens), why="the requested context"))
    if (spelled := _cache(asked.cache_dtype)) is not None:
        flags.append(Setting(name="kv-cache-dtype", value=spelled, why="the requested KV cache dtype"))
    return flags, variables


def atom_drafting(drafted_tokens: int) -> list[Setting]:
    """Return the flags with which ATOM's server drafts with the checkpoint's multi-token-prediction layers."""
    why = f"the checkpoint's own layers draft {drafted_tokens} tokens a step"
    return [
        Setting(name="method", value="mtp", why=why),
        Setting(name="num-speculative-tokens", value=str(drafted_tokens), why="drafted one after another"),
    ]


def sglang_plugin_variables() -> list[Setting]:
    """Return the variables that make SGLang use ATOM's model package."""
    return [
        Setting(
            name="SGLANG_EXTERNAL_MODEL_PACKAGE",
            value="atom.plugin.sglang.models",
            why="makes SGLang load ATOM's models",
        ),
        Setting(name="SGLANG_USE_AITER", value="1", why="AMD's kernels; ATOM's recipes set it"),
    ]


def _cache(asked: str | None) -> str | None:
    """Return ATOM's name of a KV cache type. ATOM has bf16, which is the default, and fp8."""
    if asked is None:
        return None
    return {"bfloat16": "bf16", "fp8_e4m3": "fp8"}.get(asked, asked)
