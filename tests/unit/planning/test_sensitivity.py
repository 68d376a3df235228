"""What would change the answer: each bar is two plans solved again, each flip is where two fleets cost the same."""

from dataclasses import replace

import numpy as np
import pytest

from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.optimizer.problem import Restriction
from penstock.planning.optimizer.resize_fleet import one_world
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.uncertainty.fleet_prices import FleetPrices
from penstock.planning.uncertainty.plan_headroom import LOADING, with_known
from penstock.planning.uncertainty.sensitivity import Flip, Judge, flips, nearest_first, tornado
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, Knob, capacity_spreads, knobs_of
from small_plans import PEOPLE, TWO_PARTS, solved


@pytest.fixture(scope="module")
def result() -> PlanResult:
    return solved(TWO_PARTS + "constraints: {confidence: 50%}\n")


@pytest.fixture(scope="module")
def judge(result: PlanResult) -> Judge:
    assert isinstance(result.answer, Answer)
    family = replace(result.answer.family, of_other_worlds=())
    return Judge(family=family, candidates=result.candidates, winner="nvidia")


def knobs(result: PlanResult) -> dict[str, Knob]:
    return {knob.name: knob for knob in knobs_of(result.resolved, capacity_spreads(result.candidates))}


def solved_again(result: PlanResult, world: InputWorld) -> tuple[float, float]:
    """The cheapest fleet and what it saves over the other vendor's, each by a plain solve."""
    problem = build_problem(world.resolved, result.candidates, capacity_scale=world.capacity)
    costs = {}
    for vendor in ("amd", "nvidia"):
        mix = cheapest(problem, Restriction(only_vendors=frozenset({vendor})))
        assert mix is not None
        costs[vendor] = mix.cost_usd
    return min(costs.values()), costs["amd"] - costs["nvidia"]


@pytest.mark.parametrize(
    "name", ["h200_sxm price", "mi300x price", "h200_sxm throughput", "extra amd engineers", "power price"]
)
def test_a_bar_is_the_difference_of_two_plain_solves(result: PlanResult, judge: Judge, name: str) -> None:
    world, knob = InputWorld(resolved=result.resolved), knobs(result)[name]
    (swing,) = tornado(judge, world, [knob])
    known = with_known(world, result.candidates, [knob])
    low_cost, low_saving = solved_again(result, knob.apply(known, knob.input.low))
    high_cost, high_saving = solved_again(result, knob.apply(known, knob.input.high))
    assert (swing.saving_at_low_usd, swing.saving_at_high_usd) == pytest.approx((low_saving, high_saving), rel=1e-4)
    assert (swing.cost_at_low_usd, swing.cost_at_high_usd) == pytest.approx((low_cost, high_cost), rel=1e-4)
    assert swing.width_usd == pytest.approx(abs(high_saving - low_saving), rel=1e-3)


def test_prices_of_counted_nodes_are_those_of_fleets_that_are_resized_at_these_prices(
    result: PlanResult, judge: Judge
) -> None:
    world = InputWorld(resolved=result.resolved)
    counted = FleetPrices.of(judge.family, build_problem(world.resolved, result.candidates))
    for knob in knobs(result).values():
        if knob.kind not in (*LOADING, "delivery"):
            for value in (knob.minimum, knob.maximum):
                problem = build_problem(knob.apply(world, value).resolved, result.candidates)
                resized = {label: usd[0] for label, usd in judge.family.costs(problem, one_world()).items()}
                assert counted.costs(problem) == pytest.approx(resized, rel=1e-12)


def test_kept_costs_are_those_of_the_fleets_resized_at_each_value(result: PlanResult, judge: Judge) -> None:
    """Also if fleets have left the family since the costs were kept."""
    world, first = InputWorld(resolved=result.resolved), replace(judge.family, others=judge.family.others[:1])
    for kept in (judge, replace(judge, family=first), judge):
        for knob in knobs(result).values():
            for value in (knob.input.value, 0.9 * knob.maximum):
                assert kept.costs_at(world, knob, value) == kept.costs(knob.apply(world, value), knob.kind)


def test_bars_are_sorted_and_what_has_no_range_or_moves_nothing_has_none(result: PlanResult, judge: Judge) -> None:
    found = tornado(judge, InputWorld(resolved=result.resolved), tuple(knobs(result).values()))
    widths = [swing.width_usd for swing in found]
    assert widths == sorted(widths, reverse=True)
    assert "extra nvidia engineers" not in {swing.name for swing in found}


def around(flip: Flip, judge: Judge, result: PlanResult) -> tuple[float, float]:
    """What the winner saves a hundredth of the way before a flip, and at it."""
    world, knob = InputWorld(resolved=result.resolved), knobs(result)[flip.name]
    before = flip.at + 0.01 * (flip.current - flip.at)
    return judge.saving(knob.apply(world, before), knob.kind), judge.saving(knob.apply(world, flip.at), knob.kind)


def test_a_flip_is_where_two_fleets_cost_the_same(result: PlanResult, judge: Judge) -> None:
    world = InputWorld(resolved=result.resolved)
    found = flips(judge, world, tuple(knobs(result).values()))
    assert {flip.name for flip in found} >= {"h200_sxm price", "extra amd engineers"}
    assert "cost of an engineer" not in {flip.name for flip in found}, "nobody costs so little"
    whole = judge.saving(world, "rate")
    for flip in found:
        before, at = around(flip, judge, result)
        assert before >= 0 > at, flip.name
        if flip.kind != "throughput":
            # Dollars move smoothly with every input but capacity, which moves by whole nodes.
            assert max(before, -at) < 0.02 * whole, flip.name


def test_on_the_other_side_of_a_flip_a_plain_solve_agrees(result: PlanResult, judge: Judge) -> None:
    world = InputWorld(resolved=result.resolved)
    found = {flip.name: flip for flip in flips(judge, world, tuple(knobs(result).values()))}
    for name in ("h200_sxm price", "extra amd engineers"):
        flip, knob = found[name], knobs(result)[name]
        beyond = flip.at + 0.02 * (flip.at - flip.current)
        short = flip.at - 0.02 * (flip.at - flip.current)
        assert solved_again(result, knob.apply(world, beyond))[1] < 0
        assert solved_again(result, knob.apply(world, short))[1] > 0


def test_flips_within_the_range_of_an_input_come_first(result: PlanResult, judge: Judge) -> None:
    found = flips(judge, InputWorld(resolved=result.resolved), tuple(knobs(result).values()))
    inside = [flip.within_range for flip in found]
    assert inside == sorted(inside, reverse=True)
    for flip in found:
        entry = knobs(result)[flip.name].input
        assert flip.within_range == (entry.low <= flip.at <= entry.high)
        assert (flip.at > flip.current) == (flip.side == "above")


@pytest.mark.parametrize("requests_per_s", [100, 180, 300])
def test_no_nearer_demand_or_throughput_changes_the_winner_than_the_one_said(requests_per_s: int) -> None:
    """Attack: "stops winning above 1.52 x the demand", and at 1.05 x another vendor was cheaper: costs are stairs."""
    even = TWO_PARTS.replace("{value: 32000, low: 24000, high: 36000}", "28000")
    even = even.replace("requests_per_s: 40", f"requests_per_s: {requests_per_s}")
    found = solved(even.replace(PEOPLE, "stacks: {amd: {engineers_per_1000_devices: 0}, nvidia: {engineers: 0}}\n"))
    assert isinstance(found.answer, Answer)
    family, world = found.answer.family, InputWorld(resolved=found.resolved)
    judged = Judge(family=family, candidates=found.candidates, winner=family.label(family.winner))
    for knob in knobs(found).values():
        if knob.kind not in {"demand", "throughput"} or knob.name.startswith("growth"):
            continue
        sides: dict[str, float] = {flip.side: flip.at for flip in flips(judged, world, [knob])}
        if knob.kind == "demand":
            # NVIDIA loses at less than half of these demands, and wins again at a tenth of 100 and of 300.
            assert 0.2 < sides["below"] < 0.8
        for side, bound in (("below", knob.minimum), ("above", knob.maximum)):
            # A flip is said to half a percent.
            last = sides.get(side, bound) * (1.006 if side == "below" else 0.994)
            for at in np.geomspace(knob.input.value, last, 31):
                # Between two places that are looked at, a winner may lose by a hair and win again.
                least = -0.005 * family.winner.cost_usd
                assert judged.saving(knob.apply(world, float(at)), knob.kind) >= least, (knob.name, side, at)


def test_a_stated_price_that_turns_the_answer_at_once_stands_before_a_guess_that_has_far_to_go() -> None:
    near = Flip(
        kind="rent",
        id="quote",
        subject="mi300x",
        name="a quote",
        unit="$",
        current=1.30,
        at=1.28,
        side="below",
        winner="nvidia",
        instead="amd",
        instead_named=("amd",),
        within_range=False,
    )
    guess = replace(near, name="a guess", current=1.0, at=1.1, within_range=True, uncertainty_fraction=0.15)
    loose = replace(near, name="a wide guess", current=1.0, at=1.05, within_range=True, uncertainty_fraction=0.45)
    assert [flip.name for flip in nearest_first([guess, near, loose])] == ["a wide guess", "a quote", "a guess"]
