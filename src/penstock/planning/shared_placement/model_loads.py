"""Describes models with their loads, and the memory and compute that each takes of a shared device."""

from collections.abc import Callable
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
from penstock.simulation.placement import Placement
from penstock.workload import Slo

PlaceOf = Callable[[Deployment, tuple[int, int]], Placement]
"""Function that predicts the step times of a deployment for typical prompt and answer lengths."""
_MIN_REQUESTS: Final = 4
"""Minimum number of requests that the KV cache of a model holds, so that a few may run together."""
_DEVIATIONS: Final = 3.0


@dataclass(frozen=True, kw_only=True)
class ModelLoad:
    """One model, its requests and their SLO."""

    name: str
    model: ModelSpec
    slo: Slo
    requests_per_s: float
    input_tokens: int
    output_tokens: int
    longest_tokens: int
    cache_dtype: CacheDtype | None = None

    @property
    def concurrent_requests(self) -> int:
        """Number of requests that the KV cache holds.

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
    def busy_fraction(self) -> float:
        """Share of the device's time that the load takes if requests run one at a time: an upper bound."""
        if self.placed.replica is None:
            return inf
        cost, load = self.placed.replica.cost, self.load
        prefill_s = cost.seconds((), ((0, load.input_tokens),))
        step_s = cost.seconds((load.input_tokens + load.output_tokens // 2,), ())
        return load.requests_per_s * (prefill_s + step_s * load.output_tokens)


def size_model(load: ModelLoad, deployment: Deployment, place: PlaceOf, *, host: bool) -> SizedModel | None:
    """Size a model's part of a device. None if the model with its KV cache does not fit on the device.

    `host` says whether sleeping weights stay in host memory. If not, they are read from disk.
    """
    alone = fit(deployment, load.longest_tokens)
    if not alone.fits or alone.capacity is None or alone.budget is None:
        return None
    shared = share_memory([deployment], [load.longest_tokens])
    share = shared.shares[0]
    capacity = alone.capacity
    kv_bytes = capacity.start_bytes + (load.concurrent_requests - 1) * capacity.request_bytes
    if kv_bytes > shared.kv_bytes:
        return None
    limited = replace(deployment, engine=replace(deployment.engine, kv_cache_bytes=max(1, kv_bytes)))
    accelerator, engine = deployment.accelerator, deployment.engine.name
    weights = alone.budget.weight_bytes
    return SizedModel(
        load=load,
        own_bytes=share.own_bytes,
        kv_bytes=kv_bytes,
        asleep_bytes=asleep_bytes(deployment),
        available_bytes=shared.available_bytes,
        placed=place(limited, (load.input_tokens, load.output_tokens)),
        wake=wake_from_host(accelerator, engine, weights) if host else wake_from_disk(accelerator, engine, weights),
        sleep=sleep_to_host(accelerator, engine, weights) if host else discard(accelerator, engine),
        from_host=host,
    )
