"""Estimates the memory of activations, runtime and graphs, each as a median with P10 and P90."""

from dataclasses import dataclass
from typing import Final

from penstock.fleet.deployment import Deployment
from penstock.model import LatentAttention
from penstock.model.sequence_mixers import CompressedAttention
from penstock.units import GIB

# Every constant below is explained, with the logs it was fitted to, in docs/methodology/memory.md.
_FFN_COPIES: Final = 3
_HIDDEN_COPIES: Final = 4
_ELEMENT_BYTES: Final = 2
_LOGIT_BYTES: Final = 15.0
_LOGIT_BYTES_BEFORE_0_17: Final = 38.4
_ACTIVATION_SPREAD: Final = (0.8, 1.5)
_RUNTIME_GIB: Final = {
    # (AMD, more than one rank): low, median, high
    (False, False): (0.13, 0.25, 0.46),
    (False, True): (0.55, 1.7, 2.2),
    (True, False): (0.4, 0.65, 1.0),
    (True, True): (0.4, 1.2, 4.5),
}
_LOADED_OVER_STORED: Final = {False: (0.0, 0.002, 0.012), True: (0.003, 0.01, 0.03)}
"""Padding and tables that loading adds to the weights, as a fraction of the stored bytes. The key states whether the
vendor is AMD."""
_COMPRESSED_STEP_BYTES: Final = {
    "Hopper": (300_000, 450_000, 520_000),
    "Blackwell": (-150_000, 0, 100_000),
    "Blackwell Ultra": (-150_000, 0, 100_000),
}
"""Extra bytes per token as P10, median and P90. Each entry comes from two published logs. GH200 and H20 leave less
memory than the formula predicts. B200 leaves a little more memory than the formula predicts, because its fused experts
gather nothing."""
_COMPRESSED_STEP_ELSEWHERE: Final = (0, 200_000, 520_000)
"""Extra bytes per token, as P10, median and P90, for architectures without a published log. The range covers most of
the ranges of Hopper and Blackwell."""
_GRAPH_GIB: Final = {False: (0.3, 0.9, 1.85), True: (0.4, 0.9, 2.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Amount of memory that is known only as the P10, median and P90 over published start-up logs."""

    low_bytes: int
    median_bytes: int
    high_bytes: int

    def __post_init__(self) -> None:
        if not 0 <= self.low_bytes <= self.median_bytes <= self.high_bytes:
            raise ValueError("a memory reserve needs 0 <= P10 <= median <= P90")


def activation_reserve(deployment: Deployment, *, last_stage: bool) -> Reserve:
    """Return the peak activation memory of the largest step.

    The peak is in a layer or, on the last stage, in the sampler, which copies the logits.
    """
    model, engine, tp = deployment.model, deployment.engine, deployment.parallelism.tp
    per_token = _FFN_COPIES * model.widest_ffn / tp + _HIDDEN_COPIES * model.hidden_size
    if model.experts is not None:
        # Fused expert kernels gather one hidden vector per chosen expert.
        per_token += model.experts.per_token * model.hidden_size
    peak = engine.max_batched_tokens * per_token * _ELEMENT_BYTES
    if last_stage:
        sampled = min(engine.max_sequences, engine.max_batched_tokens)
        copies = _LOGIT_BYTES if engine.samples_lean else _LOGIT_BYTES_BEFORE_0_17
        hidden = engine.max_batched_tokens * model.hidden_size * _ELEMENT_BYTES
        peak = max(peak, sampled * model.vocab_size * copies + hidden)
    low, high = _ACTIVATION_SPREAD
    added = [engine.max_batched_tokens * extra for extra in _compressed_step_bytes(deployment)]
    return Reserve(
        low_bytes=max(0, int(low * peak + added[0])),
        median_bytes=int(peak + added[1]),
        high_bytes=int(high * peak + added[2]),
    )


def _compressed_step_bytes(deployment: Deployment) -> tuple[int, int, int]:
    """Return the extra activation bytes per token that the largest step needs for DeepSeek-V4.

    The logs of other models show no extra activation bytes.
    """
    compressed = any(isinstance(layer.mixer, CompressedAttention) for layer in deployment.model.layers)
    if deployment.engine.name != "vllm" or not compressed:
        return 0, 0, 0
    return _COMPRESSED_STEP_BYTES.get(deployment.accelerator.architecture, _COMPRESSED_STEP_ELSEWHERE)


def runtime_reserve(deployment: Deployment, weight_bytes: int) -> Reserve:
    """Return the memory for the device context, libraries, communication buffers and the padding of loaded weights."""
    amd = deployment.accelerator.vendor == "amd"
    fixed = _RUNTIME_GIB[amd, deployment.parallelism.tp > 1]
    padding = _LOADED_OVER_STORED[amd]
    low, median, high = (int(gib * GIB + share * weight_bytes) for gib, share in zip(fixed, padding, strict=True))
    return Reserve(low_bytes=low, median_bytes=median, high_bytes=high)


def graph_reserve(deployment: Deployment) -> Reserve:
    """Return the memory of captured CUDA or HIP graphs."""
    if not deployment.engine.graphs:
        return Reserve(low_bytes=0, median_bytes=0, high_bytes=0)
    return _of_gib(_GRAPH_GIB[deployment.accelerator.vendor == "amd"])


def absorbed_bytes(deployment: Deployment, stage_layers: tuple[int, ...]) -> int:
    """Return the bytes of vLLM's bf16 copies of the latent up-projections, for the heads on the device.

    vLLM keeps these copies in addition to the stored matrices.
    """
    if deployment.engine.name != "vllm":
        return 0
    total = 0
    for index in stage_layers:
        mixer = deployment.model.layers[index].mixer
        if isinstance(mixer, LatentAttention):
            heads = mixer.query_heads // deployment.parallelism.tp
            total += heads * (mixer.nope_dim + mixer.value_dim) * mixer.latent_dim * 2
    return total


def _of_gib(span: tuple[float, float, float]) -> Reserve:
    low, median, high = (int(gib * GIB) for gib in span)
    return Reserve(low_bytes=low, median_bytes=median, high_bytes=high)
