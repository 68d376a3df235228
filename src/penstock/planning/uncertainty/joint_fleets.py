"""Finds fleets whose pools back each other up: together they are enough with less headroom than each pool alone."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.optimizer.competing_fleets import Family
from penstock.planning.optimizer.load_balance import balance_load
from penstock.planning.optimizer.problem import Headroom, Mix, Problem, Restriction
from penstock.planning.optimizer.resize_fleet import nodes_needed
from penstock.planning.uncertainty.plan_headroom import DrawnNeeds

SolveAgain = Callable[[Problem, Mix], Mix | None]
"""Function that plans a fleet again on its accelerators, with its own headroom."""
_DRAWS: Final = 50
_GAP, _SEARCH_NODES, _ATTEMPTS = 2e-3, 200, 3
_SAMPLED: Final = 0.005
"""Confidence that a fleet may lack over all draws, because it was found with a sample of the draws."""
_RAISES: Final = (1.02, 1.04, 1.06, 1.08, 1.1, 1.13, 1.16, 1.2, 1.25, 1.3, 1.4, 1.5, 1.7, 2.0)
"""Factors on the headroom of a fleet that are tried in turn."""
_COULD_WIN: Final = 1.15
"""Cost of a fleet, relative to the cheapest, up to which less headroom may make the fleet cheapest."""
_WORTH_SOLVING: Final = 0.997
"""Cost, relative to the cheapest fleet on the same accelerators, above which a fleet is of no interest."""


def joint_fleets(family: Family, problem: Problem, needs: DrawnNeeds, confidence: float) -> Iterator[Mix]:
    """Yield cheaper fleets on the accelerators of a label that are enough with the confidence.

    The headroom of a plan is that of fleets with one accelerator. If prediction errors of several accelerators differ,
    or if several workloads share a fleet, a program that decides which draws to serve may find a cheaper fleet.
    """
    best = family.by_label.values()
    least_usd = min(mix.cost_usd for mix in best)
    several = len({demand.key[0] for demand in problem.demands}) > 1
    for mix in best:
        if mix.cost_usd <= _COULD_WIN * least_usd and (several or len(mix.support) > 1):
            found = _enough_together(mix, family, problem, needs, confidence)
            if found is not None:
                yield found


def _enough_together(mix: Mix, family: Family, problem: Problem, needs: DrawnNeeds, confidence: float) -> Mix | None:
    """Return a cheaper fleet of the same accelerators that is enough in a sample of the draws, and nearly so in all."""
    used = {name for fleet in family.fleets for pool in fleet.pools for name in pool.replicas}
    own = {(pool.offer.key, name, pool.period): factor for pool in mix.pools for name, factor in pool.carried.items()}
    known = replace(
        problem,
        replicas=tuple(kind for kind in problem.replicas if kind.id in used),
        headroom=None,
        carried={**family.carried, **own},
    )
    vendors = mix.vendors if len(mix.vendors) > 1 else frozenset[str]()
    same = Restriction(only_accelerators=mix.support, require_vendors=vendors)
    draws = needs.few(_DRAWS, confidence)
    for more in range(_ATTEMPTS):
        asked = replace(draws, required=min(_DRAWS, draws.required + more))
        found = cheapest(known, same, gap_fraction=_GAP, search_nodes=_SEARCH_NODES, patient=False, draws=asked)
        if found is None or found.cost_usd >= _WORTH_SOLVING * mix.cost_usd:
            return None
        if share_enough(found, known, needs) >= confidence - _SAMPLED:
            spread = balance_load(found, known)
            return replace(spread, headroom=_own_headroom(spread, known))
    return None


def raise_headroom(mix: Mix, problem: Problem, needs: DrawnNeeds, confidence: float, solve: SolveAgain) -> Mix:
    """Raise the headroom of a fleet of several accelerators until it is enough with the confidence.

    The headroom of each accelerator is enough for a fleet of that accelerator alone. If requests cannot move freely
    between accelerators, both must be enough at once, and a fleet of both is enough less often.
    """
    if len(mix.support) == 1 or share_enough(mix, problem, needs) >= confidence - _SAMPLED:
        return mix
    own = problem.for_fleet(mix).headroom or {}
    used = {name for pool in mix.pools for name in pool.replicas}
    for times in _RAISES:
        raised = {key: factor * times for key, factor in own.items() if key[0] in used}
        larger = solve(problem, replace(mix, headroom=raised))
        if larger is not None and share_enough(larger, problem, needs) >= confidence - _SAMPLED:
            return larger
    return mix


def share_enough(mix: Mix, problem: Problem, needs: DrawnNeeds) -> float:
    """Return the share of draws in which the planned nodes of a fleet carry the demand."""
    _, enough = nodes_needed(mix, replace(problem, headroom=None), needs.worlds)
    return float(np.mean(enough))


def _own_headroom(mix: Mix, problem: Problem) -> Headroom:
    """Return the planned capacity of each kind of replica relative to its load, the lowest over the sites."""
    found: dict[tuple[str, int], float] = {}
    for pool in mix.pools:
        for name in pool.replicas:
            busy = problem.busy_share(pool, name)
            if busy > 0:
                key = (name, pool.period)
                found[key] = min(found.get(key, np.inf), 1 / busy)
    return found
