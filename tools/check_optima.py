"""Is the cheapest fleet ever missed? The scorecard example at many demands, each answer held against simpler ones.

An answer is wrong where one part alone, counted by hand, is cheaper, or where less demand costs more.
"""

import argparse
from dataclasses import replace
from datetime import date
from math import ceil, inf
from pathlib import Path

from penstock.api.plan import sources_of
from penstock.planning.candidates.candidate_search import find_candidates
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.competing_fleets import find_family
from penstock.planning.optimizer.problem import Offer, Problem, ReplicaKind
from penstock.planning.spec.plan_file import parse_plan
from penstock.planning.spec.resolve_plan import resolve

PLAN = Path(__file__).parents[1] / "examples/plans/scorecard-800-accelerators.yaml"
GAP = 2e-5


def main() -> None:
    """Print how many answers are wrong; exit 1 where any is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", type=int, default=5, help="requests/s between two demands")
    step = parser.parse_args().step
    problem = scorecard()
    wrong, before_usd, rates = 0, 0.0, range(300, 1801, step)
    for rate in rates:
        asked = at_rate(problem, rate)
        family = find_family(asked, runner_up_count=0)
        found_usd = family.winner.cost_usd if family else float("inf")
        least_usd = min(alone_usd(asked, offer, kind) for offer in asked.offers for kind in kinds(asked, offer))
        idle = family is not None and any(pool.nodes and not pool.load for pool in family.winner.pools)
        if found_usd > least_usd * (1 + GAP) or found_usd < before_usd * (1 - GAP) or idle:
            wrong += 1
            print(f"{rate} requests/s: ${found_usd:,.0f}; one part alone ${least_usd:,.0f}; before ${before_usd:,.0f}")
        before_usd = found_usd
    print(f"{wrong} of {len(rates)} wrong")
    raise SystemExit(1 if wrong else 0)


def scorecard() -> Problem:
    """The example as the solver sees it."""
    plan = parse_plan(PLAN.read_text(), PLAN.name, today=date(2026, 11, 15))
    sources = sources_of(plan, PLAN.parent)
    resolved = resolve(plan, sources.accelerators, sources.prices_of, named=True, draw_of=sources.draw_of)
    (workload,) = plan.workloads
    parts = [(resolved.accelerators[part.id], part) for part in resolved.plan.accelerators]
    found = find_candidates(
        workload,
        sources.model_of(workload.model),
        parts,
        sources.capacity_of,
        screen=sources.screen,
        engines_of=sources.engines_of,
    )
    return build_problem(resolved, found.candidates)


def at_rate(problem: Problem, requests_per_s: float) -> Problem:
    """The same with another demand."""
    return replace(
        problem, demands=tuple(replace(entry, requests_per_s=(requests_per_s,)) for entry in problem.demands)
    )


def kinds(problem: Problem, offer: Offer) -> tuple[ReplicaKind, ...]:
    """What runs on nodes of an offer."""
    return problem.replicas_on(offer)


def alone_usd(problem: Problem, offer: Offer, kind: ReplicaKind) -> float:
    """Count by hand: replicas, whole nodes, the spare, the price level they reach, people."""
    (demand,) = problem.demands
    replicas = ceil(demand.requests_per_s[0] / kind.requests_per_s[0] / problem.utilisation_fraction - 1e-9)
    nodes = ceil(replicas * kind.devices / offer.devices) + problem.spare_nodes
    levels = (max(nodes, ceil(tier.min_devices / offer.devices)) * tier.node_usd[0] for tier in offer.tiers)
    people = problem.vendor_usd.get(offer.vendor)
    return min(levels, default=inf) + (people[0] if people else 0.0)


if __name__ == "__main__":
    main()
