"""Represents the time of any engine step of a deployment by a few coefficients."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from penstock.errors import DeploymentError
from penstock.model.sequence_mixers import EVERYTHING
from penstock.performance.step.step_work import COMPONENTS, Array, ReplicaWork, pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Coefficients, in seconds, of a step that decodes some requests and processes some prompt tokens.

    The time of a step is `step_s + decodes * decode_s + prefill_tokens * prefill_token_s`, and several additions. A
    step that carries a prompt adds `prompt_step_s`. Experts add `expert_s` times the share of the experts that any
    token visits. Each attention limit w adds `context_s * sum of min(context, w)` over the decoding requests. The same
    limit adds `pair_s` for every pair of a prompt token and a token that it attends to. Each decode step adds one token
    to every context, and the time is linear in these tokens. So the total time of several steps with the same requests
    has a closed form.

    If attention runs in `ranks` data-parallel ranks, the coefficients are for a load that is spread evenly over all
    ranks. `of_rank` has the coefficients of one rank's part of a step, without the experts. Ranks that share experts
    wait for the slowest rank.
    """

    step_s: float
    decode_s: float
    prefill_token_s: float
    prompt_step_s: float = 0.0
    """Extra seconds of a step that carries a prompt, because such a step runs outside captured graphs. A prompt chunk
    of one token takes no extra seconds, because the chunk runs like a decode."""
    expert_s: float = 0.0
    expert_miss: float = 0.0
    """Probability that one token does not visit a given expert."""
    limits: tuple[int, ...] = (EVERYTHING,)
    """Maximum number of tokens that a query attends to, one entry per kind of attention in the model."""
    context_s: tuple[float, ...] = (0.0,)
    pair_s: tuple[float, ...] = (0.0,)
    ranks: int = 1
    experts_decode_s: float = 0.0
    """Part of `decode_s` that a token of one rank costs on all ranks, for expert multiplication and exchange."""
    experts_prefill_token_s: float = 0.0
    """Part of `prefill_token_s` that a token of one rank costs on all ranks, for expert multiplication and exchange."""
    batch_factors: tuple[float, ...] = ()
    """Factors on the time of a step that decodes 1, 2, 4, 8 and more requests, from measurements of this setup. Each
    entry is for twice as many requests as the entry before. Between two entries, the factor is interpolated over the
    logarithm of the requests. Beyond the last entry, the last factor applies. Without entries, no factor applies."""

    def __post_init__(self) -> None:
        if not len(self.limits) == len(self.context_s) == len(self.pair_s):
            raise ValueError("`limits`, `context_s` and `pair_s` must have equal lengths")
        amounts = [self.step_s, self.decode_s, self.prefill_token_s, self.prompt_step_s, self.expert_s]
        amounts += [*self.context_s, *self.pair_s, *self.batch_factors]
        if not all(np.isfinite(amount) and amount >= 0 for amount in amounts) or not 0 <= self.expert_miss <= 1:
            raise DeploymentError(
                "every coefficient of a step must be finite and at least 0, and `expert_miss` at most 1"
            )
        if min(self.limits) < 1 or self.ranks < 1:
            raise ValueError("every attention limit in `limits` must be at least 1 token, and `ranks` at least 1")

    @property
    def of_rank(self) -> "StepCost":
        """Return the coefficients for the tokens of one rank, without the part of a step that all ranks share."""
        return replace(
            self,
            step_s=0.0,
            prompt_step_s=0.0,
            expert_s=0.0,
            decode_s=self.ranks * (self.decode_s - self.experts_decode_s),
            prefill_token_s=self.ranks * (self.prefill_token_s - self.experts_prefill_token_s),
            context_s=tuple(self.ranks * value for value in self.context_s),
            pair_s=tuple(self.ranks * value for value in self.pair_s),
            ranks=1,
            experts_decode_s=0.0,
            experts_prefill_token_s=0.0,
        )

    def seconds(self, contexts: tuple[int, ...] = (), chunks: tuple[tuple[int, int], ...] = ()) -> float:
        """Return the seconds of one step.

        `contexts` has the number of context tokens of each decoding request. `chunks` has the start and the end of each
        prompt chunk.
        """
        tokens = len(contexts) + sum(to - start for start, to in chunks)
        total = self.step_s + len(contexts) * self.decode_s + (tokens - len(contexts)) * self.prefill_token_s
        total += self.prompt_step_s if any(to - start > 1 for start, to in chunks) else 0.0
        total += self.expert_s * (1 - self.expert_miss**tokens)
        for limit, per_token, per_pair in zip(self.limits, self.context_s, self.pair_s, strict=True):
            total += per_token * sum(min(context, limit) for context in contexts)
            ends = np.array(chunks, float).reshape(-1, 2)
            total += per_pair * float(np.sum(pairs(ends[:, 1], limit) - pairs(ends[:, 0], limit)))
        return total * float(self.factors(np.array([len(contexts)]))[0])

    def factors(self, decodes: npt.NDArray[np.int64]) -> Array:
        """Return the factor on the time of a step for each number of decoding requests: 1 if no request decodes."""
        if not self.batch_factors:
            return np.ones(len(decodes))
        entries = np.log2(np.maximum(decodes, 1))
        found = np.interp(entries, np.arange(len(self.batch_factors)), self.batch_factors)
        return np.asarray(np.where(decodes > 0, found, 1.0))

    def scaled(self, by: float) -> "StepCost":
        """Return a copy in which every step takes `by` times as long."""
        return replace(
            self,
            step_s=self.step_s * by,
            decode_s=self.decode_s * by,
            prefill_token_s=self.prefill_token_s * by,
            prompt_step_s=self.prompt_step_s * by,
            expert_s=self.expert_s * by,
            context_s=tuple(value * by for value in self.context_s),
            pair_s=tuple(value * by for value in self.pair_s),
            experts_decode_s=self.experts_decode_s * by,
            experts_prefill_token_s=self.experts_prefill_token_s * by,
        )


def step_cost(work: ReplicaWork, slowdowns: Array) -> StepCost:
    """Return the cost of a deployment's steps: its work, with each component multiplied by its slowdown."""
    slow = dict(zip(COMPONENTS, (float(value) for value in slowdowns), strict=True))
    deployment, ranks = work.deployment, work.deployment.parallelism.dp
    dtype, tp = deployment.chosen_cache_dtype, deployment.parallelism.tp
    exchange_s = slow["exchange"] * work.exchange_token_s
    message_s = slow["collectives"] * work.collective_token_s / ranks + exchange_s
    experts = deployment.model.experts
    state_bytes = sum(count * mixer.state_bytes(dtype, tp) for mixer, count in work.mixers.items())
    reads, pair_s = _by_limit(work, slow)
    limits = tuple(sorted(reads.keys() | pair_s.keys())) or (EVERYTHING,)
    return StepCost(
        step_s=(slow["weights"] * work.dense_bytes + slow["widening"] * work.widened_dense_bytes) / work.bytes_per_s
        + sum(slow[name] * count for name, count in work.launches.items())
        + slow["step"],
        decode_s=slow["cache"] * state_bytes / work.bytes_per_s / ranks
        + slow["compute"] * (work.token_s / ranks + work.routed_token_s)
        + message_s,
        prefill_token_s=slow["prefill"] * (work.token_s / ranks + work.routed_token_s) + message_s,
        prompt_step_s=slow["prompt_layers"] * work.layers,
        expert_s=(slow["experts"] * work.expert_bytes + slow["widening"] * work.widened_expert_bytes)
        / work.bytes_per_s,
        expert_miss=1 - experts.per_token / experts.routed if experts is not None else 0.0,
        limits=limits,
        context_s=tuple(reads.get(limit, 0.0) / ranks for limit in limits),
        pair_s=tuple(pair_s.get(limit, 0.0) / ranks for limit in limits),
        ranks=ranks,
        experts_decode_s=slow["compute"] * work.routed_token_s + exchange_s,
        experts_prefill_token_s=slow["prefill"] * work.routed_token_s + exchange_s,
    )


def _by_limit(work: ReplicaWork, slow: dict[str, float]) -> tuple[dict[int, float], dict[int, float]]:
    """Return two tables of seconds, keyed by attention limit.

    The first table has the seconds per context token of a decode. The second table has the seconds per token pair of a
    prompt.
    """
    dtype, tp = work.deployment.chosen_cache_dtype, work.deployment.parallelism.tp
    reads: dict[int, float] = {}
    paired: dict[int, float] = {}
    for mixer, count in work.mixers.items():
        read_s = slow["cache"] * count * mixer.entry_bytes(dtype, tp) / work.bytes_per_s
        read_s += slow["compute"] * count * mixer.decode_flops(tp) / work.attention_flops_per_s
        pair_s = slow["prefill"] * count * mixer.prefill_flops(tp) / work.attention_flops_per_s
        for limit, share in mixer.sight:
            reads[limit] = reads.get(limit, 0.0) + share * read_s
            paired[limit] = paired.get(limit, 0.0) + share * pair_s
        indexed_s = slow["cache"] * count * mixer.index_bytes(dtype) / work.bytes_per_s
        if indexed_s:
            reads[EVERYTHING] = reads.get(EVERYTHING, 0.0) + indexed_s
    return reads, paired
