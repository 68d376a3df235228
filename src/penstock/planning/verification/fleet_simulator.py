"""Simulates and sizes any fleet of one plan, for the plan's problem or for a problem with changed inputs."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.problem import Mix, Problem
from penstock.planning.spec.plan_types import WorkloadPlan
from penstock.planning.verification.serving_fleet import VerifyOf
from penstock.planning.verification.verify_fleet import Verified, verify_fleet


@dataclass(frozen=True, kw_only=True)
class FleetSimulator:
    """The simulator with the candidates and workloads of one plan."""

    candidates: Sequence[Candidate]
    workloads: Sequence[WorkloadPlan]
    verify_of: VerifyOf
    """Function that checks every pool and finds its margin to the SLO."""
    sizing_of: VerifyOf | None = None
    """Faster function that checks only whether each pool meets the SLO; if it is None, sizing uses `verify_of`."""

    def verify(self, mix: Mix, problem: Problem) -> Verified:
        """Simulate a fleet and size it so that it just meets its SLO."""
        return self._verify(mix, problem, self.verify_of)

    def size(self, mix: Mix, problem: Problem) -> Mix | None:
        """Size a fleet of a changed problem by simulation; None if the fleet misses the SLO."""
        found = self.verify(mix, problem)
        return found.mix if found.met else None

    def size_without_margins(self, mix: Mix, problem: Problem) -> Mix | None:
        """Size a fleet like `size`, but do not search for the margin of each pool to its SLO."""
        found = self._verify(mix, problem, self.sizing_of or self.verify_of)
        return found.mix if found.met else None

    def _verify(self, mix: Mix, problem: Problem, verify_of: VerifyOf) -> Verified:
        own = problem.of_its_kind(mix).for_fleet(mix)
        return verify_fleet(mix, own, self.candidates, self.workloads, verify_of, sizing_of=self.sizing_of)
