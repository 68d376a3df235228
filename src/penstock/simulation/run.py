"""Feeds requests to the compiled simulation loop and collects the outcome."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, cast

from penstock.errors import DeploymentError
from penstock.routing.harm import pick as least_harm
from penstock.routing.policy_function import NOWHERE, Pick, PythonPick, policy_address
from penstock.simulation.collect import Collected
from penstock.simulation.loop import events
from penstock.simulation.loop.layout import Users, beyond_context, build, feed, make_room
from penstock.simulation.loop.segment_places import SegmentPlaces
from penstock.simulation.loop.world import World
from penstock.simulation.outcome import Outcome
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run_options import Options, Policy, Routing
from penstock.workload import CountProgress, Requests, SloClass

_POLICIES: Final = {
    "round-robin": events.ROUND_ROBIN,
    "least-requests": events.MIN_REQUESTS,
    "least-tokens": events.MIN_TOKENS,
}
_BLOCK: Final = 16384
"""Number of requests that are fed to the loop at a time.

With so few, the working set stays in the processor's cache.
"""
_EVENTS: Final = 2_000_000
"""Number of simulated events between two calls of the progress callback."""


def simulate(
    pools: Sequence[ReplicaPool],
    blocks: Iterable[Requests],
    *,
    classes: Sequence[SloClass] = (),
    options: Options | None = None,
    progress: CountProgress | None = None,
) -> Outcome:
    """Run requests through a fleet. The same input gives the same output, to the last bit."""
    chosen = options or Options()
    _check(pools)
    world = build(pools, chosen, classes, policy=_policy(chosen.route))
    control = world.control[0]
    users = Users(world, chosen)
    asked = _python_pick(chosen.routing, world)
    pick = _policy_entry(chosen.routing, asked)
    collected = Collected(classes, replicas=len(world.replicas), keep=chosen.keep_requests, warm_up=chosen.warm_up)
    rows, places = _split_blocks(blocks, _BLOCK), SegmentPlaces()
    while True:
        why = events.run(world, _EVENTS, cast("Any", pick))
        if why in {events.SAMPLED, events.IMPOSSIBLE}:
            _consult(why, world, pools, chosen.routing, asked)
            continue
        collected.settle(world)
        if progress is not None:
            progress(collected.requests)
        if why == events.MORE_ROWS:
            block = next(rows, None)
            if block is None:
                control["final"] = 1
                continue
            world, block = make_room(world, pools, block, collected.base, places)
            control = world.control[0]
            collected.beyond_context += beyond_context(pools, block)
            first = int(control["loaded_rows"])
            collected.leave_out(feed(world, pools, block, chosen, oversized=collected.oversized))
            users.pause(world, first)
        elif why != events.PAUSED:
            return collected.outcome(world, pools, stopped=why == events.SATURATED, devices=chosen.devices)


def _check(pools: Sequence[ReplicaPool]) -> None:
    roles = {pool.role for pool in pools}
    if not pools or roles not in ({"both"}, {"prefill", "decode"}):
        raise DeploymentError("a fleet needs a pool that serves whole requests, or a prefill pool and a decode pool")
    if len({pool.name for pool in pools}) != len(pools):
        raise DeploymentError("two pools have the same name; give each pool its own name")


def _policy(route: Policy) -> int:
    if route not in _POLICIES:
        raise DeploymentError(f"'{route}' is not a routing policy; use one of {', '.join(_POLICIES)}")
    return _POLICIES[route]


def _python_pick(routing: Routing | None, world: World) -> PythonPick | None:
    if routing is None or routing.pick is None or not routing.is_python:
        return None
    return PythonPick(routing.pick, world.request, world.endpoints, world.hits, world.parameters)


def _policy_entry(routing: Routing | None, asked: PythonPick | None) -> Pick | int:
    """Return the policy in the form that the loop calls: an address, or a function if the loop runs as Python."""
    if cast("Any", events.run).native is None:
        return asked or (least_harm if routing is None else routing.pick or least_harm)
    if asked is not None:
        return asked.address()
    return 0 if routing is None else policy_address(routing.pick or least_harm)


def _split_blocks(blocks: Iterable[Requests], size: int) -> Iterator[Requests]:
    for block in blocks:
        for start in range(0, len(block), size):
            yield block.rows(start, min(start + size, len(block)))


def _consult(
    why: int, world: World, pools: Sequence[ReplicaPool], routing: Routing | None, asked: PythonPick | None
) -> None:
    """Show a sampled pick to the callback, or raise an error for an impossible pick."""
    control = world.control[0]
    chosen = int(control["chosen"])
    if why == events.SAMPLED and routing is not None and routing.show is not None:
        row = world.rows[int(control["next_row"]) & (len(world.rows) - 1)]
        routing.show(world.request, world.endpoints[int(row["picker"])], world.hits, chosen)
    elif why == events.IMPOSSIBLE:
        if asked is not None and asked.failed is not None:
            raise asked.failed
        if chosen >= len(world.heads):
            said, last = "one" if chosen == NOWHERE else f"endpoint {chosen}", len(world.heads) - 1
            raise DeploymentError(
                f"the policy chose {said}, which is not in 0 to {last}; return an endpoint's index, or -1 to reject"
            )
        pool = pools[int(world.replicas[world.heads[chosen]]["pool"])]
        raise DeploymentError(
            f"the policy sent a prompt to '{pool.name}', which only decodes; skip endpoints whose `accepts` is 0"
        )
