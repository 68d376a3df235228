"""A plan says what its step costs, and the plan with the shorter step costs that much less."""

import pytest

from penstock.planning.plan_result import Answer
from small_plans import TWO_PARTS, solved

GROWING = TWO_PARTS.replace("    lengths:", "    growth_per_year: 100%\n    lengths:", 1).replace(
    "acquire: [buy]", "acquire: [rent]"
)
RENTED = GROWING.replace("buy_usd: {value: 15000, low: 12000, high: 18000}", "rent_usd_per_hour: 2, instances: [1]")
RENTED = RENTED.replace("buy_usd: {value: 32000, low: 24000, high: 36000}", "rent_usd_per_hour: 9")


def answered(text: str) -> Answer:
    answer = solved(text).answer
    assert isinstance(answer, Answer)
    return answer


def test_the_price_of_the_step_is_what_a_plan_with_the_shorter_step_saves() -> None:
    yearly, finer = answered(RENTED), answered(RENTED + "step_months: 6\n")
    (step,) = [rule for rule in yearly.rules if rule.rule == "changes every 12 months instead of every 6"]
    assert step.usd == pytest.approx(yearly.winner.mix.cost_usd - finer.winner.mix.cost_usd, rel=2e-3)
    assert step.usd > 0
    assert not step.proven


def test_a_plan_that_does_not_grow_or_has_the_shortest_step_has_no_price_of_its_step() -> None:
    assert not [rule for rule in answered(TWO_PARTS).rules if rule.rule.startswith("changes")]
    quarterly = RENTED.replace("start: 2026-12-01", "start: 2026-12-01\nhorizon_years: 1")
    assert not [rule for rule in answered(quarterly).rules if rule.rule.startswith("changes")]
