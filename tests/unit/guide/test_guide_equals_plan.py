"""A cell of the guide is the plan of its workload: same fleet, same cost, same odds."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import small_guides
from examples import model
from penstock.guide.guide_file import parse_guide
from penstock.guide.guide_result import GuideCell
from penstock.planning.make_plan import make_plan
from penstock.planning.plan_result import Answer
from small_guides import GUIDE, guided, sources_of
from small_plans import TODAY


def planned(cell: GuideCell, mi300x: float, h200: float, spread: float) -> Answer:
    question = parse_guide(GUIDE, "guide.yaml", today=TODAY)
    plan = cell.shape.plan(question.template, cell.requests_per_s)
    answer = make_plan(plan, sources_of(question, mi300x, h200, spread)).answer
    assert isinstance(answer, Answer)
    return answer


@settings(max_examples=3, deadline=None)
@given(mi300x=st.floats(2.0, 8.0), h200=st.floats(2.0, 8.0), spread=st.floats(0.05, 0.4), number=st.integers(0, 5))
def test_a_cell_is_the_plan_of_its_workload(mi300x: float, h200: float, spread: float, number: int) -> None:
    cell = guided(mi300x=mi300x, h200=h200, spread=spread).cells[number]
    answer = planned(cell, mi300x, h200, spread)
    best = min(mix.mix.cost_usd for label, mix in answer.by_label.items() if label != "mix")
    assert cell.winner is not None
    assert cell.winner.cost_usd == pytest.approx(best, rel=1e-4)


def test_the_odds_of_a_cell_are_those_of_the_plan() -> None:
    cell = guided().cells[1]
    answer = planned(cell, 4.0, 6.0, 0.2)
    assert cell.winner is not None
    assert cell.probability is not None
    share = answer.confidence.probability
    assert cell.probability == pytest.approx(share[cell.winner.vendor] + share.get("mix", 0.0), abs=0.06)


def test_more_load_or_a_longer_prompt_never_costs_less() -> None:
    result = guided()
    for one, other in product(result.cells, repeat=2):
        shorter = one.shape.input_tokens <= other.shape.input_tokens and one.requests_per_s <= other.requests_per_s
        if shorter and one.winner and other.winner:
            assert one.winner.cost_usd <= other.winner.cost_usd * (1 + 1e-9)


def test_a_rent_beyond_its_flip_turns_the_cell() -> None:
    for cell in guided().cells[1::3]:
        assert cell.winner is not None
        assert cell.rival is not None
        turn, ident = cell.flip_rent_usd, cell.winner.accelerator
        assert turn is not None
        now = cell.winner.rent_usd_per_device_hour
        assert now is not None
        for factor, same in ((0.99, True), (1.01, False)):
            usd = turn * factor
            text = GUIDE.replace("value: 2.0", f"value: {usd}") if ident == "mi300x" else GUIDE
            text = text if ident == "mi300x" else GUIDE.replace("value: 3.4", f"value: {usd}")
            text = text.replace("low: 1.7, high: 2.6", "low: 0.01, high: 99")
            text = text.replace("low: 3.0, high: 4.0", "low: 0.01, high: 99")
            after = guided(text).cell(cell.shape, cell.requests_per_s)
            assert after.winner is not None
            assert (after.winner.vendor == cell.winner.vendor) is same


def test_a_crossing_of_loads_has_different_winners_on_both_sides() -> None:
    text = GUIDE.replace("[2, 20, 90]", "[0.5, 400]") + "stacks: {amd: {engineers: 1}}\n"
    result = guided(text)
    crossings = [crossing for crossing in result.crossings if crossing.axis == "load"]
    assert crossings
    for crossing in crossings:
        sides = guided(text.replace("[0.5, 400]", f"[{crossing.low}, {crossing.high}]"))
        ends = [sides.cell(replace(crossing.shape), load) for load in (crossing.low, crossing.high)]
        assert [end.winner.vendor for end in ends if end.winner] == [crossing.below_vendor, crossing.above_vendor]


def test_a_crossing_of_prompts_has_different_winners_on_both_sides() -> None:
    """An interval of two rows is halved by capacities found between them, without the accelerator that never wins."""
    text = GUIDE.replace("[2, 20, 90]", "[20]").replace("[1k, 8k]", "[1k, 16k]") + "stacks: {amd: {engineers: 1}}\n"
    text = text.replace("draws", "  - {id: mi325x, rent_usd_per_hour: {value: 20, low: 19, high: 21}}\ndraws")
    (crossing,) = guided(text).crossings
    assert crossing.axis == "context"
    assert crossing.high / crossing.low == pytest.approx(4, rel=0.01)
    ends = guided(text.replace("[1k, 16k]", f"[{crossing.low:.0f}, {crossing.high:.0f}]")).cells
    assert [end.winner.vendor for end in ends if end.winner] == [crossing.below_vendor, crossing.above_vendor]


def test_another_accelerator_of_the_vendor_that_is_hardly_dearer_is_named() -> None:
    """Every tie is what the guide of that accelerator alone costs, and no accelerator within 5% is missed."""
    also = "  - {id: mi325x, rent_usd_per_hour: {value: 2.04, low: 1.7, high: 2.6}, instances: [1, 2]}\n"
    both, second = GUIDE.replace("draws", f"{also}draws"), GUIDE.index("  - {id: mi300x")
    alone = [guided(both.replace(line, "")).cells for line in (also, both[second : both.index("  - {id: h200")])]
    ties = 0
    for cell, *ones in zip(guided(both).cells, *alone, strict=True):
        amd = sorted(fleet.cost_usd for one in ones for fleet in one.fleets if fleet.vendor == "amd")
        assert cell.winner is not None
        assert cell.winner.vendor == "amd"
        assert cell.winner.cost_usd == pytest.approx(amd[0])
        assert (cell.near_tie is not None) == (amd[1] <= 1.05 * amd[0])
        if cell.near_tie is not None:
            ties += 1
            assert {cell.near_tie.accelerator, cell.winner.accelerator} == {"mi300x", "mi325x"}
            assert cell.near_tie.cost_usd == pytest.approx(amd[1])
    assert ties


def test_a_model_that_changed_under_its_name_is_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kept(dict[str, Mapping[str, Any]]):
        def read(self, key: str) -> Mapping[str, Any] | None:
            return self.get(key)

        def write(self, key: str, kept: Mapping[str, object]) -> None:
            self[key] = json.loads(json.dumps(kept))

    files, text = Kept(), GUIDE.replace("[1k, 8k]", "[1k]").replace("[2, 20, 90]", "[2]")
    first, again = guided(text, files=files), guided(text, files=files)
    assert len(files) == 1
    assert again.cells == first.cells
    monkeypatch.setattr(small_guides, "model", lambda name: replace(model(name), vocab_size=1000))
    guided(text, files=files)
    assert len(files) == 2
