"""Physical limits of a setup by capacity, bandwidth and arithmetic.

Facts that the claim does not state are assumed in the claim's favour.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Final

import numpy as np

from penstock.audit.claims.speed_claims import ServedSetup
from penstock.audit.evidence.weight_formats import formats_tried, in_format
from penstock.audit.judgement import Working, plainly, working_line
from penstock.audit.reference_library import Library
from penstock.catalog.accelerator import Accelerator
from penstock.fleet import Deployment, Parallelism, engine_defaults
from penstock.model import CacheDtype
from penstock.model.cache_dtypes import cache_dtype
from penstock.performance.memory.sharding import refusal
from penstock.performance.step.step_work import COMPONENTS, Array, Load, ReplicaWork, roofline_s
from penstock.units import GB, TERA

MAX_TOKENS_A_STEP: Final = 4.0
"""Maximum tokens per step and request with speculative decoding.

In the shipped measurements, a step accepts on average fewer than three drafted tokens.
"""
_MAX_REQUESTS: Final = 65536.0
_FULL_STEP: Final = 8192.0


@dataclass(frozen=True, kw_only=True)
class PhysicalLimit:
    """Physical limits of one split of a setup. `copies` is the number of replicas."""

    setup: ServedSetup
    work: ReplicaWork
    copies: int

    @property
    def accelerator(self) -> Accelerator:
        """The accelerator of the setup."""
        return self.work.deployment.accelerator

    @property
    def ranks(self) -> int:
        """Number of data parallel ranks of one replica. Each rank serves separate requests."""
        return self.work.deployment.parallelism.dp

    @cached_property
    def free_bytes(self) -> float:
        """Physical memory of one device minus the weights on it, in bytes."""
        return float(self.accelerator.memory.hbm_bytes) - self.work.dense_bytes - self.work.expert_bytes

    @property
    def holds_weights(self) -> bool:
        """Whether the weights fit in the physical memory of the devices."""
        return self.free_bytes > 0

    def cache_bytes(self, context_tokens: float) -> float:
        """Return the KV bytes that a device holds, and reads in each step, for one request with this context."""
        roofline = self._roofline(float(self.ranks), 0.0, max(1.0, context_tokens))
        return float(roofline[COMPONENTS.index("cache")]) * self.work.bytes_per_s

    def max_requests(self, context_tokens: float) -> float:
        """Return the maximum number of requests over all replicas if memory holds only weights and KV cache."""
        each = self.cache_bytes(context_tokens)
        room = max(0.0, self.free_bytes)
        return min(_MAX_REQUESTS, self.copies * self.ranks * room / each) if each else _MAX_REQUESTS

    @property
    def mean_context(self) -> float:
        """Mean context per request in tokens. Lengths that the claim does not state are assumed to be minimal."""
        return (self.setup.input_tokens or 0) + (self.setup.output_tokens or 2) / 2

    @property
    def drafts(self) -> float:
        """Maximum tokens per step and request. Speculative decoding is assumed unless the claim excludes it."""
        return 1.0 if self.setup.drafted is False else MAX_TOKENS_A_STEP

    @cached_property
    def min_weight_s(self) -> float:
        """Minimum seconds to read the weights in one step.

        For a mixture of experts, only the experts that one token uses are read.
        """
        experts = self.work.deployment.model.experts
        share = 0.0 if experts is None else experts.per_token / experts.routed
        return (self.work.dense_bytes + share * self.work.expert_bytes) / self.work.bytes_per_s

    @cached_property
    def token_s(self) -> float:
        """Seconds of arithmetic per token on one replica, at the dense peak rate of the weight formats."""
        return self.work.token_s / self.ranks + self.work.routed_token_s

    @cached_property
    def running(self) -> float:
        """Number of concurrent requests.

        This is the number that the claim states, limited to the number that fits in memory. If the claim states no
        number, as many requests run as fit in memory.
        """
        return max(1.0, min(self.setup.concurrency or _MAX_REQUESTS, self.max_requests(self.mean_context)))

    @cached_property
    def min_step_s(self) -> float:
        """Minimum step time of a replica that serves its share of the concurrent requests, in seconds."""
        each = self.cache_bytes(self.mean_context) / self.work.bytes_per_s
        return self.min_weight_s + self.running / self.copies / self.ranks * each

    @cached_property
    def max_tokens_per_s(self) -> float:
        """Upper bound of the output rate of all replicas, in tokens per second."""
        by_memory = self.running * self.drafts / self.min_step_s
        return min(by_memory, self.copies / self.token_s)

    @cached_property
    def min_tpot_s(self) -> float:
        """Lower bound of the time per output token of a request that runs alone, in seconds."""
        each = self.cache_bytes(self.mean_context) / self.work.bytes_per_s
        return (self.min_weight_s + each) / self.drafts

    @cached_property
    def fair_step_s(self) -> float | None:
        """Roofline step time of the stated load in seconds, with prompts and a usual spread of tokens over experts.

        The value is None if the claim does not state the whole load, or if prefill is disaggregated.
        """
        setup = self.setup
        if setup.disaggregated or not (setup.input_tokens and setup.output_tokens and setup.concurrency):
            return None
        users = max(1.0, self.running / self.copies)
        load = Load.closed_loop(
            np.array([users]), np.array([float(setup.input_tokens)]), np.array([float(setup.output_tokens)]), _FULL_STEP
        )
        return roofline_s(self.work.roofline(load)[0])

    @cached_property
    def min_prompt_s(self) -> float:
        """Lower bound of the time to process one prompt on a whole replica, without cached tokens, in seconds."""
        return (self.setup.input_tokens or 0) * self.token_s

    def _roofline(self, decodes: float, prefill: float, context_tokens: float) -> Array:
        load = Load(
            decodes=np.array([decodes]),
            context_tokens=np.array([context_tokens]),
            prefill_tokens=np.array([prefill]),
            prompt_tokens=np.array([1.0]),
        )
        roofline: Array = self.work.roofline(load)[0]
        return roofline

    def rate_lines(self) -> tuple[Working, ...]:
        """Return the lines of arithmetic that give the upper bound of the rate."""
        gb, rate = round(self.min_weight_s * self.work.bytes_per_s / GB, 2), self.work.bytes_per_s / TERA
        step_ms = self.min_step_s * 1e3
        lines = [
            working_line(
                f"{plainly(gb)} / {plainly(rate)}", gb / rate, "ms to read the weights once: 10^9 bytes / TB/s"
            ),
            working_line(
                f"1000 * {plainly(self.running)} * {plainly(self.drafts)} / {plainly(step_ms)}",
                1000 * float(plainly(self.running)) * self.drafts / float(plainly(step_ms)),
                "tok/s: 1000 * requests * tokens per step, drafts included / ms to read weights and KV cache",
            ),
        ]
        micro = self.token_s * 1e6
        lines.append(
            working_line(
                f"1000000 * {self.copies} / {plainly(micro)}",
                1e6 * self.copies / float(plainly(micro)),
                "tok/s: 10^6 * replicas / microseconds of arithmetic per token at the dense peak",
            )
        )
        return tuple(lines)


@lru_cache(maxsize=256)
def physical_limits(setup: ServedSetup, library: Library, *, widest: bool = False) -> tuple[PhysicalLimit, ...]:
    """Return the limits of every possible weight format and split.

    With `widest`, return only the limits of the widest split. The limits of the widest split come first. If the setup
    states no KV cache type, the smallest type is assumed.
    """
    accelerator = library.accelerator_of(setup.accelerator)
    mixture = library.model_of(setup.model).experts is not None
    found = []
    for name, (split, copies) in product(formats_tried(setup.precision), _ways(setup, accelerator, mixture=mixture)):
        work = _work(setup.model, setup.accelerator, name, setup.cache, split, library)
        if work is not None:
            found.append(PhysicalLimit(setup=setup, work=work, copies=copies))
            if widest:
                break
    return tuple(found)


@lru_cache(maxsize=4096)
def _work(
    model: str, accelerator_id: str, precision: str | None, cache: str | None, split: Parallelism, library: Library
) -> ReplicaWork | None:
    """Compute the work of a replica with one split, cached. Return None if engines do not support the split."""
    accelerator = library.accelerator_of(accelerator_id)
    placed = Deployment(
        model=in_format(library.model_of(model), precision),
        accelerator=accelerator,
        engine=engine_defaults("vllm", accelerator, tp=split.tp),
        parallelism=split,
        cache_dtype=CacheDtype.FP8 if cache is None else cache_dtype(cache),
    )
    return None if refusal(placed) is not None else ReplicaWork(placed)


def _ways(setup: ServedSetup, accelerator: Accelerator, *, mixture: bool) -> list[tuple[Parallelism, int]]:
    """Return the possible splits, each with its number of replicas.

    If the claim states no split, a mixture of experts may also use data parallel attention.
    """
    found = list(splits(setup, accelerator))
    if mixture and setup.data_parallel == setup.replicas == 1:
        found += [
            (Parallelism(tp=split.tp, dp=copies, expert_parallel=True), 1) for split, copies in found if copies > 1
        ]
    return found


def splits(setup: ServedSetup, accelerator: Accelerator) -> Iterator[tuple[Parallelism, int]]:
    """Yield the possible splits of the devices into one replica or several smaller replicas, widest split first.

    Each split comes with its number of replicas.
    """
    dp, whole = setup.data_parallel, setup.devices // max(1, setup.replicas)
    if dp > 1 or setup.replicas > 1:
        yield Parallelism(tp=max(1, whole // dp), dp=dp, expert_parallel=setup.expert_parallel), setup.replicas
        return
    together = max(accelerator.node.devices, (accelerator.link.domain_devices if accelerator.link else None) or 0)
    for tp in range(min(whole, together), 0, -1):
        if whole % tp == 0:
            yield Parallelism(tp=tp, expert_parallel=setup.expert_parallel), whole // tp


def without_drafts(limit: PhysicalLimit) -> PhysicalLimit:
    """Return the given limits, recomputed without speculative decoding."""
    return PhysicalLimit(setup=replace(limit.setup, drafted=False), work=limit.work, copies=limit.copies)


def max_rate(found: tuple[PhysicalLimit, ...]) -> PhysicalLimit | None:
    """Return the limits of the split with the highest token rate, among the splits whose devices hold the weights."""
    return max((one for one in found if one.holds_weights), key=lambda one: one.max_tokens_per_s, default=None)


def min_tpot(found: tuple[PhysicalLimit, ...]) -> PhysicalLimit | None:
    """Return the limits of the split with the lowest time per output token, among the splits that hold the weights."""
    return min((one for one in found if one.holds_weights), key=lambda one: one.min_tpot_s, default=None)
