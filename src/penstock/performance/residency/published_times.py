"""Lists published times of sleep, wake and load, from which the rates of links are derived.

Each time was read on the date in `checked_on`. All are of NVIDIA accelerators. No source states how long weights take
to wake on an AMD accelerator, so the rates of AMD accelerators are transferred.
"""

from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Final


class Transition(StrEnum):
    """Change of a model's residency."""

    SLEEP_TO_HOST = "sleep_to_host"
    """vLLM's sleep level 1: weights are copied to host memory, and the KV cache is discarded."""
    WAKE_FROM_HOST = "wake_from_host"
    DISCARD = "discard"
    """vLLM's sleep level 2: weights and KV cache are discarded."""
    WAKE_FROM_DISK = "wake_from_disk"
    """Wake from level 2: the process is alive, and weights are read again."""
    START = "start"
    """Start of a new engine process, with its weights, graphs and kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTime:
    """One published time of a transition."""

    transition: Transition
    model: str
    bytes_per_rank: float
    """Weights that one rank moves."""
    accelerator: str
    pcie: str
    seconds: float
    """Mean of the published repetitions."""
    url: str
    checked_on: date


_CHECKED: Final = date(2026, 11, 18)
_BLOG: Final = "https://blog.vllm.ai/2025/10/26/sleep-mode.html"
_LORA_PR: Final = "https://github.com/vllm-project/vllm/pull/48337"
_LOADER_PR: Final = "https://github.com/vllm-project/vllm/pull/10647"
_SMALL, _VISION, _8B, _30B, _235B = 1.19e9, 8.29e9, 16.38e9, 61.06e9, 59.1e9
"""Bytes per rank: Qwen3-0.6B, Phi-3-vision, Qwen3-8B and Qwen3-Coder-30B in bf16, a quarter of Qwen3-235B in fp8."""


def _row(
    transition: Transition, model: str, size: float, seconds: float, *, on: str = "a100", url: str = _BLOG
) -> PublishedTime:
    return PublishedTime(
        transition=transition,
        model=model,
        bytes_per_rank=size,
        accelerator=on,
        pcie="4.0 x16",
        seconds=seconds,
        url=url,
        checked_on=_CHECKED,
    )


PUBLISHED: Final = (
    _row(Transition.WAKE_FROM_HOST, "Qwen3-0.6B", _SMALL, 0.27),
    _row(Transition.WAKE_FROM_HOST, "Qwen3-0.6B", _SMALL, 0.10, on="a4000"),
    _row(Transition.WAKE_FROM_HOST, "Phi-3-vision", _VISION, 0.90),
    _row(Transition.WAKE_FROM_HOST, "Phi-3-vision", _VISION, 0.80, on="a4000"),
    _row(Transition.WAKE_FROM_HOST, "Qwen3-8B", _8B, 2.19, url=_LORA_PR),
    _row(Transition.WAKE_FROM_HOST, "Qwen3-Coder-30B-A3B", _30B, 2.87),
    _row(Transition.WAKE_FROM_HOST, "Qwen3-235B-A22B-FP8 tp4", _235B, 5.41),
    _row(Transition.SLEEP_TO_HOST, "Qwen3-0.6B", _SMALL, 0.22, url=_LORA_PR),
    _row(Transition.SLEEP_TO_HOST, "Qwen3-8B", _8B, 10.57, url=_LORA_PR),
    _row(Transition.SLEEP_TO_HOST, "Qwen3-Coder-30B-A3B", _30B, 2.78),
    _row(Transition.SLEEP_TO_HOST, "Qwen3-235B-A22B-FP8 tp4", _235B, 5.89),
    _row(Transition.DISCARD, "Qwen3-0.6B", _SMALL, 0.12, url=_LORA_PR),
    _row(Transition.DISCARD, "Qwen3-8B", _8B, 0.31, url=_LORA_PR),
    _row(Transition.WAKE_FROM_DISK, "Qwen3-0.6B", _SMALL, 0.85),
    _row(Transition.WAKE_FROM_DISK, "Phi-3-vision", _VISION, 2.58),
    _row(Transition.WAKE_FROM_DISK, "Qwen3-8B", _8B, 6.53, url=_LORA_PR),
    _row(Transition.WAKE_FROM_DISK, "Llama-2-7b (weights only)", 13.48e9, 7.29, url=_LOADER_PR),
    _row(Transition.WAKE_FROM_DISK, "Llama-2-13b (weights only)", 26.03e9, 16.04, url=_LOADER_PR),
    _row(Transition.START, "Qwen3-0.6B", _SMALL, 37.96),
    _row(Transition.START, "Qwen3-0.6B", _SMALL, 21.0, on="a4000"),
    _row(Transition.START, "Phi-3-vision", _VISION, 58.12),
    _row(Transition.START, "Phi-3-vision", _VISION, 46.02, on="a4000"),
    _row(Transition.START, "Qwen3-Coder-30B-A3B", _30B, 47.42),
    _row(Transition.START, "Qwen3-235B-A22B-FP8 tp4", _235B, 97.67),
)
"""Times of vLLM 0.11 and later on PCIe 4.0. The charts of the blog post have the repetitions.

The 10.57 s of Qwen3-8B are a first sleep, which also allocates the pinned host memory.
"""
