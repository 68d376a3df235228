"""Extra engineers grow with the fleet unless the plan states them, and the verdict says where they decide."""

from dataclasses import replace

import pytest

from penstock.planning.plan_result import Answer
from penstock.planning.spec.plan_file import default_stack
from penstock.report.plan.page import plan_html
from penstock.report.plan.sentences import headline, people_sentence
from small_plans import PEOPLE, TWO_PARTS, plan_of, solved

EVEN = {"mi300x": 6.0, "h200_sxm": 6.0}
"""Accelerators of equal speed: MI300X cost half as much, so people are all that speaks against them."""
BY_SIZE = TWO_PARTS.replace(PEOPLE, "")


def answer_of(text: str, speeds: dict[str, float] | None = None) -> Answer:
    answer = solved(text, speeds or EVEN).answer
    assert isinstance(answer, Answer)
    return answer


def test_two_per_800_accelerators_are_two_and_a_half_per_thousand() -> None:
    """The default was two for any fleet, which the source says of 800 accelerators."""
    amd, nvidia = default_stack("amd"), default_stack("nvidia")
    by_size = amd.engineers_per_1000_devices
    assert (by_size.low, by_size.value, by_size.high) == (0.0, 2 / 0.8, 6 / 0.8)
    assert "two additional full-time engineers per 800-accelerator cluster" in by_size.source
    assert amd.engineers == nvidia.engineers
    assert nvidia.engineers_per_1000_devices.high == nvidia.engineers.high == 0


def test_a_plan_that_states_engineers_has_stated_all_of_them() -> None:
    (stated,) = plan_of(TWO_PARTS).stacks.values()
    assert (stated.engineers.value, stated.engineers_per_1000_devices.high) == (2, 0)
    (sized,) = plan_of(TWO_PARTS.replace(PEOPLE, "stacks: {amd: {engineers_per_1000_devices: 4}}\n")).stacks.values()
    assert (sized.engineers.high, sized.engineers_per_1000_devices.value) == (0, 4)


def test_the_verdict_says_up_to_how_many_engineers_a_vendor_is_cheaper() -> None:
    answer = answer_of(TWO_PARTS)
    people = answer.people
    assert people is not None
    assert (answer.verdict.winner, people.vendor, people.assumed_engineers) == ("nvidia", "amd", 2)
    flip = next(flip for flip in answer.flips if (flip.kind, flip.subject) == ("engineers", "amd"))
    assert people.break_even_engineers == pytest.approx(flip.at, rel=0.02)
    said = people_sentence(answer)
    assert said.startswith("Hardware and power: AMD $")
    assert f"less; people: break-even at {people.break_even_engineers:.2g} extra AMD engineers" in said
    assert said.endswith("(you assumed 2).")
    assert headline(answer).endswith(said)
    assert "people: break-even at" in plan_html(solved(TWO_PARTS, EVEN))


def test_people_who_grow_with_a_small_fleet_decide_nothing_by_themselves() -> None:
    """With the default the same plan buys AMD; that a team of two would turn it is said."""
    answer = answer_of(BY_SIZE)
    devices = max(pool.nodes * pool.offer.devices for pool in answer.winner.mix.pools)
    assert answer.verdict.winner == "amd"
    people = answer.people
    assert people is not None
    assert people.assumed_engineers == pytest.approx(devices * 2.5 / 1000)
    assert people.assumed_engineers < people.break_even_engineers <= 2
    assert "(default 0." in people_sentence(answer)
    written = BY_SIZE + "stacks: {amd: {engineers_per_1000_devices: {value: 2.5, low: 0, high: 7.5}}}\n"
    assert people_sentence(answer_of(written)) == people_sentence(answer), "a default that is written out is the same"
    stated = answer_of(TWO_PARTS)
    assert stated.people is not None
    assert people.break_even_engineers == pytest.approx(stated.people.break_even_engineers)
    assert people.saved_usd == pytest.approx(stated.people.saved_usd)


def test_engineers_by_size_are_added_to_a_stated_floor() -> None:
    stated = "stacks: {amd: {engineers: 0.1, engineers_per_1000_devices: 10}}\n"
    answer = answer_of(BY_SIZE + stated)
    devices = max(pool.nodes * pool.offer.devices for pool in answer.by_label["amd"].mix.pools)
    people = answer.people
    assert people is not None
    assert people.assumed_engineers == pytest.approx(0.1 + devices * 10 / 1000)
    assert "(you assumed 0." in people_sentence(answer), "a number by size is no default if the plan states it"


def test_the_break_even_is_said_however_many_engineers_it_takes() -> None:
    """Only a break-even up to the two engineers of the source was said."""
    answer = answer_of(BY_SIZE, {"mi300x": 30.0, "h200_sxm": 6.0})
    people = answer.people
    assert people is not None
    assert people.break_even_engineers > 2
    below, above = (
        answer_of(
            BY_SIZE + f"stacks: {{amd: {{engineers: {people.break_even_engineers * factor}}}}}\n",
            {"mi300x": 30.0, "h200_sxm": 6.0},
        ).verdict.winner
        for factor in (0.98, 1.02)
    )
    assert (below, above) == ("amd", "nvidia")


def test_where_hardware_decides_people_are_not_named() -> None:
    assert answer_of(TWO_PARTS, {"mi300x": 2.0, "h200_sxm": 9.0}).people is None
    assert people_sentence(replace(answer_of(BY_SIZE), people=None)) == ""
