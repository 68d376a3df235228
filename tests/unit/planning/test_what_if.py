"""A rule costs what the plan without it saves, never less than nothing; more demand never costs less."""

from dataclasses import replace
from functools import partial

import pytest

from penstock.planning.in_parallel import in_parallel
from penstock.planning.optimizer.problem import Mix, Problem
from penstock.planning.plan_result import Answer
from penstock.planning.shared_placement.shared_plan import SharedPlan
from penstock.planning.sharing_saving import sharing_saving
from penstock.planning.spec.plan_types import Plan
from penstock.planning.uncertainty.scenarios import DemandScenario, RulePrice, rule_prices
from penstock.report.plan.scenario_sentences import idle_models, rule_usd, scenario_usd, small_fleet
from small_plans import PLAIN, TWO_PARTS, solved

DUAL = TWO_PARTS + "constraints: {min_vendors: 2, min_vendor_share: 40%, spare_nodes: 1}\n"


def answer_of(text: str) -> Answer:
    answer = solved(text).answer
    assert isinstance(answer, Answer)
    return answer


def test_the_price_of_two_vendors_is_the_difference_to_the_plan_without_the_rule() -> None:
    ruled, free = answer_of(DUAL), answer_of(TWO_PARTS + "constraints: {spare_nodes: 1}\n")
    (price,) = [rule for rule in ruled.rules if rule.rule == "the minimum number of vendors"]
    assert price.usd == pytest.approx(ruled.winner.cost.total_usd - free.winner.cost.total_usd, rel=1e-3)
    assert price.usd > 0
    assert price.without == "h200_sxm"


def test_every_rule_that_says_something_is_priced_and_none_is_a_gain() -> None:
    capped = PLAIN.replace("pue: 1.2,", "pue: 1.2, power_cap_kw: 70,").replace("rent_usd_per_hour: 3, ", "")
    found = {rule.rule: rule.usd for rule in answer_of(capped + "acquire: [buy]\n").rules}
    assert set(found) == {"the sites' power caps", "the spares"}
    assert all(usd >= 0 for usd in found.values())
    assert found["the spares"] > 0


def test_what_is_dearer_without_a_rule_than_with_it_is_not_sized_and_prices_nothing() -> None:
    result = solved(DUAL)
    assert isinstance(result.answer, Answer)
    family = result.answer.family
    sized: list[Mix] = []

    def counted(mix: Mix, _: Problem) -> Mix:
        sized.append(mix)
        return mix

    assert all(price.usd > 0 for price in rule_prices(result.problem, family, counted))
    assert len(sized) == 2
    cheap = replace(family, winner=replace(family.winner, cost_usd=1.0))
    assert all(price.usd == 0 for price in rule_prices(result.problem, cheap, counted))
    assert len(sized) == 2


def test_each_vendor_that_counts_carries_its_least_share() -> None:
    for share in (0.1, 0.25, 0.4):
        answer = answer_of(DUAL.replace("share: 40%, spare", f"share: {share:.0%}, spare"))
        carried = {"amd": 0.0, "nvidia": 0.0}
        tokens = {0: 0.6 * (1024 + 256), 1: 0.4 * (8192 + 512)}
        for pool in answer.winner.mix.pools:
            for (_, (_, bucket)), part in pool.load.items():
                carried[pool.offer.vendor] += part * tokens[bucket] / sum(tokens.values())
        assert min(carried.values()) >= share - 1e-6


def test_demand_low_base_and_high_are_solved_again() -> None:
    text = TWO_PARTS.replace("requests_per_s: 40", "requests_per_s: {value: 40, low: 20, high: 100}")
    scenarios = answer_of(text).scenarios
    assert [scenario.name for scenario in scenarios] == ["low", "base", "high"]
    assert [scenario.usd for scenario in scenarios] == sorted(scenario.usd or 0.0 for scenario in scenarios)
    assert answer_of(TWO_PARTS).scenarios == ()
    high = answer_of(TWO_PARTS.replace("requests_per_s: 40", "requests_per_s: 100"))
    assert scenarios[2].usd == pytest.approx(high.winner.cost.total_usd, rel=2e-3)


def test_what_a_workload_is_called_does_not_take_its_demand_scenarios() -> None:
    """A name that contains "mean" took them away: inputs were told apart by their display text."""
    text = TWO_PARTS.replace("requests_per_s: 40", "requests_per_s: {value: 40, low: 20, high: 100}")
    renamed = answer_of(text.replace("name: chat", "name: meaning")).scenarios
    assert [scenario.usd for scenario in renamed] == [scenario.usd for scenario in answer_of(text).scenarios]


def test_what_the_solver_did_not_prove_is_said_to_be_a_bound() -> None:
    """A rule whose absence may save more costs at least this; demand a cheaper fleet may serve at most this."""
    rule = RulePrice(rule="a rule", without_usd=9e6, usd=1e6, without="h200_sxm", proven=False)
    scenario = DemandScenario(name="high", usd=2e6, label="nvidia", accelerators={"h200_sxm": 8}, proven=False)
    assert (rule_usd(rule), scenario_usd(scenario)) == ("at least $1.00M", "at most $2.00M")
    assert rule_usd(replace(rule, proven=True)) == "$1.00M"
    assert all(found.proven for found in answer_of(DUAL).rules)


def test_a_load_of_a_few_devices_is_told_that_nodes_are_whole() -> None:
    few = solved(PLAIN.replace("requests_per_s: 40", "requests_per_s: 1"))
    many = solved(PLAIN.replace("requests_per_s: 40", "requests_per_s: 400"))
    assert isinstance(few.answer, Answer)
    assert isinstance(many.answer, Answer)
    assert "instances with fewer devices" in small_fleet(few, few.answer)
    assert small_fleet(many, many.answer) == ""


def test_several_models_that_leave_devices_idle_are_told_of_shared_devices() -> None:
    first = PLAIN[PLAIN.index("  - name: chat") : PLAIN.index("accelerators:")]
    idle = first.replace("requests_per_s: 40", "requests_per_s: 0.05")
    several = solved(PLAIN.replace(first, idle + idle.replace("name: chat", "name: other")))
    one = solved(PLAIN.replace(first, idle))
    busy = solved(PLAIN.replace(first, first + first.replace("name: chat", "name: other")))
    for result, told in ((several, True), (one, False), (busy, False)):
        assert isinstance(result.answer, Answer)
        asked = list[Plan]()

        def share(plan: Plan, asked: list[Plan] = asked) -> SharedPlan:
            asked.append(plan)
            return SharedPlan(name="", horizon_years=1.0, simulated_hours=2.0, choices=(), left_out=(), fleets={})

        hinted = replace(result, sharing=sharing_saving(result, share))
        assert ("--share" in idle_models(hinted, result.answer)) == told
        assert [{entry.id for entry in plan.accelerators} for plan in asked] == (
            [set(result.answer.winner.mix.support)] if told else []
        )


def test_questions_side_by_side_are_answered_in_their_order() -> None:
    assert list(in_parallel([partial(pow, number, 2) for number in range(20)])) == [number**2 for number in range(20)]
    assert list(in_parallel([])) == []
