"""Turning a knob moves what it names, nothing else, and back."""

from dataclasses import replace

import pytest

from penstock.planning.spec.resolve_plan import assumptions
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, Knob, knobs_of
from small_plans import TWO_PARTS, resolved

TEXT = TWO_PARTS.replace("{id: mi300x, ", "{id: mi300x, available: 2027-06-01, ") + (
    "sites: [{name: here}, {name: there, usd_per_kwh: 0.2}]\n"
)
WORLD = InputWorld(resolved=resolved(TEXT))
KNOBS = {knob.name: knob for knob in knobs_of(WORLD.resolved, {"mi300x": (0.8, 1.2), "h200_sxm": (0.9, 1.05)})}
MOVES = {
    "mi300x price": {"mi300x: price"},
    "h200_sxm price": {"h200_sxm: price"},
    "mi300x throughput": {"mi300x carries"},
    "h200_sxm throughput": {"h200_sxm carries"},
    "extra amd engineers": {"amd: extra engineers, floor"},
    "extra nvidia engineers": {"nvidia: extra engineers, floor"},
    "power price at here": {"here: power price"},
    "PUE at here": {"here: PUE"},
    "hosting at here": {"here: hosting"},
    "power price at there": {"there: power price"},
    "PUE at there": {"there: PUE"},
    "hosting at there": {"there: hosting"},
    "discount rate": {"discount rate"},
    "depreciation": {"depreciation"},
    "salvage value": {"salvage value"},
    "resale before full depreciation": {"resale before full depreciation"},
    "change of prices": {"change of prices"},
    "demand of chat": {"chat: demand"},
    "mean load of chat": {"chat: mean load"},
    "cost of an engineer": {"an engineer"},
    "host of a node": {"host of a node"},
    "network per device": {"network"},
    "device failures": {"device failures"},
    "idle power": {"idle power"},
    "mi300x delivery": {"mi300x comes"},
}


def figures(world: InputWorld) -> dict[str, object]:
    """Every figure of a world by name."""
    plan = world.resolved.plan
    found: dict[str, object] = {entry.name: entry.input.value for entry in assumptions(world.resolved)}
    found |= {f"{accelerator.id} carries": world.capacity.get(accelerator.id, 1.0) for accelerator in plan.accelerators}
    return found | {f"{accelerator.id} comes": accelerator.available for accelerator in plan.accelerators}


def turned_far(knob: Knob) -> InputWorld:
    return knob.apply(WORLD, knob.maximum)


def test_every_input_that_matters_has_its_knob() -> None:
    assert set(KNOBS) == set(MOVES)


@pytest.mark.parametrize("name", MOVES)
def test_a_knob_moves_exactly_what_it_names(name: str) -> None:
    before, after = figures(WORLD), figures(turned_far(KNOBS[name]))
    assert {figure for figure in before if before[figure] != after[figure]} == MOVES[name]


@pytest.mark.parametrize("name", MOVES)
def test_a_knob_turned_back_leaves_every_figure_as_it_was(name: str) -> None:
    knob = KNOBS[name]
    assert figures(knob.apply(turned_far(knob), knob.input.value)) == figures(WORLD)


@pytest.mark.parametrize("name", MOVES)
def test_two_knobs_turn_independently(name: str) -> None:
    other = KNOBS["mi300x price" if name != "mi300x price" else "discount rate"]
    one, two = KNOBS[name], other
    first = two.apply(one.apply(WORLD, one.maximum), two.maximum)
    second = one.apply(two.apply(WORLD, two.maximum), one.maximum)
    assert figures(first) == figures(second)


def test_a_knob_can_be_turned_as_far_as_its_range_and_a_flip_is_looked_for() -> None:
    for knob in KNOBS.values():
        assert knob.minimum <= knob.input.value <= knob.maximum
        for value in (knob.minimum, knob.input.low, knob.input.high, knob.maximum):
            assert knob.apply(WORLD, value) is not WORLD


def test_a_part_that_is_there_at_once_has_no_delivery_to_ask_about() -> None:
    early = replace(
        WORLD.resolved.plan, start=WORLD.resolved.plan.accelerators[0].available or WORLD.resolved.plan.start
    )
    assert "mi300x delivery" not in {knob.name for knob in knobs_of(replace(WORLD.resolved, plan=early), {})}


def test_inputs_that_are_called_alike_are_told_apart() -> None:
    """The resale of one accelerator owned at two sites is two inputs, whatever both are called."""
    owned = "owned: [{id: h200, nodes: 2, site: here}, {id: h200, nodes: 3, site: there, resale_usd: 90000}]\n"
    text = TEXT.replace("name: chat", "name: rent for 12 months") + owned
    knobs = knobs_of(resolved(text), {"mi300x": (0.8, 1.2)})
    assert len({knob.id for knob in knobs}) == len(knobs)
    assert sum(knob.name.startswith("resale of owned") for knob in knobs) == 2
    assert {knob.months for knob in knobs} == {None}
