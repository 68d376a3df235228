"""Simulates the winner behind a plain router, and sizes the fleet that such a router needs."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.problem import Mix, Problem
from penstock.planning.spec.plan_types import WorkloadPlan
from penstock.planning.verification.fleet_simulator import FleetSimulator
from penstock.planning.verification.serving_fleet import Check, VerifyOf
from penstock.planning.verification.verify_fleet import check_periods, worst_checks


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRouter:
    """A fleet behind a router that sends requests to the replicas of a pool in turn."""

    checks: tuple[Check, ...]
    """The worst check of each workload on the planned fleet, at the planned load."""
    more_nodes: int | None
    """Nodes or instances that the fleet needs in addition, in its largest period, to meet the SLOs with this router.

    None if no number of nodes on the same accelerators was found.
    """
    more_usd: float | None

    @property
    def met(self) -> bool:
        """Return whether the planned fleet meets every SLO with this router."""
        return all(check.met for check in self.checks)


def price_plain_router(
    mix: Mix,
    problem: Problem,
    candidates: Sequence[Candidate],
    workloads: Sequence[WorkloadPlan],
    sizing_of: VerifyOf | None,
) -> PlainRouter | None:
    """Simulate a fleet with another router; if it misses an SLO, size a fleet of the same accelerators for that router.

    `sizing_of` simulates pools behind that router. The result is None without such a simulator.
    """
    if sizing_of is None:
        return None
    checks = worst_checks(check_periods(mix, problem, candidates, workloads, sizing_of))
    if all(check.met for check in checks):
        return PlainRouter(checks=checks, more_nodes=0, more_usd=0.0)
    simulator = FleetSimulator(candidates=candidates, workloads=workloads, verify_of=sizing_of, sizing_of=sizing_of)
    larger = simulator.size_without_margins(mix, problem)
    if larger is None:
        return PlainRouter(checks=checks, more_nodes=None, more_usd=None)
    more_nodes, more_usd = larger.largest_nodes - mix.largest_nodes, larger.cost_usd - mix.cost_usd
    return PlainRouter(checks=checks, more_nodes=more_nodes, more_usd=max(0.0, more_usd))
