"""Allocates the arrays of a simulation run, loads requests into the arrays, and enlarges the arrays when needed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import DeploymentError
from penstock.performance.step.step_cost import StepCost
from penstock.routing.length_estimates import new_lengths
from penstock.routing.model_residency import ASLEEP, AWAKE
from penstock.routing.records import FLIGHT, REPORT, new_request
from penstock.simulation.loop.initial_visibility import (
    MAX_RETURNS,
    faults_of,
    parameters_for,
    pickers_endpoints,
    promises_of,
    reports_on_their_way,
    set_visibility,
)
from penstock.simulation.loop.segment_places import SegmentPlaces
from penstock.simulation.loop.step_events import FAR
from penstock.simulation.loop.world import (
    BINS,
    CACHED,
    CLASS_QUEUE,
    CONTROL,
    COST,
    DEVICE,
    EVENT,
    EVICT_BY_HARM,
    EVICT_BY_USE,
    NONE,
    REPLICA,
    RETURN,
    ROW,
    SEGMENT,
    SWAP,
    TIMELINE,
    UNSEEN,
    World,
    power_of_two,
)
from penstock.simulation.model_swapping import SwappingDevice, assign_replicas
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run_options import Options, Routing
from penstock.workload import ClosedLoop, Prefixes, Requests, SloClass

_FIRST_ROWS = 1 << 15
_FIRST_STEPS = 1 << 12
_MAX_UNSEEN = 1 << 14
_FIRST_WIDTH_S = 1 / 16


def build(pools: Sequence[ReplicaPool], options: Options, classes: Sequence[SloClass], *, policy: int) -> World:
    """Allocate the arrays of an empty fleet."""
    kinds = max(len(pool.replica.cost.limits) for pool in pools)
    count = sum(pool.schedulers for pool in pools)
    control = np.zeros(1, CONTROL)
    control["policy"], control["stop_waiting"], control["width_s"] = policy, options.stop_waiting, _FIRST_WIDTH_S
    routing, replicas = options.routing or Routing(), _replicas(pools)
    _place_on_devices(replicas, pools, options.devices)
    heads = np.unique(replicas["head"])
    known = 1 if options.routing is None else len(heads)
    set_visibility(control, routing, len(heads), asked=options.routing is not None)
    control["first_of_equals"] = options.first_of_equals and options.route != "round-robin"
    limits = np.full((len(pools), kinds), 2**62, np.int64)
    context_s, pair_s = np.zeros((len(pools), kinds)), np.zeros((len(pools), kinds))
    for index, pool in enumerate(pools):
        cost = _rank_cost(pool)
        used = slice(0, len(cost.limits))
        limits[index, used], context_s[index, used], pair_s[index, used] = cost.limits, cost.context_s, cost.pair_s
    return World(
        control=control,
        rows=np.zeros(_FIRST_ROWS, ROW),
        replicas=replicas,
        ends=np.full(count, np.inf),
        wakes=np.zeros(options.users or 1),
        pauses=np.zeros(options.users or 1),
        heads=heads,
        costs=_costs(pools),
        limits=limits,
        context_s=context_s,
        pair_s=pair_s,
        batch_factors=_batch_factors(pools),
        contexts=np.zeros((count, kinds), np.int64),
        growing=np.zeros((count, kinds), np.int64),
        phases=np.zeros((count, max(pool.replica.block_tokens for pool in pools)), np.int64),
        calendar=np.full((count, _FIRST_STEPS), NONE, np.int64),
        chain=np.full((_FIRST_ROWS, kinds + 1), NONE, np.int64),
        segments=np.zeros((len(pools), 1), SEGMENT),
        cached=np.zeros((count, 1), CACHED),
        path=np.zeros(64, np.int64),
        leaving=np.zeros(max(pool.replica.max_sequences for pool in pools), np.int64),
        tokens_between=np.zeros((len(pools), BINS), np.int64),
        timeline=np.zeros((len(pools), TIMELINE, 6)),
        log=np.zeros(options.log_steps, EVENT),
        endpoints=pickers_endpoints(pools, routing)[:, :known].copy(),
        flights=np.zeros(_FIRST_ROWS if options.routing is not None else 1, FLIGHT),
        reports=np.zeros((routing.pickers, power_of_two(reports_on_their_way(routing, len(heads)))), REPORT),
        request=new_request(),
        hits=np.zeros(len(heads), np.int64),
        parameters=np.tile(parameters_for(routing, classes), (routing.pickers, 1)),
        lengths=new_lengths(max(1, len(classes)), answer_tokens=routing.answer_tokens),
        promises=promises_of(classes, routing, options.patience_s),
        held=np.full(max(1, len(classes)), NONE, CLASS_QUEUE),
        may_leave=np.full(max(1, len(classes)), NONE, CLASS_QUEUE),
        returns=np.zeros(MAX_RETURNS if routing.max_tries else 1, RETURN),
        unseen=np.zeros(_MAX_UNSEEN if options.routing is not None else 1, UNSEEN),
        faults=faults_of(routing, pools),
        devices=_devices(options.devices),
        swaps=np.zeros(options.log_swaps, SWAP),
    )


def _replicas(pools: Sequence[ReplicaPool]) -> NDArray[Any]:
    replicas = np.zeros(sum(pool.schedulers for pool in pools), REPLICA)
    for name in REPLICA.names or ():
        if name.endswith(("_first", "_last")):
            replicas[name] = NONE
    replicas["end_s"], replicas["next_event"], replicas["slowness"] = np.inf, FAR, 1.0
    first = 0
    for index, pool in enumerate(pools):
        mine = replicas[first : first + pool.schedulers]
        replica = pool.replica
        mine["head"] = first + np.arange(pool.schedulers) // replica.ranks * replica.ranks
        mine["ranks"], mine["together"] = replica.ranks, replica.steps_together
        mine["ahead"], mine["prompts_wait"] = replica.asynchronous, replica.prompts_wait_steps
        first += pool.schedulers
        mine["pool"] = mine["cost"] = index
        mine["blocks"] = mine["free"] = mine["blank"] = replica.kv_blocks
        mine["request_s"], mine["first_ratio"] = replica.request_s, replica.first_ratio
        mine["block_tokens"], mine["caching"] = replica.block_tokens, replica.prefix_caching
        mine["context"] = FAR if replica.context_tokens is None else replica.context_tokens
        mine["max_tokens"], mine["max_requests"] = replica.max_batched_tokens, replica.max_sequences
        mine["prefills_only"], mine["decodes_only"] = pool.role == "prefill", pool.role == "decode"
    return replicas


def _devices(shared: Sequence[SwappingDevice]) -> NDArray[Any]:
    devices = np.zeros(len(shared), DEVICE)
    for entry, device in zip(devices, shared, strict=True):
        entry["free_bytes"] = entry["least_free_bytes"] = device.capacity_bytes - device.awake_bytes
        entry["stepping"], entry["models"] = NONE, len(device.models)
        entry["eviction"] = EVICT_BY_HARM if device.eviction == "least-harm" else EVICT_BY_USE
    return devices


def _place_on_devices(replicas: NDArray[Any], pools: Sequence[ReplicaPool], shared: Sequence[SwappingDevice]) -> None:
    """Write the devices that replicas share into their records, and link the replicas of each device in a circle."""
    replicas["on_device"], replicas["residency"] = NONE, AWAKE
    if not shared:
        return
    if any(pool.replica.ranks > 1 or pool.role != "both" for pool in pools):
        raise DeploymentError("models on shared devices need engines of one rank that both prefill and decode")
    last: dict[int, int] = {}
    assigned = assign_replicas(shared, [(pool.name, pool.replicas) for pool in pools])
    for r, (index, place) in enumerate(assigned):
        if index == NONE:
            continue
        model, entry = shared[index].models[place], replicas[r]
        entry["on_device"], entry["swap_bytes"] = index, model.awake_bytes - model.asleep_bytes
        entry["wake_s"], entry["sleep_s"], entry["patience_s"] = model.wake_s, model.sleep_s, model.patience_s
        entry["residency"] = AWAKE if model.awake or model.kept_awake else ASLEEP
        entry["kept_awake"] = model.kept_awake
        before = last.get(index, r)
        entry["next_on_device"] = replicas[before]["next_on_device"] if before != r else r
        replicas[before]["next_on_device"] = r
        last[index] = r


def _costs(pools: Sequence[ReplicaPool]) -> NDArray[Any]:
    costs = np.zeros(len(pools), COST)
    for entry, pool in zip(costs, pools, strict=True):
        cost, own = pool.replica.cost, _rank_cost(pool)
        entry["step_s"], entry["decode_s"], entry["prefill_token_s"] = cost.step_s, own.decode_s, own.prefill_token_s
        entry["experts_decode_s"], entry["experts_prefill_token_s"] = (
            cost.experts_decode_s,
            cost.experts_prefill_token_s,
        )
        entry["prompt_step_s"] = cost.prompt_step_s
        entry["expert_s"], entry["expert_miss"] = cost.expert_s, cost.expert_miss
        if pool.transfer is not None:
            entry["transfer_token_s"], entry["transfer_start_s"] = pool.transfer.token_s, pool.transfer.start_s
    return costs


def _batch_factors(pools: Sequence[ReplicaPool]) -> NDArray[np.float64]:
    """Return the factor on the time of a step, by pool and number of decoding requests of an engine."""
    most = max(pool.replica.max_sequences * pool.replica.ranks for pool in pools)
    return np.array([pool.replica.cost.factors(np.arange(most + 1)) for pool in pools])


def _rank_cost(pool: ReplicaPool) -> StepCost:
    """Return the step cost of one scheduler's tokens.

    If the engine has several ranks, the cost that its ranks share is excluded.
    """
    cost = pool.replica.cost
    return cost if cost.ranks == 1 else cost.of_rank


def make_room(
    world: World, pools: Sequence[ReplicaPool], block: Requests, base: int, places: SegmentPlaces
) -> tuple[World, Requests]:
    """Enlarge the arrays of rows, calendar and segments if a block of requests would not fit.

    Return the block with segment names replaced by their places in the arrays.
    """
    loaded = int(world.control[0]["loaded_rows"])
    if loaded + len(block) - base > len(world.rows):
        world = _more_rows(world, power_of_two(loaded + len(block) - base), base, loaded)
    longest = int(block.output_tokens.max(initial=0)) + 1
    if longest >= world.calendar.shape[1]:
        world = _longer_calendar(world, power_of_two(longest + 1))
    if block.prefixes is not None:
        world, prefixes = places.enter(world, block.prefixes, base)
        world, block = _know_segments(world, pools, prefixes), replace(block, prefixes=prefixes)
    return world, block


def _more_rows(world: World, size: int, base: int, loaded: int) -> World:
    numbers = np.arange(base, loaded)
    rows, chain = np.zeros(size, ROW), np.full((size, world.chain.shape[1]), NONE, np.int64)
    old = numbers & (len(world.rows) - 1)
    rows[numbers & (size - 1)], chain[numbers & (size - 1)] = world.rows[old], world.chain[old]
    if not world.control[0]["routed"]:
        return world._replace(rows=rows, chain=chain)
    flights = np.zeros(size, FLIGHT)
    flights[numbers & (size - 1)] = world.flights[old]
    return world._replace(rows=rows, chain=chain, flights=flights)


def _longer_calendar(world: World, size: int) -> World:
    old = world.calendar.shape[1]
    calendar = np.full((len(world.replicas), size), NONE, np.int64)
    for index, replica in enumerate(world.replicas):
        slots = np.flatnonzero(world.calendar[index] != NONE)
        steps = replica["step"] + ((slots - replica["step"]) & (old - 1))
        calendar[index, steps & (size - 1)] = world.calendar[index, slots]
    return world._replace(calendar=calendar)


def _know_segments(world: World, pools: Sequence[ReplicaPool], prefixes: Prefixes) -> World:
    """Write the first KV block and the number of KV blocks of each prompt segment into the arrays."""
    lengths = np.diff(prefixes.path_start)
    first = np.repeat(prefixes.path_start[:-1], lengths)
    depth = np.arange(len(prefixes.path)) - first
    totals = np.concatenate([[0], np.cumsum(prefixes.segment_tokens[prefixes.path], dtype=np.int64)])
    before = np.concatenate([[NONE], prefixes.path[:-1]])[: len(prefixes.path)]
    _place(world, pools, prefixes.path, np.where(depth > 0, before, NONE), depth, totals[:-1] - totals[first], prefixes)
    owners = np.flatnonzero(prefixes.own != NONE)
    leaves, shared = _leaves(prefixes), prefixes.shared_tokens()
    _place(world, pools, prefixes.own[owners], leaves[owners], lengths[owners], shared[owners], prefixes)
    deepest = int(lengths.max(initial=0)) + 2
    if deepest > len(world.path):
        world = world._replace(path=np.zeros(2 * deepest, np.int64))
    return world


def _place(
    world: World,
    pools: Sequence[ReplicaPool],
    ids: NDArray[np.int32],
    parents: NDArray[np.int64],
    depths: NDArray[np.int64],
    starts: NDArray[np.int64],
    prefixes: Prefixes,
) -> None:
    ends = starts + prefixes.segment_tokens[ids]
    for index, pool in enumerate(pools):
        size = pool.replica.block_tokens
        table = world.segments[index]
        table["parent"][ids], table["depth"][ids] = parents, depths
        table["first_block"][ids], table["blocks"][ids] = starts // size, ends // size - starts // size


def _leaves(prefixes: Prefixes) -> NDArray[np.int64]:
    some = np.diff(prefixes.path_start) > 0
    leaves = np.full(len(prefixes), NONE, np.int64)
    leaves[some] = prefixes.path[prefixes.path_start[1:][some] - 1]
    return leaves


def _assigned_pools(pools: Sequence[ReplicaPool], block: Requests, options: Options) -> NDArray[np.int64]:
    """Return the pool to which each request must go, or NONE if a request may go to any pool."""
    if options.pool_of is None:
        return np.full(len(block), NONE, np.int64)
    assigned = np.asarray(options.pool_of(block), np.int64)
    if assigned.shape != (len(block),) or not np.isin(assigned, range(NONE, len(pools))).all():
        raise DeploymentError(f"pool_of must give each request a pool from 0 to {len(pools) - 1}, or {NONE} for any")
    for index, pool in enumerate(pools):
        if pool.role == "decode" and (assigned == index).any():
            raise DeploymentError(f"pool_of sends prompts to '{pool.name}', which only decodes; name a prefill pool")
    return assigned


def _fits(pools: Sequence[ReplicaPool], block: Requests, assigned: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return, for each request, whether it fits a replica that may prefill it and a replica that may decode it."""
    inputs, outputs = block.input_tokens.astype(np.int64), block.output_tokens.astype(np.int64)
    prefilled, decoded = np.zeros(len(block), np.bool_), np.zeros(len(block), np.bool_)
    for index, pool in enumerate(pools):
        held = pool.holds(inputs, outputs)
        if pool.role != "decode":
            prefilled |= held & ((assigned == NONE) | (assigned == index))
        if pool.role != "prefill":
            decoded |= held
    return prefilled & decoded


def beyond_context(pools: Sequence[ReplicaPool], block: Requests) -> int:
    """Return the number of requests that exceed the model's context in every pool."""
    inputs, outputs = block.input_tokens.astype(np.int64), block.output_tokens.astype(np.int64)
    return int(np.logical_and.reduce([pool.exceeds_context(inputs, outputs) for pool in pools]).sum())


def feed(
    world: World, pools: Sequence[ReplicaPool], block: Requests, options: Options, *, oversized: int
) -> NDArray[np.uint8]:
    """Load a block of requests into the rows. Return the SLO classes of the requests that no allowed replica can hold.

    Requests that no allowed replica can hold are left out. `oversized` is their number in earlier blocks; it keeps
    the numbering of all requests that arrived.
    """
    assigned = _assigned_pools(pools, block, options)
    fits = _fits(pools, block, assigned)
    kept = np.flatnonzero(fits)
    control = world.control[0]
    start = int(control["loaded_rows"])
    leaves = np.full(len(kept), NONE, np.int64)
    if block.prefixes is not None:
        own = block.prefixes.own
        leaves = np.where(own == NONE, _leaves(block.prefixes), own)[kept]
    for places, part in _ring_slices(start, len(kept), len(world.rows)):
        rows, fed = world.rows[places], kept[part]
        rows.view(np.uint8)[:] = 0
        rows["number"] = start + oversized + fed
        rows["arrival_s"], rows["slo_class"] = block.arrival_s[fed], block.slo_class[fed]
        rows["input_tokens"], rows["output_tokens"] = block.input_tokens[fed], block.output_tokens[fed]
        rows["leaf"], rows["doubled"], rows["pool"] = leaves[part], NONE, assigned[fed]
    control["loaded_rows"] = start + len(kept)
    if not control["closed"]:
        control["known_rows"] = control["loaded_rows"]
    elif options.users is not None and start < options.users:
        first = min(options.users, int(control["loaded_rows"]))
        world.rows["arrival_s"][np.arange(start, first) & (len(world.rows) - 1)] = 0.0
        control["known_rows"] = first
    return block.slo_class[~fits]


def _ring_slices(start: int, count: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Yield the places of consecutive rows in a ring, and the rows that go there: one slice, or two if it wraps."""
    first = start % size
    unwrapped = min(count, size - first)
    yield slice(first, first + unwrapped), slice(0, unwrapped)
    yield slice(0, count - unwrapped), slice(unwrapped, count)


class Users:
    """The users of a closed loop: the start time of each user, and the pause before each further request.

    If there is no think time and no client lag, users do not pause, and the user whose request ends first sends first.
    """

    def __init__(self, world: World, options: Options) -> None:
        control = world.control[0]
        control["closed"] = options.users is not None
        self._pauses: Iterator[NDArray[np.float64]] | None = None
        self._held = np.empty(0)
        if options.users is None:
            return
        lags = (world.replicas["request_s"] != 0) | (world.replicas["first_ratio"] != 1)
        control["users"], control["pauses"] = options.users, options.think_s > 0 or lags.any()
        if options.think_s > 0:
            loop = ClosedLoop(users=options.users, think_s=options.think_s)
            world.wakes[:] = loop.starts_s(options.seed, options.spread_s)
            self._pauses = loop.pauses(options.seed)
            world.pauses[:] = self._take(options.users)

    def pause(self, world: World, first: int) -> None:
        """Write the user's pause before each newly loaded request, from row `first` on."""
        if not world.control[0]["pauses"]:
            return
        numbers = np.arange(first, int(world.control[0]["loaded_rows"]))
        world.rows["arrival_s"][numbers & (len(world.rows) - 1)] = self._take(len(numbers))
        if first == 0 and len(numbers):
            world.rows["arrival_s"][0] = world.wakes[0]

    def _take(self, rows: int) -> NDArray[np.float64]:
        if self._pauses is None:
            return np.zeros(rows)
        while len(self._held) < rows:
            self._held = np.concatenate([self._held, next(self._pauses)])
        taken, self._held = self._held[:rows], self._held[rows:]
        return taken
