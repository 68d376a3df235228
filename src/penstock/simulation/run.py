"""How does a fleet serve a workload? Feeds requests to the compiled loop and collects what comes out."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from penstock.errors import DeploymentError
from penstock.routing import EndpointState, Picker, RouteRequest
from penstock.simulation.collect import Collected
from penstock.simulation.loop import events
from penstock.simulation.loop.layout import build, feed, make_room
from penstock.simulation.loop.world import NONE, World
from penstock.simulation.options import Options, Policy
from penstock.simulation.outcome import Outcome
from penstock.simulation.replica import ReplicaPool
from penstock.workload import CountProgress, Requests, SloClass

_POLICIES: Final = {
    "round-robin": events.ROUND_ROBIN,
    "least-requests": events.LEAST_REQUESTS,
    "least-tokens": events.LEAST_TOKENS,
}
_BLOCK: Final = 16384
"""Rows fed at a time: the working set stays in the processor's cache."""
_EVENTS: Final = 2_000_000
"""Events between two signs of life."""


def simulate(
    pools: Sequence[ReplicaPool],
    blocks: Iterable[Requests],
    *,
    classes: Sequence[SloClass] = (),
    options: Options | None = None,
    progress: CountProgress | None = None,
) -> Outcome:
    """Run requests through a fleet. Same input, same output, to the last bit."""
    chosen = options or Options()
    _check(pools)
    world = build(pools, log_steps=chosen.log_steps, policy=_policy(chosen.route), stop_waiting=chosen.stop_waiting)
    control = world.control[0]
    control["closed"], control["users"], control["think_s"] = (
        chosen.users is not None,
        chosen.users or 0,
        chosen.think_s,
    )
    control["ask"] = callable(chosen.route)
    collected = Collected(classes, keep=chosen.keep_requests)
    rows = _cut(blocks, _BLOCK)
    while True:
        why = events.run(world, _EVENTS)
        if why == events.WHERE_TO:
            _ask(world, pools, chosen.route)
            continue
        collected.settle(world)
        if progress is not None:
            progress(collected.requests)
        if why == events.MORE_ROWS:
            block = next(rows, None)
            if block is None:
                control["final"] = 1
                continue
            world = make_room(world, pools, block, collected.base)
            control = world.control[0]
            collected.refused += feed(world, pools, block, chosen, refused=collected.refused)
        elif why != events.PAUSED:
            return collected.outcome(world, pools, stopped=why == events.SATURATED)


def _check(pools: Sequence[ReplicaPool]) -> None:
    roles = {pool.role for pool in pools}
    if not pools or roles not in ({"both"}, {"prefill", "decode"}):
        raise DeploymentError("a fleet is pools that serve whole requests, or prefill and decode pools together")
    if len({pool.name for pool in pools}) != len(pools):
        raise DeploymentError("two pools have the same name; pools are told apart by it")


def _policy(route: Policy | Picker) -> int:
    if callable(route):
        return events.LEAST_REQUESTS
    if route not in _POLICIES:
        raise DeploymentError(f"'{route}' is not a way to share requests; known: {', '.join(_POLICIES)}")
    return _POLICIES[route]


def _cut(blocks: Iterable[Requests], size: int) -> Iterator[Requests]:
    for block in blocks:
        for start in range(0, len(block), size):
            yield block.rows(start, min(start + size, len(block)))


def _ask(world: World, pools: Sequence[ReplicaPool], route: object) -> None:
    """Let a routing function decide where the next arrival goes."""
    if not callable(route):
        raise TypeError("only a routing function is asked")
    control = world.control[0]
    number = int(control["next_row"])
    row = world.rows[number & (len(world.rows) - 1)]
    request = RouteRequest(
        input_tokens=int(row["input_tokens"]),
        output_tokens=int(row["output_tokens"]),
        slo_class=int(row["slo_class"]),
        segments=_segments(world, int(row["leaf"])),
    )
    endpoints = {
        f"{pools[replica['pool']].name}/{index}": index
        for index, replica in enumerate(world.replicas)
        if not replica["decodes_only"]
    }
    states = [_state(world, pools, address, index) for address, index in endpoints.items()]
    chosen = route(request, states).address
    if chosen not in endpoints:
        raise DeploymentError(f"the route chose '{chosen}', which is none of its endpoints; return one's address")
    pool = pools[world.replicas[endpoints[chosen]]["pool"]]
    needed = pool.kv_needed_tokens(int(row["input_tokens"]), int(row["output_tokens"]))
    if needed > pool.replica.kv_tokens:
        raise DeploymentError(
            f"the route sent a request of {needed:,} tokens to '{chosen}', whose KV cache holds "
            f"{pool.replica.kv_tokens:,}; leave out endpoints that are too small for it"
        )
    events.place(world, number, endpoints[chosen], float(row["arrival_s"]))


def _state(world: World, pools: Sequence[ReplicaPool], address: str, index: int) -> EndpointState:
    replica = world.replicas[index]
    return EndpointState(
        address=address,
        pool=pools[replica["pool"]].name,
        running=int(replica["running"]),
        waiting=int(replica["waiting"]),
        kv_used_fraction=float(1 - replica["free"] / replica["blocks"]),
        outstanding_tokens=int(replica["outstanding_tokens"]),
    )


def _segments(world: World, leaf: int) -> tuple[int, ...]:
    path: list[int] = []
    while leaf != NONE:
        path.append(leaf)
        leaf = int(world.segments[0, leaf]["parent"])
    return tuple(reversed(path))
