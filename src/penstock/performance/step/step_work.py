"""Computes the bytes, FLOPs and messages of a step on one device, as seconds at the roofline."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.catalog.accelerator import Precision
from penstock.fleet.deployment import Deployment
from penstock.model import Part, Weight
from penstock.model.sequence_mixers import AttentionSpan
from penstock.performance.memory.sharding import device_bytes
from penstock.performance.step.datapath import compute_precision, widens
from penstock.performance.step.kernel_launches import exchange, link_bytes_per_s, multiplications

Array = npt.NDArray[np.float64]

COMPONENTS: Final = (
    "weights",
    "experts",
    "cache",
    "compute",
    "prefill",
    "collectives",
    "exchange",
    "widening",
    "layers",
    "mixtures",
    "extra_kernels",
    "matrices",
    "quantised",
    "messages",
    "exchanges",
    "step",
    "prompt_layers",
)
"""Columns of a step's work. The first seven columns are seconds at peak speed. The eighth column is the time to read
weights that must be widened because their format has no datapath, in seconds. The other columns are counts of launches,
messages, steps, and the layers of steps that carry prompts. Steps that carry prompts run outside captured graphs."""
PROMPT_COMPONENTS: Final = ("prefill", "prompt_layers")
"""Components of prompt tokens alone."""
PHYSICAL: Final = 7
"""Number of physical components, which come first in `COMPONENTS`. All components that are not physical, except
`widening`, are counts with a fitted cost per count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Average contents of engine steps. Each array has one entry per step."""

    decodes: Array
    """Number of requests in the whole replica that decode one token in this step."""
    context_tokens: Array
    """Mean number of context tokens of the decoding requests."""
    prefill_tokens: Array
    """Prompt tokens processed in this step."""
    prompt_tokens: Array
    """Mean length of the prompts to which the prompt tokens of this step belong."""
    drafted_tokens: float = 0.0
    """Speculative tokens verified along with each decoded token."""
    carrying_share: Array = field(default_factory=lambda: np.ones(1))
    """Share of steps that carry prompt tokens. The share is one for a single step with prompt tokens, and can be lower
    for an average over many steps."""

    @staticmethod
    def closed_loop(concurrency: Array, input_tokens: Array, output_tokens: Array, batched_tokens: float) -> "Load":
        """Return the average step of a closed loop. A step processes at most `batched_tokens` tokens of a prompt."""
        answered = concurrency / output_tokens
        return Load(
            decodes=concurrency,
            context_tokens=input_tokens + output_tokens / 2,
            prefill_tokens=answered * input_tokens,
            prompt_tokens=input_tokens,
            carrying_share=np.minimum(1.0, answered * carrying_steps(input_tokens, batched_tokens)),
        )


def carrying_steps(input_tokens: Array, batched_tokens: float) -> Array:
    """Return the number of steps over which a prompt is spread."""
    return np.maximum(1.0, np.ceil(input_tokens / batched_tokens))


class ReplicaWork:
    """Sums over a deployment's weights and layers.

    With these sums, the work of a step takes only a few multiplications.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        model, parallelism, accelerator = deployment.model, deployment.parallelism, deployment.accelerator
        self.bytes_per_s = accelerator.memory.hbm_bytes_per_s
        self.dense_bytes = self.expert_bytes = 0.0
        self.widened_dense_bytes = self.widened_expert_bytes = 0.0
        self.token_s = self.routed_token_s = 0.0
        kinds, kind_of = model.weight_kinds
        tied = all(kind.part is not Part.LM_HEAD for kind in kinds)
        per_kind = [self._held_widened_and_s(kind) for kind in kinds]
        skipped = {Part.VISION, Part.MTP} if tied else {Part.VISION, Part.MTP, Part.EMBEDDING}
        read = [kind.part not in skipped for kind in kinds]
        routed = [kind.part is Part.ROUTED_EXPERTS for kind in kinds]
        for kind in kind_of:
            if not read[kind]:
                continue
            held, widened, seconds = per_kind[kind]
            if routed[kind]:
                self.expert_bytes += held
                self.widened_expert_bytes += widened
                self.routed_token_s += seconds
            else:
                self.dense_bytes += held
                self.widened_dense_bytes += widened
                self.token_s += seconds
        self.layers = len(model.layers)
        self.mixers = Counter(layer.mixer for layer in model.layers if layer.mixer is not None)
        self.exchange_token_s, exchanges = exchange(deployment)
        matrices, quantised = multiplications(model, accelerator)
        self.launches = {
            "layers": self.layers,
            "mixtures": sum(layer.feed_forward == "moe" for layer in model.layers),
            "extra_kernels": sum(count * mixer.extra_kernels for mixer, count in self.mixers.items()),
            "matrices": matrices,
            "quantised": quantised,
            "messages": 2 * self.layers if parallelism.tp > 1 else 0,
            "exchanges": exchanges,
        }
        self.attention_flops_per_s = accelerator.peak_flops_per_s(Precision.BF16)

    def _held_widened_and_s(self, weight: Weight) -> tuple[float, float, float]:
        """Return the bytes of a weight on a device, those that are widened, and the seconds per token at peak speed."""
        deployment, split = self.deployment, self.deployment.parallelism
        held = device_bytes(weight, deployment)
        seconds = self._multiply_s(weight)
        if weight.part is Part.ROUTED_EXPERTS:
            seconds /= split.tp * split.dp
        else:
            seconds = seconds * held / max(1, weight.stored_bytes)
        return held, held if widens(weight, deployment.accelerator) else 0.0, seconds

    def _multiply_s(self, weight: Weight) -> float:
        """Return the seconds at peak speed to multiply one token with a weight that is not split."""
        if len(weight.shape) == 1 or weight.part is Part.NORM:
            return 0.0
        accelerator = self.deployment.accelerator
        return (
            2
            * weight.active_params
            / accelerator.peak_flops_per_s(compute_precision(weight.format.multiplied_as, accelerator))
        )

    @cached_property
    def collective_token_s(self) -> float:
        """Return the seconds per token of the all-reduces at peak bandwidth.

        Each layer has two all-reduces. Each all-reduce moves 2 (tp - 1)/tp of a token's activations.
        """
        tp = self.deployment.parallelism.tp
        message_bytes = self.deployment.model.hidden_size * 2
        return 2 * self.layers * 2 * (tp - 1) / tp * message_bytes / link_bytes_per_s(self.deployment.accelerator, tp)

    def roofline(self, load: Load) -> Array:
        """Return the work of each step: one row per entry of the load, one column per component."""
        ranks = self.deployment.parallelism.dp
        decodes, prefill = load.decodes / ranks, load.prefill_tokens / ranks
        verified = 1.0 + load.drafted_tokens
        tokens_everywhere = load.decodes * verified + load.prefill_tokens
        cache_s, attention_s = self._attention(load, decodes)
        experts_read = self._experts_read(load)
        columns = {
            "weights": np.full_like(decodes, self.dense_bytes / self.bytes_per_s),
            "experts": self.expert_bytes / self.bytes_per_s * experts_read,
            "cache": cache_s,
            "compute": verified * (decodes * self.token_s + load.decodes * self.routed_token_s + attention_s),
            "prefill": prefill * self.token_s
            + load.prefill_tokens * self.routed_token_s
            + self._prefill_attention(prefill, load.prompt_tokens),
            "collectives": self.collective_token_s * tokens_everywhere / ranks,
            "exchange": self.exchange_token_s * tokens_everywhere,
            "widening": (self.widened_dense_bytes + self.widened_expert_bytes * experts_read) / self.bytes_per_s,
            **{name: np.full_like(decodes, count) for name, count in self.launches.items()},
            "step": np.ones_like(decodes),
            "prompt_layers": self.layers * np.where(load.prefill_tokens > 0, load.carrying_share, 0.0),
        }
        return np.column_stack([columns[name] for name in COMPONENTS])

    def _experts_read(self, load: Load) -> Array:
        """Return the share of the experts that at least one token of a step visits: 1 - (1 - k/E)^tokens.

        A token visits k of E experts. The tokens of a step are its decoded, drafted and prompt tokens.
        """
        experts = self.deployment.model.experts
        if experts is None:
            return np.zeros_like(load.decodes)
        missed, share = 1.0 - experts.per_token / experts.routed, load.carrying_share
        decoded = load.decodes * (1.0 + load.drafted_tokens)
        carrying = decoded + load.prefill_tokens / share
        return 1.0 - (1.0 - share) * missed**decoded - share * missed**carrying

    def _attention(self, load: Load, decodes: Array) -> tuple[Array, Array]:
        """Return the seconds to read the KV cache of the decoding requests, and the seconds to multiply with it."""
        dtype, tp = self.deployment.chosen_cache_dtype, self.deployment.parallelism.tp
        peak = self.attention_flops_per_s
        read, multiplied = np.zeros_like(decodes), np.zeros_like(decodes)
        for mixer, count in self.mixers.items():
            entries = attended_entries(mixer.sight, load.context_tokens)
            read += count * (entries * mixer.entry_bytes(dtype, tp) + mixer.state_bytes(dtype, tp))
            read += count * mixer.index_bytes(dtype) * load.context_tokens
            multiplied += count * entries * mixer.decode_flops(tp)
        return decodes * read / self.bytes_per_s, decodes * multiplied / peak

    def _prefill_attention(self, prefill: Array, prompt: Array) -> Array:
        tp, peak = self.deployment.parallelism.tp, self.attention_flops_per_s
        flops = np.zeros_like(prefill)
        for mixer, count in self.mixers.items():
            seen = sum((share * pairs(prompt, limit) for limit, share in mixer.sight), np.zeros_like(prompt))
            flops += count * seen / np.maximum(1.0, prompt) * mixer.prefill_flops(tp)
        return prefill * flops / peak


def pairs(tokens: Array, limit: float) -> Array:
    """Return the number of pairs of a query token and a token that it attends to, over the first `tokens` of a prompt.

    The number of pairs is `tokens`²/2 if `limit` is not reached. A query token is in at most `limit` pairs.
    """
    seen = np.minimum(tokens, limit)
    return seen * (tokens - seen / 2)


def attended_entries(sight: AttentionSpan, tokens: Array) -> Array:
    """Return the number of cache entries that a query reads when its context has `tokens` tokens."""
    return sum((share * np.minimum(tokens, limit) for limit, share in sight), np.zeros_like(tokens))


def roofline_s(roofline: Array) -> float:
    """Return the minimum seconds of a step.

    Memory traffic and computation can overlap, so the minimum is the larger of their two times.
    """
    return float(rooflines_s(roofline[None])[0])


def rooflines_s(roofline: Array) -> Array:
    """Return the minimum seconds of each step, given one row of work per step."""
    memory = roofline[:, [COMPONENTS.index(name) for name in ("weights", "experts", "cache")]].sum(axis=1)
    compute = roofline[:, [COMPONENTS.index(name) for name in ("compute", "prefill")]].sum(axis=1)
    return np.asarray(np.maximum(memory, compute))
