"""Computes the saving of engines whose launch preflight does not pass, which a plan leaves out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.planning.candidates.candidate_search import Candidate, judge_option
from penstock.planning.candidates.launch_obstacles import NotLaunched
from penstock.planning.candidates.replica_capacity import CapacityOf
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.competing_fleets import Family
from penstock.planning.spec.resolve_plan import Resolved
from penstock.planning.uncertainty.plan_headroom import plan_headroom
from penstock.planning.uncertainty.solve_again import Sized, size_solved, solve_again

_SEARCH_NODES: Final = 500
_WORTH_SAYING: Final = 0.01
"""Smallest saving, relative to the plan's cost, that is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSaving:
    """The saving of a fleet with engines whose launch preflight does not pass."""

    engines: tuple[str, ...]
    usd: float
    accelerators: tuple[str, ...]
    why: str
    """Why preflight does not pass the launch of the first engine."""


def candidates_of(left_out: Sequence[NotLaunched], capacity_of: CapacityOf) -> tuple[Candidate, ...]:
    """Return the options that were left out as candidates, named by their engines, if they serve any length."""
    judged = (
        judge_option(
            entry.workload,
            replace(entry.option, id=f"{entry.option.id} {entry.option.measured_engine}"),
            capacity_of,
        )
        for entry in left_out
    )
    return tuple(entry for entry in judged if any(entry.rates))


def find_engine_saving(
    left_out: Sequence[NotLaunched],
    others: Sequence[Candidate],
    candidates: Sequence[Candidate],
    resolved: Resolved,
    family: Family,
    sized: Sized,
) -> EngineSaving | None:
    """Solve the plan with `others`, the candidates of the options left out; None if they save less than 1%."""
    if not others:
        return None
    confident = plan_headroom(resolved, (*candidates, *others))
    problem = build_problem(confident.resolved, confident.candidates)
    mix = size_solved(solve_again(family, problem, search_nodes=_SEARCH_NODES), problem, sized)
    used = set() if mix is None else {name for pool in mix.pools for name in pool.replicas}
    engines = tuple(dict.fromkeys(entry.measured_engine for entry in others if entry.id in used))
    if mix is None or not engines or mix.cost_usd > family.winner.cost_usd * (1 - _WORTH_SAYING):
        return None
    why = next(entry.why for entry in left_out if entry.option.measured_engine in engines)
    return EngineSaving(
        engines=engines,
        usd=family.winner.cost_usd - mix.cost_usd,
        accelerators=tuple(sorted(mix.support)),
        why=why,
    )
