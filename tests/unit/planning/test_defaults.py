"""Stating a default changes nothing, and every default that can change the answer is printed."""

from dataclasses import MISSING, fields
from typing import Any

import pytest
import yaml

from penstock.catalog import load_prices
from penstock.planning.plan_defaults import PlanDefault, plan_defaults
from penstock.planning.plan_result import Answer
from penstock.planning.spec.accelerator_entries import AcceleratorEntry
from penstock.planning.spec.plan_file import PlanFile, WorkloadEntry
from penstock.planning.spec.plan_types import Constraints, FinancePlan, NodePlan, StackPlan
from penstock.planning.spec.resolve_plan import Resolved
from penstock.planning.uncertainty.uncertain_inputs import knobs_of
from penstock.report.plan.default_sentences import default_sentence, size_sentence
from penstock.report.plan.sentences import sureness
from small_plans import problem_of, solved

CHAT = """
start: 2027-01-01
horizon_years: 1
workloads:
  - {name: chat, model: llama-3.1-8b, slo: "ttft=1s,tpot=50ms", requests_per_s: 30, lengths: [{input: 1k, output: 256}]}
"""
RENTED = CHAT + "accelerators: [{id: h200, tp: [1]}, {id: mi355x, tp: [1]}]\nacquire: [rent]\n"
QUOTED = (
    CHAT
    + """
accelerators:
  - {id: h200, tp: [1], rent_usd_per_hour: 2.6, contracts: [{years: 1, usd_per_hour: 2.2}]}
  - {id: mi355x, tp: [1], rent_usd_per_hour: {value: 2.1, low: 2.0, high: 2.2}}
acquire: [rent, contract]
"""
)
GROWS = CHAT.replace("horizon_years: 1\n", "").replace("requests_per_s: 30", "requests_per_s: 9, growth_per_year: 40%")
GROWS += "accelerators: [{id: h200, tp: [1]}, {id: mi300x, tp: [1]}]\n"
PLANS = {"rented": RENTED, "quoted": QUOTED, "grows": GROWS}


RATES = {"mi300x": 4.0, "mi355x": 7.0, "h200_sxm": 6.0}


def asked(text: str) -> tuple[Resolved, object]:
    """Return the inputs of a plan, and what its answer depends on: the problem, and every range that is drawn."""
    found, problem = problem_of(text, RATES, load_prices)
    spreads = {entry.id: (0.8, 1.2) for entry in found.plan.accelerators}
    knobs = [(one.id, one.input.value, one.input.low, one.input.high, one.maximum) for one in knobs_of(found, spreads)]
    return found, (problem, knobs)


def stated(text: str, default: PlanDefault) -> str:
    """Return the plan with a default stated."""
    tree = yaml.safe_load(text)
    at: Any = tree
    for key in default.path[:-1]:
        if isinstance(at, list):
            at = next(entry for entry in at if entry.get("name") == key or key.startswith(entry.get("id", "?")))
        else:
            at = at.setdefault(key, {})
    at[default.path[-1]] = default.value
    return str(yaml.safe_dump(tree))


@pytest.mark.parametrize("name", PLANS)
def test_stating_a_default_changes_nothing(name: str) -> None:
    resolved, silent = asked(PLANS[name])
    defaults = plan_defaults(resolved)
    assert ("constraints", "spare_nodes") in [entry.path for entry in defaults]
    for default in defaults:
        spoken, same = asked(stated(PLANS[name], default))
        assert same == silent, default
        assert default in plan_defaults(spoken) or "instances" in default.path


def test_no_engineers_stated_is_the_default() -> None:
    """`engineers: 0`, the default, removed AMD's engineers per 1,000 devices."""
    assert asked(RENTED + "stacks: {amd: {engineers: 0}}\n")[1] == asked(RENTED)[1]


def test_a_catalog_rent_stated_keeps_its_sizes() -> None:
    """The sizes were those of one class of sellers, or those of all if the same price was stated."""
    (planned,) = (one for one in asked(RENTED)[0].plan.accelerators if one.id == "mi355x")
    assert planned.rent is not None
    rent = f"{{value: {planned.rent.value}, low: {planned.rent.low}, high: {planned.rent.high}}}"
    assert asked(RENTED.replace("{id: mi355x,", f"{{id: mi355x, rent_usd_per_hour: {rent},"))[1] == asked(RENTED)[1]


def test_every_default_is_printed() -> None:
    """What is not printed is no choice between fleets, or has no default value."""
    silent = {
        *("name", "note", "start", "seed", "draws", "sure", "claims", "owned", "orders_from", "sites", "trace"),
        *("columns", "think", "api", "requests_per_s", "users", "lengths", "lead_weeks", "discounts", "available"),
        *("max_nodes", "node_kw", "tp", "min_vendor_share", "max_vendor_share", "stacks", "finance", "node"),
        # Printed elsewhere: the accelerators compared, their prices, and the engine that runs.
        *("accelerators", "engine", "buy_usd", "node_usd", "rent_usd_per_hour", "contracts", "constraints"),
        "engineer_usd_per_year",
    }
    parts = (PlanFile, WorkloadEntry, AcceleratorEntry, Constraints, StackPlan, FinancePlan, NodePlan)
    optional = {one.name for part in parts for one in fields(part) if {one.default, one.default_factory} != {MISSING}}
    listed = {entry.path[-1] for entry in plan_defaults(asked(GROWS.replace(", growth_per_year: 40%", ""))[0])}
    assert optional - silent == listed
    text = default_sentence(asked(RENTED)[0])
    for words in ("mi355x 8", "instances h200_sxm 1, 2, 4, 8", "spare_nodes 1", "confidence 80%", "utilisation 90%"):
        assert words in text


def test_a_quote_without_a_size_is_answered_twice() -> None:
    """NVIDIA was said to win in 99% of draws; AMD does if its quote is for single devices."""
    text = QUOTED.replace("requests_per_s: 30", "requests_per_s: 9") + "draws: 100\n"
    result = solved(text, RATES, prices_of=load_prices)
    assert isinstance(result.answer, Answer)
    found = result.answer.single_devices
    assert found is not None
    assert found.sizes == {"mi355x": (8,)}
    assert (result.answer.verdict.winner, found.winner) == ("nvidia", "amd")
    stating = text.replace("{id: mi355x, tp: [1],", "{id: mi355x, tp: [1], instances: [1, 2, 4, 8],")
    sized = solved(stating, RATES, prices_of=load_prices).answer
    assert isinstance(sized, Answer)
    assert sized.single_devices is None
    assert found.usd == {label: bill.mix.cost_usd for label, bill in sized.by_label.items()}
    assert "AMD wins instead" in size_sentence(result.answer)
    assert sureness(result.answer) == "open"


def test_only_rules_of_the_plan_are_called_yours() -> None:
    """The spares, a default, were "your rule"."""
    one = solved(
        QUOTED.replace("requests_per_s: 30", "requests_per_s: 9") + "draws: 100\n", RATES, prices_of=load_prices
    )
    assert isinstance(one.answer, Answer)
    assert [(rule.rule, rule.usual) for rule in one.answer.rules] == [("the spares", True)]
    two = solved(RENTED + "constraints: {spare_nodes: 2}\ndraws: 100\n", RATES, prices_of=load_prices)
    assert isinstance(two.answer, Answer)
    assert [(rule.rule, rule.usual) for rule in two.answer.rules] == [("the spares", False)]
