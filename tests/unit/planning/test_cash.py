"""Money as it is paid adds up to the bill, falls on its day, and tells books from sales."""

import re
from dataclasses import replace
from datetime import date

import pytest

from penstock.economics.bill_line import Item, total_usd
from penstock.planning.optimizer.cash_flow import cash_of
from penstock.planning.optimizer.fleet_bill import fleet_lines
from penstock.planning.optimizer.node_costs import terms_of
from penstock.planning.plan_result import Answer, Bill
from penstock.report.plan.acquisition_plan import acquisitions
from small_plans import PLAIN, plan_of, solved

GROWING = PLAIN.replace("mean_load: 50%", "mean_load: 50%\n    growth_per_year: 60%")
OWNED = """
owned:
  - {id: h200, nodes: 4, age_years: 1, book_usd: 200000, resale_usd: 120000}
"""
YEARS = 3


def winner(text: str) -> Bill:
    answer = solved(text).answer
    assert isinstance(answer, Answer)
    return answer.winner


@pytest.mark.parametrize("text", [PLAIN, GROWING, GROWING + "step_months: 6\n", PLAIN + OWNED, GROWING + OWNED])
def test_quarters_and_years_add_up_to_the_undiscounted_bill(text: str) -> None:
    result = solved(text)
    assert isinstance(result.answer, Answer)
    bill = result.answer.winner
    cash = bill.cash
    assert sum(paid.total_usd for paid in cash.quarters) == pytest.approx(sum(paid.total_usd for paid in cash.years))
    # No interest in these plans: what is paid is the bill, less what a sale at the end or a sale forgone stands for.
    lines = fleet_lines(bill.mix, result.terms)
    given_up = _kept_usd(bill, result.terms.resolved.plan.owned)
    paid = sum(entry.total_usd + entry.sales_usd for entry in cash.years) + cash.after_usd
    assert paid - cash.bought_resale_usd + given_up == pytest.approx(total_usd(lines), rel=1e-6)


def _kept_usd(bill: Bill, owned: tuple[object, ...]) -> float:
    """Resale given up, with that of spares: each kept node loses a straight line to nothing at the horizon."""
    if not owned:
        return 0.0
    spans = {pool.period: pool.kept_nodes for pool in bill.mix.pools if pool.kept_nodes}
    length = YEARS / max(1, len({pool.period for pool in bill.mix.pools}))
    return sum(nodes * 120_000 * length / YEARS for nodes in spans.values())


def test_capex_is_the_purchase_order_and_the_books_are_not_the_sale() -> None:
    bill = winner(PLAIN.replace("resale: 100%", "resale: 0%").replace("rent_usd_per_hour: 3, ", ""))
    nodes = sum(bill.mix.purchases.values())
    (key,) = bill.mix.purchases
    device = {"mi300x": 15_000, "h200_sxm": 32_000}[key[0]]
    on_the_order = nodes * (8 * device + 70_000 + 8 * 2_000)
    assert bill.cash.capex_usd == bill.cash.first_order_usd == pytest.approx(on_the_order)
    assert bill.cash.bought_book_usd == pytest.approx(on_the_order * (1 - 3 / 4))
    assert bill.cash.bought_resale_usd == 0


def test_salvage_of_nothing_brings_nothing_however_young_the_hardware_is() -> None:
    """A year of a node that is bought costs its whole price, unless the plan counts on a sale."""
    year = PLAIN.replace("horizon_years: 3", "horizon_years: 1") + "acquire: [buy]\n"
    year = "\n".join(line for line in year.splitlines() if "mi300x" not in line)
    kept = winner(year.replace("resale: 100%", "resale: 0%"))
    sold = winner(year)
    assert kept.cost.total_usd - sold.cost.total_usd == pytest.approx(sold.cash.capex_usd * (1 - 1 / 4))
    assert kept.cash.capex_usd == sold.cash.capex_usd


def test_a_year_is_rented_where_buying_for_it_costs_more() -> None:
    """Review, rb1: $32,000 a device or $2.20 an hour for one year; a year of hours is $19,272."""
    text = PLAIN.replace("horizon_years: 3", "horizon_years: 1").replace(
        "rent_usd_per_hour: 3", "rent_usd_per_hour: 2.2"
    )
    h200 = "\n".join(line for line in text.splitlines() if "mi300x" not in line)
    assert sum(winner(h200.replace("resale: 100%", "resale: 0%")).mix.purchases.values()) == 0
    assert sum(winner(h200).mix.purchases.values()) > 0


def test_years_begin_on_the_day_of_the_plan() -> None:
    cash = winner(GROWING).cash
    assert [paid.start for paid in cash.years] == [date(2027, 1, 1), date(2028, 1, 1), date(2029, 1, 1)]
    assert len(cash.quarters) == 12
    assert cash.quarters[1].start == date(2027, 4, 1)


def test_an_order_is_placed_its_lead_time_before_it_serves() -> None:
    text = PLAIN.replace("{id: mi300x,", "{id: mi300x, lead_weeks: 10,").replace(
        "{id: h200,", "{id: h200, lead_weeks: 10,"
    )
    (order,) = winner(text.replace("rent_usd_per_hour: 3, ", "")).cash.orders
    assert order.on == date(2027, 1, 1)
    assert order.by == date(2026, 10, 23)


def test_interest_moves_the_bill_and_not_what_is_paid() -> None:
    result = solved(PLAIN)
    assert isinstance(result.answer, Answer)
    plan = plan_of(PLAIN.replace("discount_rate: 0", "discount_rate: 10%"))
    dearer = terms_of(replace(result.resolved, plan=replace(result.plan, money=plan.money)))
    assert cash_of(result.answer.winner.mix, dearer).capex_usd == result.answer.winner.cash.capex_usd
    assert [line.item for line in fleet_lines(result.answer.winner.mix, dearer)].count(Item.SOFTWARE) >= 1


@pytest.mark.parametrize("text", [PLAIN, GROWING, GROWING + OWNED, GROWING + "acquire: [rent]\n"])
def test_what_is_signed_now_is_told_from_what_is_added_later(text: str) -> None:
    result = solved(text)
    assert isinstance(result.answer, Answer)
    mix = result.answer.winner.mix
    now, later = acquisitions(mix, result.resolved)
    bought = [sum(nodes for key, nodes in mix.purchases.items() if (key[-1] > 0) == late) for late in (False, True)]
    for said, nodes in zip((now, later), bought, strict=True):
        assert [int(count) for count in re.findall(r"buy (\d+)", said)] == ([nodes] if nodes else [])
    hourly = [sum(pool.rented_nodes for pool in mix.pools if pool.period == at) for at in range(result.problem.periods)]
    assert (f"rent up to {max(hourly)} instances" in later) == (0 < hourly[0] < max(hourly))
    assert sum(int(count) for count in re.findall(r"rent (\d+) ", now)) == hourly[0]
