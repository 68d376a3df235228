"""Divides the memory of one device, or of one tensor-parallel group, between the engines of several models.

Each engine keeps its own weights, activations, runtime and graphs, as `performance.memory.fit` computes them for one
model. The engines divide the rest, so that each model's KV cache holds the same number of requests, times its weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.errors import DeploymentError
from penstock.fleet.deployment import Deployment
from penstock.performance.memory.budget import MemoryBudget, MemoryFit, fit
from penstock.performance.memory.reserve import activation_reserve, graph_reserve, runtime_reserve


@dataclass(frozen=True, kw_only=True)
class ModelShare:
    """One model's part of a shared device."""

    alone: MemoryFit
    """Result with the whole device."""
    own_bytes: int
    """Weights, activations, runtime and graphs on one device: all that is not KV cache."""
    asleep_bytes: int
    """Bytes on the device while the model sleeps: the runtime and the graphs of its process."""
    kv_bytes: int
    """KV cache on one device. 0 if the models do not fit together."""
    fit: MemoryFit | None
    """Result with this KV cache. None if the models do not fit together."""

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.alone.deployment.model.name

    @property
    def resident_bytes(self) -> int:
        """Bytes on the device while the model serves."""
        return self.own_bytes + self.kv_bytes


@dataclass(frozen=True, kw_only=True)
class SharedMemory:
    """Memory of one device that several models share."""

    shares: tuple[ModelShare, ...]
    available_bytes: int
    """Bytes of the device that engines may use."""
    kv_bytes: int
    """Bytes left for all KV caches. Negative if the models exceed the device."""
    low_kv_bytes: int
    """P10 of `kv_bytes`: the value if all reserves take their P90."""
    high_kv_bytes: int

    @property
    def fits(self) -> bool:
        """Return whether each model can serve at least one request of the context length."""
        return bool(self.shares) and all(share.fit is not None and share.fit.fits for share in self.shares)

    @property
    def certain(self) -> bool:
        """Return whether the answer is the same at the P10 and the P90 of the reserves."""
        if not self.fits:
            return self.high_kv_bytes <= 0
        return self.low_kv_bytes >= sum(_request_bytes(share.alone) for share in self.shares)


def share_memory(
    deployments: Sequence[Deployment], context_tokens: Sequence[int], *, weights: Sequence[float] = ()
) -> SharedMemory:
    """Divide the memory of a device between models. `weights` are the relative numbers of requests of the models.

    With one model, its share is the whole KV cache that the engine would have alone.
    """
    _check(deployments)
    alone = [fit(one, tokens) for one, tokens in zip(deployments, context_tokens, strict=True)]
    budgets = [_budget(one) for one in alone]
    own = [_own_bytes(budget) for budget in budgets]
    # The cache that an engine leaves may be negative, which `kv_bytes` of a budget does not show.
    available = min(_available_bytes(one, budget) for one, budget in zip(deployments, budgets, strict=True))
    left = available - sum(own)
    spans = [_reserve_span(one, budget) for one, budget in zip(deployments, budgets, strict=True)]
    parts = _divide(left, alone, list(weights) or [1.0] * len(alone))
    shares = [
        ModelShare(
            alone=whole,
            own_bytes=owned,
            asleep_bytes=asleep_bytes(whole.deployment),
            kv_bytes=part,
            fit=_with_cache(whole, part, shared=len(alone) > 1) if left > 0 else None,
        )
        for whole, owned, part in zip(alone, own, parts, strict=True)
    ]
    return SharedMemory(
        shares=tuple(shares),
        available_bytes=available,
        kv_bytes=left,
        low_kv_bytes=left - sum(high for _, high in spans),
        high_kv_bytes=left + sum(low for low, _ in spans),
    )


def asleep_bytes(deployment: Deployment) -> int:
    """Return the bytes that a sleeping engine keeps on a device: its runtime and its captured graphs.

    One published log agrees: a sleeping vLLM with 0.7 GiB of weights kept 1.27 GiB of an H100
    (llm-d-fast-model-actuation, issue 746, read 2026-11-18).
    """
    return runtime_reserve(deployment, 0).median_bytes + graph_reserve(deployment).median_bytes


def _check(deployments: Sequence[Deployment]) -> None:
    if not deployments:
        raise DeploymentError("no model is named; name at least one")
    first = deployments[0]
    for one in deployments:
        if one.parallelism.pp > 1 or one.parallelism.dp > 1:
            raise DeploymentError(
                f"{one.model.name}: models share one device or one tensor-parallel group; use pp 1 and dp 1"
            )
        if (one.accelerator.id, one.parallelism.tp) != (first.accelerator.id, first.parallelism.tp):
            raise DeploymentError("models that share devices must have the same accelerator and the same tp")


def _budget(result: MemoryFit) -> MemoryBudget:
    if result.budget is None:
        reason = "" if result.obstacle is None else result.obstacle.reason
        raise DeploymentError(f"{result.deployment.model.name}: {reason}")
    return result.budget


def _own_bytes(budget: MemoryBudget) -> int:
    return budget.weight_bytes + budget.activation_bytes + budget.runtime_bytes + budget.graph_bytes


def _available_bytes(deployment: Deployment, budget: MemoryBudget) -> int:
    """Return the bytes that engines may use: a model's own bytes and the KV cache that it would have alone."""
    if budget.kv_bytes > 0:
        return min(_own_bytes(budget) + budget.kv_bytes, budget.device_bytes)
    return int(budget.device_bytes * deployment.engine.memory_fraction)


def _reserve_span(deployment: Deployment, budget: MemoryBudget) -> tuple[int, int]:
    """Return by how much the reserves may be smaller (P10) and larger (P90) than their medians."""
    reserves = (
        activation_reserve(deployment, last_stage=True),
        runtime_reserve(deployment, budget.weight_bytes),
        graph_reserve(deployment),
    )
    smaller = sum(one.median_bytes - one.low_bytes for one in reserves)
    return smaller, sum(one.high_bytes - one.median_bytes for one in reserves)


def _request_bytes(result: MemoryFit) -> int:
    return 0 if result.capacity is None else result.capacity.start_bytes


def _divide(left: int, alone: Sequence[MemoryFit], weights: Sequence[float]) -> list[int]:
    """Divide bytes so that each cache holds the same number of requests, times the model's weight.

    The first request of a cache may need more bytes than the others. If there is no room for the first requests, the
    bytes are divided in proportion to them.
    """
    if len(alone) == 1 or left <= 0:
        return [max(0, left)] * len(alone)
    first = [_request_bytes(one) for one in alone]
    each = [0 if one.capacity is None else one.capacity.request_bytes for one in alone]
    more = sum(weight * size for weight, size in zip(weights, each, strict=True))
    extra = sum(one - size for one, size in zip(first, each, strict=True))
    count = (left - extra) / more if more else 0.0
    parts = [one + (count * weight - 1) * size for one, weight, size in zip(first, weights, each, strict=True)]
    if any(part < one for part, one in zip(parts, first, strict=True)):
        parts = [float(one * weight) for one, weight in zip(first, weights, strict=True)]
    total = sum(parts)
    return [int(left * part / total) if total else 0 for part in parts]


def _with_cache(alone: MemoryFit, kv_bytes: int, *, shared: bool) -> MemoryFit:
    """Return the result of the engine with a given KV cache. A model alone keeps the engine's own division."""
    if not shared:
        return alone
    deployment = alone.deployment
    engine = replace(deployment.engine, kv_cache_bytes=kv_bytes)
    return fit(replace(deployment, engine=engine), alone.context_tokens)
