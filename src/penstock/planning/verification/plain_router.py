"""Checks how many requests of a fleet are in time if a plain router sends them to the replicas of a pool in turn."""

from collections.abc import Sequence

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.problem import Mix, Problem
from penstock.planning.spec.plan_types import WorkloadPlan
from penstock.planning.verification.serving_fleet import Check, VerifyOf
from penstock.planning.verification.simulated_capacity import LoadJudge, verify_by
from penstock.planning.verification.verify_fleet import check_periods, worst_checks


def attainment_only(attained: LoadJudge) -> VerifyOf:
    """Return a function that simulates every pool once, at its load, without a search for its margin."""
    return verify_by(lambda load: load.requests_per_s, attained, bounded=lambda _: 0.0)


def checks_with_router(
    mix: Mix,
    problem: Problem,
    candidates: Sequence[Candidate],
    workloads: Sequence[WorkloadPlan],
    verify_of: VerifyOf | None,
) -> tuple[Check, ...]:
    """Return the worst check of each workload with another router; empty without a simulator of that router."""
    if verify_of is None:
        return ()
    return worst_checks(check_periods(mix, problem, candidates, workloads, verify_of))
