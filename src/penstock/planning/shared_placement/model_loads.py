"""Describes models with their loads, and the memory and compute that each takes of a shared device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, sqrt
from typing import Final

from penstock.fleet.deployment import Deployment
from penstock.model import CacheDtype, ModelSpec
from penstock.performance.memory.budget import fit
from penstock.performance.residency.co_residence import asleep_bytes, share_memory
from penstock.performance.residency.transition_times import (
    TransitionSeconds,
    discard,
    sleep_to_host,
    wake_from_disk,
    wake_from_host,
)
from penstock.planning.spec.plan_types import Share
from penstock.simulation.placement import Placement
from penstock.simulation.run_options import Routing
from penstock.workload import Slo

PlaceOf = Callable[[Deployment, tuple[int, int]], Placement]
"""Function that predicts the step times of a deployment for typical prompt and answer lengths."""
_MIN_REQUESTS: Final = 4
"""Minimum number of requests that the KV cache of a model holds, so that a few may run together."""
_DEVIATIONS: Final = 3.0
_LONGER: Final = 1.1
"""Longest answer over the mean answer: simulated answers vary by 10%."""


@dataclass(frozen=True, kw_only=True)
class ModelLoad:
    """One model, its requests and their SLO."""

    name: str
    model: ModelSpec
    slo: Slo
    requests_per_s: float
    shares: tuple[Share, ...]
    """Lengths of the requests, with their fractions."""
    cache_dtype: CacheDtype | None = None

    @property
    def input_tokens(self) -> int:
        """Mean prompt of a request."""
        return self._mean([share.bucket.input_tokens for share in self.shares])

    @property
    def output_tokens(self) -> int:
        """Mean answer of a request."""
        return self._mean([share.bucket.output_tokens for share in self.shares])

    @property
    def longest_tokens(self) -> int:
        """Tokens of the longest request that is simulated."""
        longest = max(share.bucket.input_tokens + ceil(_LONGER * share.bucket.output_tokens) for share in self.shares)
        return min(longest, self.model.max_context_tokens or longest)

    @property
    def context_tokens(self) -> int:
        """Context that the engine is started with: the longest prompt, and the longest answer or expected answer.

        A router expects an answer of `Routing.answer_tokens` before it has seen any. It sends no request to an engine
        whose context ends before the expected answer.
        """
        longest = max(share.bucket.input_tokens for share in self.shares)
        answer = max(ceil(_LONGER * share.bucket.output_tokens) for share in self.shares)
        context = longest + max(answer, ceil(Routing().answer_tokens))
        return min(context, self.model.max_context_tokens or context)

    def _mean(self, tokens: Sequence[int]) -> int:
        fractions = [share.fraction for share in self.shares]
        return max(1, round(sum(one * part for one, part in zip(tokens, fractions, strict=True)) / sum(fractions)))

    @property
    def concurrent_requests(self) -> int:
        """Number of requests that the KV cache should hold.

        This is the mean number in flight if each takes as long as the SLO allows, and three standard deviations more.
        """
        allowed_s = min(
            self.slo.e2e_s or inf,
            (self.slo.ttft_s or 1.0) + (self.slo.tpot_s or 0.1) * self.output_tokens,
        )
        mean = self.requests_per_s * allowed_s
        return max(_MIN_REQUESTS, ceil(mean + _DEVIATIONS * sqrt(mean)))


@dataclass(frozen=True, kw_only=True)
class SizedModel:
    """A model on one kind of device: its memory, its engine, and its times to sleep and to wake."""

    load: ModelLoad
    own_bytes: int
    kv_bytes: int
    held_requests: int
    """Number of requests that the KV cache holds."""
    asleep_bytes: int
    available_bytes: int
    """Bytes of the device that engines may use."""
    placed: Placement
    wake: TransitionSeconds | None
    """None if undetermined, so that the model must be kept awake."""
    sleep: TransitionSeconds | None
    from_host: bool

    @property
    def awake_bytes(self) -> int:
        """Bytes while the model serves."""
        return self.own_bytes + self.kv_bytes

    @property
    def min_busy_fraction(self) -> float:
        """Smallest share of the device's time that the load takes: every step has as many requests as the cache holds.

        Above 1, the device falls behind in any case. Below 1, only a simulation tells whether the SLO is kept.
        """
        if self.placed.replica is None:
            return inf
        cost, load = self.placed.replica.cost, self.load
        batch = max(1, min(self.held_requests, self.placed.deployment.engine.max_sequences))
        prefill_s = cost.seconds((), ((0, load.input_tokens),))
        step_s = cost.seconds((load.input_tokens + load.output_tokens // 2,) * batch, ())
        return load.requests_per_s * (prefill_s + step_s * load.output_tokens / batch)


def size_model(load: ModelLoad, deployment: Deployment, place: PlaceOf, *, host: bool) -> SizedModel | None:
    """Size a model's part of a device. None if the device does not hold the model with a KV cache for four requests.

    `host` says whether sleeping weights stay in host memory. If not, they are read from disk.
    """
    alone = fit(deployment, load.longest_tokens)
    if not alone.fits or alone.capacity is None or alone.budget is None:
        return None
    shared = share_memory([deployment], [load.longest_tokens])
    share = shared.shares[0]
    capacity = alone.capacity
    room = 1 + int((shared.kv_bytes - capacity.start_bytes) // capacity.request_bytes)
    held = min(load.concurrent_requests, room)
    if held < _MIN_REQUESTS:
        return None
    kv_bytes = capacity.start_bytes + (held - 1) * capacity.request_bytes
    limited = replace(deployment, engine=replace(deployment.engine, kv_cache_bytes=max(1, kv_bytes)))
    accelerator, engine = deployment.accelerator, deployment.engine.name
    weights = alone.budget.weight_bytes
    return SizedModel(
        load=load,
        own_bytes=share.own_bytes,
        kv_bytes=kv_bytes,
        held_requests=held,
        asleep_bytes=asleep_bytes(deployment),
        available_bytes=shared.available_bytes,
        placed=place(limited, (load.input_tokens, load.output_tokens)),
        wake=wake_from_host(accelerator, engine, weights) if host else wake_from_disk(accelerator, engine, weights),
        sleep=sleep_to_host(accelerator, engine, weights) if host else discard(accelerator, engine),
        from_host=host,
    )
