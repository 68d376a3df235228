"""Quantifies the uncertainty of a plan's answer: the probability of each label, the tornado and the flips."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.competing_fleets import Family
from penstock.planning.optimizer.resize_fleet import one_world
from penstock.planning.spec.resolve_plan import Resolved
from penstock.planning.uncertainty.monte_carlo import Confidence, add_fleets_of_drawn_worlds, draw_confidence
from penstock.planning.uncertainty.next_measurement import NextMeasurement, next_measurement
from penstock.planning.uncertainty.replanned_flips import Replanning, flips_after_replanning
from penstock.planning.uncertainty.sensitivity import Flip, Judge, Swing, tornado
from penstock.planning.uncertainty.settled_flips import settled_flips
from penstock.planning.uncertainty.solve_again import Sized
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, Knob, capacity_spreads, knobs_of
from penstock.simulation.run_options import StageProgress

_STEPS: Final = (
    "fleets of other inputs",
    "cost and confidence over the draws",
    "inputs at the ends of their ranges",
    "values at which another fleet wins",
)


@dataclass(frozen=True, kw_only=True)
class CompetingFleets:
    """The fleets that could win if inputs change, and the inputs that affect these fleets."""

    family: Family
    candidates: tuple[Candidate, ...]
    """All candidates except disaggregated units that no competing fleet runs; the prediction errors of such units have
    no effect."""
    world: InputWorld
    """The plan's inputs, without accelerators that no competing fleet uses."""
    knobs: tuple[Knob, ...]


@dataclass(frozen=True, kw_only=True)
class Uncertainty:
    """The probability that the answer is right, and the inputs that would change the answer."""

    confidence: Confidence
    swings: tuple[Swing, ...]
    flips: tuple[Flip, ...]
    family: Family
    """The competing fleets, and the fleets found by solving again with input values near flips."""
    measurement: NextMeasurement | None = None
    """The setup that is most worth a measurement; None if none is worth 1% of the cost."""


@dataclass(frozen=True, kw_only=True)
class FirstAnswer:
    """The simulated fleets of a plan, and how sure the cheapest is, before the inputs are searched for what changes it.

    A cheaper fleet may still be found; then there is another first answer.
    """

    family: Family
    confidence: Confidence
    """The draws of the cheapest fleet alone. Its probability says nothing, because no other fleet is priced."""
    planned_confidence: float
    keeps_slo: bool
    """Whether the cheapest fleet kept its SLOs in simulation, or was not simulated."""


def first_answer(
    family: Family, resolved: Resolved, candidates: Sequence[Candidate], *, keeps_slo: bool
) -> FirstAnswer:
    """Price the cheapest fleet in every draw. This takes a small part of the time of the whole analysis."""
    label = family.label(family.winner)
    own = tuple(mix for mix in family.fleets if family.label(mix) == label)
    alone = replace(family, runners_up=(), others=own, of_other_worlds=())
    used = tuple(entry for entry in candidates if entry.accelerator.id in alone.support)
    world = InputWorld(resolved=_without_unused(resolved, alone))
    plan, knobs = resolved.plan, knobs_of(world.resolved, capacity_spreads(used))
    return FirstAnswer(
        family=family,
        confidence=draw_confidence(alone, world, used, knobs, seed=plan.seed, draws=plan.draws),
        planned_confidence=plan.constraints.confidence,
        keeps_slo=keeps_slo,
    )


def find_competing(
    simulated: Family, resolved: Resolved, candidates: Sequence[Candidate], progress: StageProgress
) -> CompetingFleets:
    """Drop fleets that cannot win, add fleets that win in some draws, and return these fleets with their inputs."""
    _report_step(progress, 0)
    family = simulated.competing()
    used = {name for mix in family.fleets for pool in mix.pools for name in pool.replicas}
    competing = tuple(entry for entry in candidates if entry.disaggregated is None or entry.id in used)
    world = InputWorld(resolved=_without_unused(resolved, family))
    knobs = knobs_of(world.resolved, capacity_spreads(competing))
    family = add_fleets_of_drawn_worlds(family, world, competing, knobs)
    return CompetingFleets(family=family, candidates=competing, world=world, knobs=knobs)


def _without_unused(resolved: Resolved, family: Family) -> Resolved:
    """Drop accelerators that no competing fleet uses, unless they become available later or are owned."""
    owned = {entry.id for entry in resolved.plan.owned}
    kept = tuple(
        entry
        for entry in resolved.plan.accelerators
        if entry.id in family.support or entry.available or entry.id in owned
    )
    return replace(resolved, plan=replace(resolved.plan, accelerators=kept))


def quantify_uncertainty(
    competing: CompetingFleets, sized: Sized, sized_quickly: Sized, progress: StageProgress, again: Replanning
) -> Uncertainty:
    """Draw the inputs, set each input to the ends of its range, and find the values at which another fleet wins.

    `sized_quickly` sizes fleets of which only the cost is needed.
    """
    family, world, knobs, plan = competing.family, competing.world, competing.knobs, competing.world.resolved.plan
    _report_step(progress, 1)
    confidence = draw_confidence(family, world, competing.candidates, knobs, seed=plan.seed, draws=plan.draws)
    problem = build_problem(world.resolved, competing.candidates)
    unrefuted = family.without_refuted(problem, one_world(world.capacity))
    judge = Judge(family=unrefuted, candidates=competing.candidates, winner=family.label(family.winner))
    _report_step(progress, 2)
    swings = tornado(judge, world, knobs)
    _report_step(progress, 3)
    flips, with_solved = settled_flips(judge, world, knobs, sized, sized_quickly)
    flips = flips_after_replanning(flips, replace(judge, family=with_solved), world, knobs, sized_quickly, again)
    return Uncertainty(
        confidence=confidence,
        swings=swings,
        flips=flips,
        family=family.joined_by(with_solved.of_other_worlds),
        measurement=next_measurement(judge, world, knobs, swings),
    )


def _report_step(progress: StageProgress, number: int) -> None:
    progress(f"what would change the answer: {_STEPS[number]}", number, len(_STEPS))
