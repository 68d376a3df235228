"""Prices a fleet for several confidences: what it costs to be enough in 50% or in 90% of cases."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Final

from penstock.planning.optimizer.problem import Headroom, Mix, Problem
from penstock.planning.optimizer.resize_fleet import nodes_needed, one_world, resized_usd
from penstock.planning.uncertainty.joint_fleets import share_enough
from penstock.planning.uncertainty.plan_headroom import DrawnNeeds

LEVELS: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceLevel:
    """The size and cost of a fleet that is enough with a confidence."""

    confidence: float
    usd: float | None
    """Cost of the cheapest compared fleet; a plan with this confidence may find a cheaper one.

    None if no compared fleet is enough.
    """
    nodes: float | None
    """Nodes or instances in the largest period; None if no compared fleet is enough."""
    planned: bool = False
    """Whether this is the confidence of the plan."""
    instead: tuple[str, ...] = ()
    """Accelerators of another fleet, if that fleet is cheaper or no number of the planned nodes is enough."""


def confidence_levels(
    mix: Mix,
    problem: Problem,
    needs: DrawnNeeds,
    confidence: float,
    *,
    compared: Sequence[Mix] = (),
    others: Sequence[Mix] = (),
) -> tuple[ConfidenceLevel, ...]:
    """Resize a fleet for several confidences, by the headroom that each of them requires.

    The planned fleet itself is the answer for every higher confidence with which it is enough. For another confidence,
    the cheapest of the planned fleet and the `compared` ones is the answer. `others` were not simulated at the plan's
    inputs, so they count only if no number of the planned nodes is enough. For a smaller confidence, replicas count
    with at most the capacity of a single one, because a smaller fleet balances its load worse.
    """
    own, found, reached = needs.headroom(confidence), [], share_enough(mix, problem, needs)
    for level in sorted({*LEVELS, confidence}):
        if confidence <= level <= max(confidence, reached):
            same = ConfidenceLevel(confidence=level, usd=mix.cost_usd, nodes=float(mix.largest_nodes))
            found.append(replace(same, planned=level == confidence))
            continue
        asked = needs.headroom(level)
        resized = (mix, *compared, *others) if level > confidence else tuple(map(_alone, (mix, *compared, *others)))
        grows = _size(resized[0], problem, own, asked) is not None
        fleets = resized[: 1 + len(compared)] if grows else resized[1:]
        sizes = [(size, fleet) for fleet in fleets if (size := _size(fleet, problem, own, asked)) is not None]
        if level < confidence:
            sizes.append(((mix.cost_usd, float(mix.largest_nodes)), mix))
        if not sizes:
            found.append(ConfidenceLevel(confidence=level, usd=None, nodes=None))
            continue
        (usd, nodes), fleet = min(sizes, key=lambda entry: entry[0])
        instead = () if fleet is mix or (grows and fleet.support == mix.support) else tuple(sorted(fleet.support))
        found.append(ConfidenceLevel(confidence=level, usd=usd, nodes=nodes, instead=instead))
    return tuple(found)


def _alone(mix: Mix) -> Mix:
    """Return a fleet whose replicas have at most their capacity alone, without what a large pool adds."""
    pools = (
        replace(pool, carried={name: min(1.0, factor) for name, factor in pool.carried.items()}) for pool in mix.pools
    )
    return replace(mix, pools=tuple(pools))


def _size(mix: Mix, problem: Problem, own: Headroom, asked: Headroom) -> tuple[float, float] | None:
    """Return the cost and the nodes of a fleet that is resized for another headroom; None if that is infeasible.

    `own` is the headroom of the plan, and `asked` the headroom that another confidence requires.
    """
    if any(asked.get((name, pool.period), inf) == inf for pool in mix.pools for name in pool.replicas):
        return None
    fleet = replace(mix, headroom={key: factor * asked[key] / own[key] for key, factor in mix.headroom.items()})
    known = replace(problem, headroom=asked)
    usd, (nodes, _) = float(resized_usd(fleet, known, one_world())[0]), nodes_needed(fleet, known, one_world())
    return (usd, float(nodes[0])) if isfinite(usd) else None
