"""Flips hold where fleets are planned again: contracts and growth make fleets that today's winners do not tell of."""

from dataclasses import replace
from math import inf

import pytest

from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.optimizer.competing_fleets import questions
from penstock.planning.optimizer.problem import Restriction
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.uncertainty.near_flips import SETTLED
from penstock.planning.uncertainty.sensitivity import Flip, Judge, flips
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, Knob, capacity_spreads, knobs_of
from small_plans import solved

RENTS = """
name: rents
start: 2026-12-01
horizon_years: 3
workloads:
  - name: chat
    model: llama-3.1-8b
    slo: ttft=1s,tpot=50ms
    requests_per_s: {value: 300, low: 200, high: 400}
    growth_per_year: 60%
    lengths: [{input: 1k, output: 256, share: 60%}, {input: 8k, output: 512, share: 40%}]
accelerators:
  - {id: mi300x, rent_usd_per_hour: 2.2, tp: [1], contracts: [{years: 3, usd_per_hour: 1.60}]}
  - id: h200
    rent_usd_per_hour: 3.2
    tp: [1]
    contracts: [{years: 1, usd_per_hour: 2.6}, {years: 3, usd_per_hour: 2.1}]
stacks: {amd: {engineers: 1}, nvidia: {engineers: 0}}
acquire: [rent, contract]
"""


@pytest.fixture(scope="module")
def result() -> PlanResult:
    return solved(RENTS)


def answer_of(result: PlanResult) -> Answer:
    assert isinstance(result.answer, Answer)
    return result.answer


def knob_of(result: PlanResult, flip: Flip) -> Knob:
    known = knobs_of(result.resolved, capacity_spreads(result.candidates))
    return next(knob for knob in known if knob.name == flip.name)


def lost_by(result: PlanResult, flip: Flip, value: float) -> float:
    """By which share of its cost the winner's label loses at a value, by plain solves; negative where it wins."""
    world = knob_of(result, flip).apply(InputWorld(resolved=result.resolved), value)
    problem = build_problem(world.resolved, result.candidates, capacity_scale=world.capacity)
    label, costs = answer_of(result).family.label, {True: inf, False: inf}
    for restriction in (Restriction(), *(entry for _, entry in questions(problem))):
        mix = cheapest(problem, restriction)
        if mix is not None:
            own = label(mix) == flip.winner
            costs[own] = min(costs[own], mix.cost_usd)
    return 1 - costs[False] / costs[True]


def test_on_both_sides_of_every_settled_flip_plain_solves_agree(result: PlanResult) -> None:
    """Attack: "below $0.934, then AMD", and at $0.95 a plan of its own had a mix."""
    settled = [flip for flip in answer_of(result).flips if flip.solved]
    assert len(settled) > 3
    for flip in settled:
        away = flip.at - flip.current
        # Costs of whole nodes are stairs: by less than half a percent either may win.
        assert lost_by(result, flip, flip.at + 0.04 * away) > -0.005, flip
        assert lost_by(result, flip, flip.at - 0.04 * away) < 0.005, flip


def test_before_fleets_are_solved_there_flips_are_elsewhere(result: PlanResult) -> None:
    """Where this no longer fails, solving again is not worth its time."""
    answer = answer_of(result)
    family = replace(answer.family, of_other_worlds=())
    world, judge = (
        InputWorld(resolved=result.resolved),
        Judge(family=family, candidates=result.candidates, winner=answer.verdict.winner),
    )
    name = "mi300x rent for 36 months"
    (settled,) = [flip for flip in answer.flips if flip.name == name]
    (first,) = flips(judge, world, [knob_of(result, settled)])
    assert settled.solved
    assert settled.at > 1.05 * first.at
    assert lost_by(result, settled, 1.02 * first.at) > 0.01, "a mix wins before it was said to"


def test_flips_that_are_not_shown_say_that_they_are_of_the_fleets_compared(result: PlanResult) -> None:
    found = answer_of(result).flips
    names = list(dict.fromkeys(flip.name for flip in found))
    assert not any(flip.solved for flip in found if flip.name not in names[:SETTLED])
