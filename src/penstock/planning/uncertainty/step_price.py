"""Prices the step of a plan: what changes of the fleet at shorter intervals would save."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.optimizer.competing_fleets import Family
from penstock.planning.optimizer.node_costs import USUAL_STEPS_MONTHS, demand_moves, periods_of, step_months
from penstock.planning.optimizer.problem import Problem, Restriction
from penstock.planning.spec.resolve_plan import Resolved
from penstock.planning.uncertainty.plan_headroom import plan_headroom
from penstock.planning.uncertainty.scenarios import RulePrice

_SEARCH_NODES: Final = 500


def price_step(resolved: Resolved, candidates: Sequence[Candidate], family: Family) -> RulePrice | None:
    """Return what the next shorter usual step would save on the winner's accelerators, as a lower bound.

    Return None if demand does not move, or if no usual step is shorter. Other accelerators might save more.
    """
    plan = resolved.plan
    shorter = max((months for months in USUAL_STEPS_MONTHS if months < step_months(plan)), default=None)
    if shorter is None or not demand_moves(plan):
        return None
    confident = plan_headroom(replace(resolved, plan=replace(plan, step_months=shorter)), tuple(candidates))
    finer = confident.resolved
    problem = _with_known_capacities(build_problem(finer, confident.candidates), finer, resolved, family)
    winner = family.winner
    only = Restriction(only_accelerators=winner.support)
    mix = cheapest(problem, only, gap_fraction=1e-3, search_nodes=_SEARCH_NODES, patient=False)
    usd = winner.cost_usd if mix is None else min(winner.cost_usd, mix.cost_usd)
    return RulePrice(
        rule=f"changes every {step_months(plan):g} months instead of every {shorter}",
        without_usd=usd,
        usd=winner.cost_usd - usd,
        without=" + ".join(sorted(winner.support)),
        proven=False,
    )


def _with_known_capacities(problem: Problem, finer: Resolved, resolved: Resolved, family: Family) -> Problem:
    """Give each short period the simulated capacities of the long period in which it begins."""
    long = periods_of(resolved.plan)
    inside = [
        max(place for place, (start, _) in enumerate(long) if start <= begin + 1e-9)
        for begin, _ in periods_of(finer.plan)
    ]
    carried = {
        (offer, name, place): factor
        for (offer, name, period), factor in family.carried.items()
        for place, known in enumerate(inside)
        if known == period
    }
    return replace(problem, carried=carried)
