"""Flips near the plan's own inputs are simulated: resized fleets of the plan seem to save a node by a hair."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.planning.optimizer.problem import Mix, Problem
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.uncertainty.sensitivity import Flip, Judge, flips
from penstock.planning.uncertainty.settled_flips import settled_flips
from penstock.planning.uncertainty.solve_again import Sized
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, Knob, capacity_spreads, knobs_of
from small_plans import TWO_PARTS, solved

NEARLY_EQUAL = TWO_PARTS.replace("requests_per_s: 40", "requests_per_s: 290").replace("value: 2,", "value: 0.9,")
"""NVIDIA wins. If fleets are only resized, AMD is cheaper once the MI300X is 3% faster."""
CHEAPER = 0.9


@pytest.fixture(scope="module")
def result() -> PlanResult:
    return solved(NEARLY_EQUAL)


def judge_of(result: PlanResult) -> Judge:
    assert isinstance(result.answer, Answer)
    family = replace(result.answer.family, of_other_worlds=())
    return Judge(family=family, candidates=result.candidates, winner=result.answer.verdict.winner)


def speed_of_mi300x(result: PlanResult) -> Knob:
    known = knobs_of(result.resolved, capacity_spreads(result.candidates))
    return next(knob for knob in known if knob.id == "accelerators/mi300x/throughput")


def simulator(stands: Callable[[float], bool]) -> Sized:
    """A simulator in which AMD's fleets need all of their nodes until the MI300X is fast enough."""

    def sized(mix: Mix, problem: Problem) -> Mix | None:
        if mix.label != "amd":
            return mix
        factor, *_ = problem.gains.get("mi300x", (1.0,))
        return replace(mix, cost_usd=CHEAPER * mix.cost_usd) if stands(factor) else None

    return sized


def found_above(result: PlanResult, sized: Sized) -> list[Flip]:
    world, knob = InputWorld(resolved=result.resolved), speed_of_mi300x(result)
    found, _ = settled_flips(judge_of(result), world, [knob], sized)
    return [flip for flip in found if flip.side == "above"]


def test_resized_fleets_of_the_plan_seem_cheaper_at_once(result: PlanResult) -> None:
    world, knob = InputWorld(resolved=result.resolved), speed_of_mi300x(result)
    (flip,) = [flip for flip in flips(judge_of(result), world, [knob]) if flip.side == "above"]
    assert flip.instead == "amd"
    assert flip.at < 1.04


@pytest.mark.parametrize("threshold", [1.08, 1.2, 1.7])
def test_a_near_flip_that_simulation_refutes_moves_to_the_true_value(result: PlanResult, threshold: float) -> None:
    (flip,) = found_above(result, simulator(lambda factor: factor >= threshold))
    assert flip.instead == "amd"
    assert threshold <= flip.at <= 1.01 * (threshold + 0.25 * (threshold - 1) / 0.75)


def test_a_near_flip_that_simulation_refutes_everywhere_is_none(result: PlanResult) -> None:
    assert found_above(result, simulator(lambda _: False)) == []


def test_a_near_flip_that_simulation_confirms_stays(result: PlanResult) -> None:
    (flip,) = found_above(result, simulator(lambda _: True))
    assert flip.at < 1.04
