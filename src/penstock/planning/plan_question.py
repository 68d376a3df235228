"""Holds the question that the stages of a plan share, and proves its fleets by simulation."""

from dataclasses import dataclass, replace

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.candidates_by_workload import search_candidates
from penstock.planning.feasibility import unserved_lengths
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.optimizer.competing_fleets import Family, find_family, steps_of
from penstock.planning.optimizer.node_costs import BillingTerms, terms_of
from penstock.planning.optimizer.problem import Mix, Problem
from penstock.planning.plan_result import SingleDevices
from penstock.planning.plan_sources import Sources
from penstock.planning.spec.resolve_plan import (
    Resolved,
    by_the_device,
    is_quoted_in_larger_units,
)
from penstock.planning.uncertainty.joint_fleets import joint_fleets, raise_headroom
from penstock.planning.uncertainty.plan_headroom import DrawnNeeds, plan_headroom
from penstock.planning.uncertainty.scenarios import (
    Replanned,
)
from penstock.planning.uncertainty.solve_again import Sized, as_solved
from penstock.planning.verification.fleet_simulator import FleetSimulator
from penstock.planning.verification.prove_fleets import Proof, ProvenFleets, Verify, add_cheaper_fleets, prove_fleets
from penstock.planning.verification.verify_fleet import MAY_CARRY, of_same_accelerators
from penstock.simulation.run_options import StageProgress

RUNNERS_UP = 3


@dataclass(frozen=True, kw_only=True)
class PlanQuestion:
    """Common input of the optimizer, the simulator and the uncertainty analysis."""

    resolved: Resolved
    candidates: tuple[Candidate, ...]
    problem: Problem
    needs: DrawnNeeds | None
    """Draws of the load relative to capacity; None if there are no candidates."""

    @property
    def confidence(self) -> float:
        """Return the share of cases in which the fleet must be enough."""
        return self.resolved.plan.constraints.confidence

    @property
    def terms(self) -> BillingTerms:
        """Return the billing terms of the plan."""
        return terms_of(self.resolved)

    def with_headroom(self, mix: Mix, problem: Problem) -> Mix:
        """Return the fleet with headroom raised until its accelerators together are enough with the confidence.

        The problem is the plan's own, or one with changed inputs.
        """
        if self.needs is None:
            return mix
        return raise_headroom(mix, problem, self.needs, self.confidence, of_same_accelerators)

    def sized_by(self, size: Sized | None) -> Sized:
        """Return a function that raises a fleet's headroom for the confidence and then sizes it by simulation.

        Without a simulator (None), fleets stay as solved.
        """
        if size is None:
            return as_solved
        return lambda mix, problem: size(self.with_headroom(mix, problem), problem)


def planner_of(sources: Sources) -> Replanned:
    """Return a function that plans other inputs of the same accelerators, from the search for candidates on."""

    def plan_again(resolved: Resolved) -> Family | None:
        choice = search_candidates(resolved, sources, _silently)
        confident = plan_headroom(resolved, choice.candidates)
        if unserved_lengths(confident.resolved, confident.candidates, sources.model_of):
            return None
        problem = build_problem(confident.resolved, confident.candidates)
        question = PlanQuestion(
            resolved=confident.resolved, candidates=confident.candidates, problem=problem, needs=confident.needs
        )
        proven = prove(question, simulator_of(question, sources), _silently)
        return None if proven is None else proven.as_simulated(problem)

    return plan_again


def _silently(*_: object) -> None:
    """Report no progress."""


def verify_of(question: PlanQuestion, simulator: FleetSimulator | None) -> Verify | None:
    """Return the function that simulates and sizes a fleet of the plan; None without a simulator."""
    problem = question.problem
    if simulator is None:
        return None
    return lambda mix: replace(simulator.verify(question.with_headroom(mix, problem), problem), planned=mix)


def prove(question: PlanQuestion, simulator: FleetSimulator | None, progress: StageProgress) -> ProvenFleets | None:
    """Return the fleets of a plan as simulation sizes them; None if no fleet satisfies every rule."""
    problem, verify = question.problem, verify_of(question, simulator)
    planned = _optimise(problem, progress, may_carry=None if simulator is None else MAY_CARRY)
    if planned is None or verify is None:
        return None if planned is None else ProvenFleets(planned=planned, proof=Proof(verified=()))
    proven = prove_fleets(planned, problem, verify, progress)
    if not proven.proof.verified[0].met and cheapest(problem) is None:
        return None
    if question.needs is None:
        return proven
    together = joint_fleets(proven.as_simulated(problem), problem, question.needs, question.confidence)
    return add_cheaper_fleets(proven, problem, tuple(together), verify) or proven


def answer_by_the_device(
    question: PlanQuestion, simulator: FleetSimulator | None, progress: StageProgress
) -> SingleDevices | None:
    """Plan again with single devices of each accelerator whose price is the user's own and whose sizes are not stated.

    None if there is no such accelerator, or if single devices of it are on sale anyway.
    """
    resolved = question.resolved
    open_ones = [entry for entry in resolved.plan.accelerators if is_quoted_in_larger_units(entry)]
    if not open_ones:
        return None
    sold = {entry.id: by_the_device(entry, resolved.accelerators[entry.id].node.devices) for entry in open_ones}
    accelerators = tuple(sold.get(entry.id, entry) for entry in resolved.plan.accelerators)
    changed = replace(resolved, plan=replace(resolved.plan, accelerators=accelerators))
    again = replace(question, resolved=changed, problem=build_problem(changed, question.candidates))
    proven = prove(again, simulator, progress)
    if proven is None:
        return None
    family = proven.as_simulated(again.problem)
    return SingleDevices(
        sizes={entry.id: entry.instances or () for entry in open_ones},
        winner=family.label(family.winner),
        usd={label: mix.cost_usd for label, mix in family.by_label.items()},
    )


def simulator_of(question: PlanQuestion, sources: Sources) -> FleetSimulator | None:
    """Return the simulator of a question's candidates, if there is one."""
    if sources.verify_of is None:
        return None
    return FleetSimulator(
        candidates=question.candidates,
        workloads=question.resolved.plan.workloads,
        verify_of=sources.verify_of,
        sizing_of=sources.sizing_of,
    )


def _optimise(problem: Problem, progress: StageProgress, *, may_carry: float | None) -> Family | None:
    steps = steps_of(problem)

    def step(name: str) -> None:
        progress(f"optimising: {name}", steps.index(name), len(steps))

    return find_family(problem, runner_up_count=RUNNERS_UP, may_carry=may_carry, step=step)
