"""Prices a fleet for several confidences: what it costs to be enough in 50% or in 90% of cases."""

from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Final

from penstock.planning.optimizer.problem import Mix, Problem
from penstock.planning.optimizer.resize_fleet import nodes_needed, one_world, resized_usd
from penstock.planning.uncertainty.joint_fleets import share_enough
from penstock.planning.uncertainty.plan_headroom import DrawnNeeds

LEVELS: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceLevel:
    """The size and cost of a fleet that is enough with a confidence."""

    confidence: float
    usd: float | None
    """Cost of the fleet; None if no number of its nodes is enough with this confidence."""
    nodes: float | None
    """Nodes or instances in the largest period; None if no number of them is enough."""
    planned: bool = False
    """Whether this is the confidence of the plan."""


def confidence_levels(mix: Mix, problem: Problem, needs: DrawnNeeds, confidence: float) -> tuple[ConfidenceLevel, ...]:
    """Resize a fleet for several confidences, by the headroom that each of them requires.

    The planned fleet itself is the answer for every higher confidence with which it is enough.
    """
    own, found, reached = needs.headroom(confidence), [], share_enough(mix, problem, needs)
    for level in sorted({*LEVELS, confidence}):
        if confidence <= level <= max(confidence, reached):
            same = ConfidenceLevel(confidence=level, usd=mix.cost_usd, nodes=float(mix.largest_nodes))
            found.append(replace(same, planned=level == confidence))
            continue
        other = needs.headroom(level)
        if any(other[name, pool.period] == inf for pool in mix.pools for name in pool.replicas):
            found.append(ConfidenceLevel(confidence=level, usd=None, nodes=None))
            continue
        fleet = replace(mix, headroom={key: factor * other[key] / own[key] for key, factor in mix.headroom.items()})
        known = replace(problem, headroom=other)
        usd, (nodes, _) = resized_usd(fleet, known, one_world())[0], nodes_needed(fleet, known, one_world())
        feasible = isfinite(usd)
        found.append(
            ConfidenceLevel(
                confidence=level, usd=float(usd) if feasible else None, nodes=float(nodes[0]) if feasible else None
            )
        )
    return tuple(found)
