"""Reads speculative decoding from a launch: what drafts, and how many tokens per step."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.preflight.facts.situation import Launch

_OWN_LAYERS: Final = ("NEXTN", "EAGLE")
"""Algorithms of SGLang that draft with the checkpoint's own layers, unless the launch names a draft model."""
_DRAFTER_FLAGS: Final = ("speculative-draft-model-path", "speculative-draft-model")


ARCHITECTURES_WITHOUT_MTP: Final = frozenset(
    {
        *("Gemma2ForCausalLM", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", "GptOssForCausalLM"),
        *("Llama4ForConditionalGeneration", "LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"),
        *("Phi3ForCausalLM", "Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen2_5_VLForConditionalGeneration"),
        *("Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Qwen3VLForConditionalGeneration"),
        "Qwen3VLMoeForConditionalGeneration",
    }
)
"""Architectures that no release of vLLM turns into a draft of their own layers (hf_config_override in
vllm/config/speculative.py, read at v0.14.0 to v0.27.1 and in 0.28.0 to 0.33.0). Their config then ends in
"Unsupported speculative method: 'mtp'"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """What drafts the tokens of a launch."""

    method: str
    tokens: int
    """Tokens drafted per step. 0 if the launch does not state the number."""
    own_layers: bool
    """Whether the checkpoint's own multi-token-prediction layers draft."""
    model: str | None
    """Separate model that drafts. None if there is none."""

    @property
    def uncounted(self) -> str | None:
        """What is missing in the predicted memory, or None if the memory of the drafts is counted."""
        return None if self.model is None else f"the memory of the draft model {self.model[:80]} is not counted"


def drafting_of(launch: Launch) -> Drafting | None:
    """Return the speculative decoding of a launch, or None if nothing is drafted."""
    config = speculative_config(launch.flags)
    if config is not None:
        method = str(config.get("method") or "draft_model")
        own, model = method.endswith("mtp"), config.get("model")
        return Drafting(
            method=method,
            tokens=drafted_count(config),
            own_layers=own,
            model=str(model) if isinstance(model, str) and not own else None,
        )
    algorithm = launch.flag("speculative-algorithm", "method")
    if algorithm is None:
        return None
    model = launch.flag(*_DRAFTER_FLAGS)
    drafted = launch.flag("speculative-num-steps", "num-speculative-tokens")
    own = algorithm.upper() in _OWN_LAYERS or algorithm.endswith("mtp")
    return Drafting(method=algorithm, tokens=_count(drafted), own_layers=own and model is None, model=model)


def speculative_config(flags: Mapping[str, str]) -> dict[str, object] | None:
    """Return vLLM's JSON for speculative decoding, or its dotted form. Return None if there is none.

    A value that is not a JSON object is reported by the check of flag values.
    """
    raw = flags.get("speculative-config")
    if raw is None:
        dotted = {
            name.partition(".")[2]: value for name, value in flags.items() if name.startswith("speculative-config.")
        }
        return {name.replace("-", "_"): value for name, value in dotted.items()} or None
    try:
        config = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return config if isinstance(config, dict) else None


def drafted_count(config: Mapping[str, object]) -> int:
    """Return the tokens that vLLM's JSON for speculative decoding asks for; 0 if it does not state the number."""
    return _count(config.get("num_speculative_tokens"))


def _count(value: object) -> int:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) <= 4 else 0  # no launch drafts more
