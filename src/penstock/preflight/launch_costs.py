"""Prices the settings of a launch that slow it down, relative to the settings with which engines were measured.

Published measurements are taken to run with the fastest settings: AITER and its attention on AMD, and graphs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.model.sequence_mixers import GroupedAttention
from penstock.performance.prediction.predict_deployment import Prediction, Range
from penstock.preflight.facts.drafting import drafting_of
from penstock.preflight.preflight_result import Preflight

_AITER_CHIPS: Final = ("gfx942", "gfx950")
_KERNEL_SKIPPED: Final = "attention-paged-kernel-skipped"
"""Rule that says when ROCM_ATTN decodes without its hand-written kernel."""

_PRICED_CACHES: Final = ("bf16", "fp16", "fp8")
"""KV cache dtypes with which engines were measured."""

Spread = tuple[float, float, float]
"""Low, middle and high."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCost:
    """A setting that makes every decode step longer, and by how much."""

    setting: str
    extra_s: Spread
    """Seconds by which a step is longer: low, middle and high of the published figures."""
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCosts:
    """The settings of one launch that slow it down, and those for which no figure is published."""

    step_s: float
    priced: tuple[LaunchCost, ...]
    unpriced: tuple[str, ...]

    def lost_fractions(self, cost: LaunchCost) -> Spread:
        """Return the fraction of throughput that one setting costs: low, middle and high."""
        low, middle, high = (extra / (self.step_s + extra) for extra in cost.extra_s)
        return low, middle, high

    def slow_down(self, rate: Range) -> Range:
        """Return a predicted throughput with the cost of all settings."""
        low, middle, high = (
            self.step_s / (self.step_s + sum(cost.extra_s[case] for cost in self.priced)) for case in range(3)
        )
        return Range(value=rate.value * middle, low=rate.low * high, high=rate.high * low)


def launch_costs(answer: Preflight, prediction: Prediction, table: Mapping[str, Any]) -> LaunchCosts:
    """Return what the settings of a launch cost in a predicted step."""
    priced = list(_attention(answer, prediction, table))
    if answer.facts["chip"] in _AITER_CHIPS and answer.question.engine == "vllm" and not _aiter_on(answer):
        entry = table["aiter_off"]
        mixture = answer.question.subject.model.experts is not None
        fractions = entry["fraction_of_the_step_with_experts" if mixture else "fraction_of_the_step"]
        extra = _scale(fractions, prediction.step.seconds)
        priced.append(_cost("AITER is off, which", extra, entry))
    if answer.facts["launch.graphs"] is False and answer.question.engine == "vllm":
        entry, layers = table["no_graphs"], len(answer.question.subject.model.layers)
        floor_s = _scale(entry["seconds_per_layer"], layers)
        step_s = prediction.step.seconds + sum(cost.extra_s[1] for cost in priced)
        low, middle, high = (max(0.0, least - step_s) for least in floor_s)
        priced.append(_cost("--enforce-eager", (low, middle, high), entry))
    unpriced = tuple(_list_unpriced(answer, prediction))
    return LaunchCosts(step_s=prediction.step.seconds, priced=tuple(priced), unpriced=unpriced)


def _attention(answer: Preflight, prediction: Prediction, table: Mapping[str, Any]) -> Iterator[LaunchCost]:
    """Yield the cost of the attention backend on AMD, if a faster one is published."""
    if answer.question.engine != "vllm" or answer.facts["chip"] not in _AITER_CHIPS:
        return
    backend = answer.backend.name
    # Measurements of this very model include the backend that serves it; other models were measured with AITER's.
    own_choice = answer.facts["launch.attention_backend"] != "auto" or prediction.tier != "measured"
    reading_s = prediction.roofline_parts_s["cache"]
    if backend == "ROCM_ATTN" and any(found.rule.id == _KERNEL_SKIPPED for found in answer.assessment.findings):
        entry = table["rocm_attn_without_its_kernel"]
        walked = _walked_tokens(answer, prediction.load.input_tokens + prediction.load.output_tokens / 2)
        yield _cost("attention by ROCM_ATTN", _scale(entry["seconds_per_token_and_layer"], walked), entry)
    elif backend == "TRITON_ATTN" and own_choice:
        entry = table["triton_attn"]
        yield _cost("attention by TRITON_ATTN", _scale(entry["times_reading_the_cache"], reading_s), entry)
    elif backend == "TRITON_MLA":
        entry = table["triton_mla"]
        yield _cost("attention by TRITON_MLA", _scale(entry["times_reading_the_cache"], reading_s), entry)


def _walked_tokens(answer: Preflight, context_tokens: float) -> int:
    """Return the tokens to which a request attends, summed over the attention layers."""
    mixers = (layer.mixer for layer in answer.question.subject.model.layers)
    return sum(
        mixer.remembered_tokens(round(context_tokens)) for mixer in mixers if isinstance(mixer, GroupedAttention)
    )


def _list_unpriced(answer: Preflight, prediction: Prediction) -> Iterator[str]:
    """Yield the settings of the user's launch that change the speed by an unknown factor."""
    if not answer.launch.typed:
        return
    facts, engine = answer.facts, answer.question.engine
    if prediction.speculation is None and (drafts := drafting_of(answer.launch)) is not None:
        yield f"drafting by {drafts.method[:40]}"
    named = facts["launch.attention_backend"]
    if named != "auto" and (engine != "vllm" or facts["chip"] not in _AITER_CHIPS):
        yield f"--attention-backend {named}"
    if facts["kv.stored"] not in _PRICED_CACHES:
        yield f"--kv-cache-dtype {facts['kv.dtype']}"
    if facts["launch.moe_backend"] != "auto":
        yield f"--moe-backend {facts['launch.moe_backend']}"
    if facts["launch.graphs"] is False and engine != "vllm":
        yield "running without graphs"
    if engine == "sglang" and facts["chip"] in _AITER_CHIPS and not _aiter_on(answer):
        yield "SGLang without AITER"


def _aiter_on(answer: Preflight) -> bool:
    name = "VLLM_ROCM_USE_AITER" if answer.question.profile.server == "vllm" else "SGLANG_USE_AITER"
    image = answer.question.engine == "sglang" and answer.launch.image is not None
    return answer.launch.environment.get(name, "1" if image else "") in {"1", "true", "True"}


def _scale(spread: tuple[float, float, float] | list[float], by: float) -> Spread:
    low, middle, high = spread
    return low * by, middle * by, high * by


def _cost(setting: str, extra_s: Spread, entry: Mapping[str, Any]) -> LaunchCost:
    return LaunchCost(setting=setting, extra_s=extra_s, sources=tuple(entry["sources"]))
