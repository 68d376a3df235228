"""Computes the memory budget of the fullest device, and the space left for the KV cache.

The fullest device is the one with room for the fewest requests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, Literal

from penstock.fleet.deployment import Deployment
from penstock.fleet.sglang_attention import static_fraction
from penstock.model import ModelSpec, Part
from penstock.model.sequence_mixers import CompressedAttention
from penstock.performance.memory.compressed_pages import CompressedPages
from penstock.performance.memory.request_cache import count_mixers, mixer_cache_bytes
from penstock.performance.memory.reserve import (
    Reserve,
    absorbed_bytes,
    activation_reserve,
    graph_reserve,
    runtime_reserve,
)
from penstock.performance.memory.sharding import bytes_left_on_device, refusal, stage_of_layers, weight_bytes_by_part
from penstock.performance.memory.sliding_pages import SlidingPages, slides
from penstock.performance.memory.state_pages import StateBlocks, state_pages

_USUAL_CONTEXT: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """Division of one device's memory by use.

    The amounts add up to the device's memory, or exceed that memory by the shortfall.
    """

    device_bytes: int
    weight_bytes_by_part: Mapping[Part, int]
    activation_bytes: int
    runtime_bytes: int
    graph_bytes: int
    kv_bytes: int
    unused_bytes: int
    """Bytes that stay unused: those outside the engine's memory fraction that graphs do not need."""
    shortfall_bytes: int

    @property
    def weight_bytes(self) -> int:
        """Return the bytes of all weights on the device."""
        return sum(self.weight_bytes_by_part.values())

    @property
    def total_bytes(self) -> int:
        """Return the sum of all amounts except the shortfall."""
        held = self.weight_bytes + self.activation_bytes + self.runtime_bytes + self.graph_bytes
        return held + self.kv_bytes + self.unused_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCapacity:
    """Capacity of one replica's KV cache for requests of `context_tokens` tokens."""

    context_tokens: int
    request_bytes: int
    """Bytes of one request of `context_tokens` tokens on a device."""
    start_bytes: int
    """Bytes that must be free for one request of `context_tokens` tokens before the engine starts: the bytes of the
    request, and the bytes that a step can add."""
    concurrent_requests: int | None
    """Maximum number of concurrent requests of `context_tokens` tokens, limited by the cache and by vLLM's batch. None
    if neither the cache nor a batch limits the number."""
    cached_requests: int | None
    """Number of requests of `context_tokens` tokens that would fit in the cache, without a limit on the batch. None if
    a request caches nothing."""
    tokens: int
    """Number of tokens that the cache holds in requests of `context_tokens` tokens. 0 if a request caches nothing."""
    low_tokens: int
    """P10 of `tokens`: the value if activations, runtime and graphs take their P90 over the published logs."""
    high_tokens: int
    """P90 of `tokens`: the value if activations, runtime and graphs take their P10 over the published logs."""
    longest_context_tokens: int | None
    """Tokens of the longest single request that fits in memory and in the model's context limit. None if the model
    states no context limit."""
    safe_context_tokens: int
    """Tokens of the longest single request that still fits if activations, runtime and graphs take their P90 memory."""
    logged_tokens: int | None
    """Tokens that vLLM logs as the size of the KV cache of one rank, if it starts with `context_tokens` as its limit.
    None if this is the number of tokens that the cache holds: vLLM counts differently only for layers with windows and
    for recurrent layers."""


Obstacle = Literal["refused", "weights", "fraction", "context", "model_limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoesNotFit:
    """Reason why a deployment does not fit."""

    obstacle: Obstacle
    reason: str
    shortfall_bytes: int = 0
    longest_context_tokens: int | None = None
    """The longest context that would fit. None if no shorter context fits."""


@dataclass(frozen=True, kw_only=True)
class MemoryFit:
    """Result of the memory check: the budget, the cache capacity, and the obstacle if the deployment does not fit."""

    deployment: Deployment
    context_tokens: int
    budget: MemoryBudget | None
    """Budget of the device. None if the engine would refuse the split before it loads anything."""
    capacity: CacheCapacity | None
    obstacle: DoesNotFit | None
    state_blocks: StateBlocks | None = None
    """Blocks of vLLM's KV cache, of which each running request needs one for its states. None without such layers."""

    @property
    def fits(self) -> bool:
        """Return whether at least one request of the requested context length can be served."""
        return self.obstacle is None

    @property
    def certain(self) -> bool:
        """Return whether the deployment fits at both the P10 and the P90 of the reserves, or at neither."""
        if self.capacity is None or self.capacity.cached_requests is None:
            return True
        one_each = self.context_tokens * self.deployment.parallelism.dp
        if self.fits:
            return self.capacity.low_tokens >= one_each
        return self.obstacle_is("model_limit") or self.capacity.high_tokens < one_each

    def obstacle_is(self, kind: Obstacle) -> bool:
        """Return whether the deployment fails to fit because of an obstacle of the given kind."""
        return self.obstacle is not None and self.obstacle.obstacle == kind


def usual_context_tokens(model: ModelSpec) -> int:
    """Return the default number of tokens per request: 8k, or the model's limit if the limit is lower."""
    return min(_USUAL_CONTEXT, model.max_context_tokens or _USUAL_CONTEXT)


def fit(deployment: Deployment, context_tokens: int) -> MemoryFit:
    """Return whether a deployment fits, and how the memory of its fullest device is divided."""
    return DeviceRoom(deployment).at(context_tokens)


class DeviceRoom:
    """Memory layout of a deployment, computed once for several context lengths."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.refused = refusal(deployment)
        ranks = range(0 if self.refused is not None else deployment.parallelism.pp)
        self._stages = [_Stage(deployment, stage) for stage in ranks]
        self._longest = _longest(self._stages, deployment.model.max_context_tokens)

    def at(self, context_tokens: int) -> MemoryFit:
        """Return whether requests of one context length fit, and how the memory of the fullest device is divided."""
        if self.refused is not None:
            return MemoryFit(
                deployment=self.deployment,
                context_tokens=context_tokens,
                budget=None,
                capacity=None,
                obstacle=DoesNotFit(obstacle="refused", reason=self.refused),
            )
        tightest = min(self._stages, key=lambda stage: (stage.requests(context_tokens), stage.kv_bytes))
        budget = tightest.budget()
        capacity = _capacity(self._stages, self.deployment, context_tokens, self._longest)
        return MemoryFit(
            deployment=self.deployment,
            context_tokens=context_tokens,
            budget=budget,
            capacity=capacity,
            obstacle=_memory_obstacle(self.deployment, budget)
            or _context_obstacle(self.deployment, budget, capacity, self._longest),
            state_blocks=self._state_blocks(),
        )

    def _state_blocks(self) -> StateBlocks | None:
        return min((blocks for stage in self._stages if (blocks := stage.state_blocks())), default=None)


class _Stage:
    """Memory contents of one device in a pipeline stage, and the bytes that a request takes on this device."""

    def __init__(self, deployment: Deployment, stage: int) -> None:
        self.deployment = deployment
        owner = stage_of_layers(len(deployment.model.layers), deployment.parallelism.pp)
        self.layers = tuple(index for index, at in enumerate(owner) if at == stage)
        self._mixers = count_mixers(deployment, self.layers)
        self.weights = weight_bytes_by_part(deployment, stage)
        absorbed = absorbed_bytes(deployment, self.layers)
        if absorbed:
            self.weights[Part.ATTENTION] = self.weights.get(Part.ATTENTION, 0) + absorbed
        self.weights = bytes_left_on_device(self.weights, deployment.engine.offloaded_bytes)
        self.activation = activation_reserve(deployment, last_stage=stage == deployment.parallelism.pp - 1)
        self.runtime = runtime_reserve(deployment, sum(self.weights.values()))
        self.graphs = graph_reserve(deployment)
        self.kv_bytes = self.cache_bytes_left("median")
        self._pages = _pages(deployment, self.layers)
        self._states = state_pages(deployment, self.layers)

    def cache_bytes_left(self, case: Literal["low", "median", "high"]) -> int:
        """Return the bytes left for the cache.

        The result is negative if weights and reserves alone exceed the device's memory.
        """
        engine = self.deployment.engine
        device = self.deployment.accelerator.usable_hbm_bytes
        weights = sum(self.weights.values())
        if engine.kv_cache_bytes is not None:
            return engine.kv_cache_bytes
        if engine.name == "sglang":
            # The fraction applies to the memory that is free once the runtime is up. It does not include activations.
            return int((device - _pick(self.runtime, case)) * static_fraction(self.deployment)) - weights
        taken = weights + _pick(self.activation, case) + _pick(self.runtime, case)
        if engine.graphs_inside_fraction:
            taken += _pick(self.graphs, case)
        return int(device * engine.memory_fraction) - taken

    def budget(self) -> MemoryBudget:
        device = self.deployment.accelerator.usable_hbm_bytes
        kv = max(0, self.kv_bytes)
        held = sum(self.weights.values()) + self.activation.median_bytes + self.runtime.median_bytes
        held += self.graphs.median_bytes
        return MemoryBudget(
            device_bytes=device,
            weight_bytes_by_part=dict(sorted(self.weights.items(), key=lambda item: -item[1])),
            activation_bytes=self.activation.median_bytes,
            runtime_bytes=self.runtime.median_bytes,
            graph_bytes=self.graphs.median_bytes,
            kv_bytes=kv,
            unused_bytes=max(0, device - held - kv),
            shortfall_bytes=max(0, held + kv - device, -self.kv_bytes),
        )

    def request_bytes(self, tokens: int) -> int:
        """Return the bytes of one request with `tokens` tokens on a device of the stage."""
        if isinstance(self._pages, CompressedPages):
            return self._pages.bytes(tokens, in_flight=1)
        # vLLM stores every n-th token of a request on each of n ranks of decode context parallelism.
        return mixer_cache_bytes(self.deployment, self._mixers, ceil(tokens / self.deployment.engine.context_ranks))

    def start_bytes(self, tokens: int) -> int:
        """Return the bytes that must be free for one request with `tokens` tokens before the engine starts."""
        if self._pages is not None:
            in_flight = self.deployment.engine.in_flight_tokens(self.deployment.parallelism.pp)
            return self._pages.bytes(tokens, in_flight)
        return self.request_bytes(tokens)

    def logged_tokens(self, tokens: int) -> int | None:
        """Return the tokens that vLLM logs as the size of the cache. None if all layers share one block table."""
        by_request = self.deployment.engine.release.reaches(0, 20, 1)
        if self._states is not None and self.kv_bytes > 0:
            return self._states.logged_tokens(self.kv_bytes, tokens, by_request=by_request)
        if self._pages is None or self.kv_bytes <= 0:
            return None
        if by_request:
            return int(self.kv_bytes / self.start_bytes(tokens) * tokens)
        return self._pages.tokens_of_all_layers(self.kv_bytes)

    def state_blocks(self) -> StateBlocks | None:
        """Return the blocks of the stage's cache, least first. None if the stage keeps no states or is not vLLM's."""
        if self._states is None:
            return None
        # A larger reserve leaves fewer blocks.
        high, median, low = (self._states.blocks(self.cache_bytes_left(case)) for case in ("low", "median", "high"))
        return StateBlocks(low, median, high)

    def requests(self, tokens: int, case: Literal["low", "median", "high"] = "median") -> float:
        """Return the number of requests with `tokens` tokens that fit.

        The result is infinite if the stage caches nothing.
        """
        available = self.kv_bytes if case == "median" else self.cache_bytes_left(case)
        first, needed = self.start_bytes(tokens), self.request_bytes(tokens)
        if available <= 0:
            return 0.0
        if not needed:
            return float("inf")
        # The extra bytes of a step are needed once, however many requests run.
        return available / first if available < first else 1 + (available - first) / needed


def _pages(deployment: Deployment, layers: Sequence[int]) -> CompressedPages | SlidingPages | None:
    """Return vLLM's block tables if not all layers keep the same tokens. None if all layers share one block table."""
    if deployment.engine.name != "vllm":
        return None
    if any(isinstance(deployment.model.layers[index].mixer, CompressedAttention) for index in layers):
        return CompressedPages(deployment, layers)
    sliding = deployment.engine.frees_windows and slides(deployment, layers)
    return SlidingPages(deployment, layers) if sliding else None


def _capacity(stages: list[_Stage], deployment: Deployment, context_tokens: int, longest: int) -> CacheCapacity:
    replicas, most = deployment.parallelism.dp, batch_limit(deployment)
    fitting = min(stage.requests(context_tokens) for stage in stages)
    # A larger reserve leaves less for the cache, so the high case of the reserve is the low case of the cache.
    low = min(stage.requests(context_tokens, "high") for stage in stages)
    high = min(stage.requests(context_tokens, "low") for stage in stages)
    unlimited = fitting == float("inf")
    cached = None if unlimited else int(fitting) * replicas
    return CacheCapacity(
        context_tokens=context_tokens,
        request_bytes=max(stage.request_bytes(context_tokens) for stage in stages),
        start_bytes=max(stage.start_bytes(context_tokens) for stage in stages),
        concurrent_requests=min((count for count in (cached, most) if count is not None), default=None),
        cached_requests=cached,
        tokens=0 if unlimited else int(fitting * context_tokens) * replicas,
        low_tokens=0 if unlimited else int(low * context_tokens) * replicas,
        high_tokens=0 if unlimited else int(high * context_tokens) * replicas,
        longest_context_tokens=None if deployment.model.max_context_tokens is None else longest,
        safe_context_tokens=_longest(stages, deployment.model.max_context_tokens, "high"),
        logged_tokens=min((one for stage in stages if (one := stage.logged_tokens(context_tokens))), default=None),
    )


def batch_limit(deployment: Deployment) -> int | None:
    """Return the maximum number of requests that a replica runs at once, without regard to memory. None if unlimited.

    SGLang's largest decode graph does not limit the number of running requests.
    """
    engine = deployment.engine
    return engine.max_sequences * deployment.parallelism.dp if engine.name == "vllm" else None


def _longest(stages: list[_Stage], limit: int | None, case: Literal["median", "high"] = "median") -> int:
    """Return the longest context of one request that fits, found by bisection.

    Bisection works because a longer context never takes fewer bytes.
    """
    ceiling = limit or 2**24
    if all(stage.requests(ceiling, case) >= 1 for stage in stages):
        return ceiling
    low, high = 0, ceiling
    while high - low > 1:
        middle = (low + high) // 2
        if all(stage.requests(middle, case) >= 1 for stage in stages):
            low = middle
        else:
            high = middle
    return low


def _memory_obstacle(deployment: Deployment, budget: MemoryBudget) -> DoesNotFit | None:
    if not budget.shortfall_bytes:
        return None
    where = f"{deployment.parallelism.devices} x {deployment.accelerator.id}"
    engine = deployment.engine
    if budget.total_bytes - budget.kv_bytes <= budget.device_bytes < budget.total_bytes:
        return DoesNotFit(
            obstacle="fraction",
            reason=f"a memory fraction of {engine.memory_fraction:g} leaves too little memory outside it on {where} "
            + ("for graphs" if engine.name == "vllm" else "for activations and graphs"),
            shortfall_bytes=budget.shortfall_bytes,
        )
    within = budget.total_bytes <= budget.device_bytes
    return DoesNotFit(
        obstacle="weights",
        reason="weights and reserves exceed "
        + (
            f"the fraction of memory ({engine.memory_fraction:g}) that the engine may use on {where}"
            if within
            else f"the memory of {where}"
        ),
        shortfall_bytes=budget.shortfall_bytes,
    )


def _context_obstacle(
    deployment: Deployment, budget: MemoryBudget, capacity: CacheCapacity, longest: int
) -> DoesNotFit | None:
    """Return the obstacle to serving a request of the requested context length. None if there is no obstacle.

    Memory is checked before the model's context limit, because more devices can solve only a lack of memory.
    """
    limit, asked = deployment.model.max_context_tokens, capacity.context_tokens
    if capacity.cached_requests == 0:
        beyond = "" if limit is None or asked <= limit else f", and the model allows at most {limit:,}"
        return DoesNotFit(
            obstacle="context",
            reason=f"one request of {asked:,} tokens does not fit; the longest that does has {longest:,}{beyond}",
            shortfall_bytes=max(0, capacity.start_bytes - budget.kv_bytes),
            longest_context_tokens=longest or None,
        )
    if limit is not None and asked > limit:
        return DoesNotFit(
            obstacle="model_limit",
            reason=f"the model allows at most {limit:,} tokens of context",
            longest_context_tokens=limit,
        )
    return None


def _pick(reserve: Reserve, case: Literal["low", "median", "high"]) -> int:
    return {"low": reserve.low_bytes, "median": reserve.median_bytes, "high": reserve.high_bytes}[case]
