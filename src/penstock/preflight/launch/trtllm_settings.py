"""Chooses the flags of `trtllm-serve`, and the YAML file for what it takes no flag for."""

from penstock.fleet.serving_engines import ENGINES
from penstock.preflight.launch.launch_choices import LaunchChoices
from penstock.preflight.launch.setting import Setting

CONFIG_FILE = "trtllm.yaml"


def trtllm_settings(asked: LaunchChoices) -> tuple[list[Setting], str]:
    """Return the flags of `trtllm-serve`, and the text of its YAML file, which is empty if flags are enough."""
    split, flags = asked.parallelism, list[Setting]()
    # As in SGLang, attention ranks are a part of the tensor-parallel ranks.
    ranks = split.tp * split.dp
    if ranks > 1:
        flags.append(Setting(name="tp-size", value=str(ranks), why=f"split every layer over {ranks} devices"))
    if split.pp > 1:
        flags.append(Setting(name="pp-size", value=str(split.pp), why=f"put the layers in {split.pp} stages"))
    if split.expert_parallel:
        flags.append(Setting(name="ep-size", value=str(ranks), why="each device holds whole experts"))
    if asked.context_tokens is not None:
        flags.append(Setting(name="max-seq-len", value=str(asked.context_tokens), why="the requested context"))
    lines = []
    if split.dp > 1:
        lines.append("enable_attention_dp: true")
    if asked.cache_dtype is not None:
        lines += ["kv_cache_config:", f"  dtype: {_cache(asked.cache_dtype)}"]
    if asked.drafted_tokens:
        lines += ["speculative_config:", "  decoding_type: MTP", f"  max_draft_len: {asked.drafted_tokens}"]
    if lines:
        why = f"{ENGINES['trtllm'].label} reads these settings from a file, not from flags"
        flags.append(Setting(name="extra-llm-api-options", value=CONFIG_FILE, why=why))
    return flags, "".join(f"{line}\n" for line in lines)


def _cache(asked: str) -> str:
    return "fp8" if asked.startswith("fp8") else "auto"
