"""Default prices are the catalog's newest, dated, with the range of who asks what."""

from dataclasses import replace
from datetime import date

import pytest

from penstock.catalog import accelerator_ids, load_accelerator, load_prices, load_seller_levels
from penstock.catalog.price import Price, market_price
from penstock.planning.plan_result import Answer
from penstock.planning.spec.catalog_prices import contract_prices, hourly_price, purchase_price
from penstock.planning.spec.plan_types import AcceleratorPlan
from penstock.planning.spec.resolve_plan import resolve
from penstock.report.plan.cash_sentences import money_with_site
from small_plans import TWO_PARTS, plan_of, solved

BASE = Price(
    id="a",
    kind="rent_on_demand",
    provider="lambda",
    usd=2.0,
    devices=1,
    effective_from=date(2026, 8, 1),
    confidence="high",
    source="https://example.org",
)


def test_each_provider_counts_once_with_its_newest_price_and_the_middle_is_taken() -> None:
    prices = [
        BASE,
        replace(BASE, id="b", usd=3.0, effective_from=date(2026, 9, 1)),
        replace(BASE, id="c", provider="nebius", usd=32.0, devices=8),
        replace(BASE, id="d", provider="verda", usd=9.0),
    ]
    found = hourly_price(prices)
    assert found is not None
    assert (found.value, found.low, found.high) == (4.0, 3.0, 9.0)
    assert "3 specialised clouds" in found.source
    assert "2026-09-01" in found.source


def test_stale_unverified_partial_and_other_kinds_do_not_count() -> None:
    prices = [
        replace(BASE, id="old", provider="old", usd=90.0, effective_from=date(2024, 1, 1)),
        replace(BASE, id="un", provider="un", usd=90.0, confidence="unverified", source=None),
        replace(BASE, id="part", provider="part", usd=90.0, component=True),
        replace(BASE, id="spot", provider="spot", usd=90.0, kind="rent_spot"),
        BASE,
    ]
    found = hourly_price(prices)
    assert found is not None
    assert found.value == 2.0
    assert purchase_price(prices) is None


def test_a_single_opinion_is_not_exact() -> None:
    price = purchase_price([replace(BASE, kind="purchase_device", usd=15_000, confidence="low")])
    assert price is not None
    found, with_host = price
    assert not with_host
    assert (found.low, found.value, found.high) == (12_000, 15_000, 18_000)
    assert "low confidence" in found.source


def test_where_nobody_published_a_price_none_is_made_up() -> None:
    # MI350X has one contract and hours nobody vouches for; nobody sells an MI325X with a source.
    assert purchase_price(load_prices("mi350x")) is None
    assert hourly_price(load_prices("mi350x")) is None
    assert [contract.months for contract in contract_prices(load_prices("mi350x"))] == [12]
    assert purchase_price(load_prices("mi325x")) is None
    assert hourly_price(load_prices("mi300x")) is not None


def test_a_server_is_priced_by_its_devices_and_says_that_it_holds_the_host() -> None:
    prices = [replace(BASE, kind="purchase_node", usd=240_000, devices=8)]
    found = purchase_price(prices)
    assert found is not None
    assert (found[0].value, found[1]) == (240_000 / 8, True)
    # A rack of 72 at $3.1M (SemiAnalysis) and $3.0M (gpu.fm).
    rack = purchase_price(load_prices("gb200"))
    assert rack is not None
    assert rack[0].value == pytest.approx((3.1e6 + 3.0e6) / 2 / 72)
    assert rack[1]


def test_a_device_sold_alone_is_preferred_to_its_share_of_a_server() -> None:
    node = replace(BASE, id="n", kind="purchase_node", usd=240_000, devices=8)
    found = purchase_price([node, replace(BASE, kind="purchase_device", usd=20_000)])
    assert found is not None
    assert (found[0].value, found[1]) == (20_000, False)


@pytest.mark.parametrize("name", accelerator_ids())
def test_a_plan_and_a_simulation_pay_the_same_hour(name: str) -> None:
    planned = hourly_price(load_prices(name), load_seller_levels)
    simulated = market_price(load_prices(name), "rent_on_demand", levels=load_seller_levels)
    assert (planned and planned.value) == (simulated and simulated.usd_per_device)


def test_the_lowest_and_the_highest_offer_hold_the_range_between_them() -> None:
    for name in accelerator_ids():
        market = market_price(load_prices(name), "rent_on_demand")
        if market is not None and len(market.offers) > 1:
            usd = [offer.usd_per_device for offer in market.offers]
            assert usd == sorted(usd)
            assert usd[0] <= market.low_usd_per_device <= market.usd_per_device <= market.high_usd_per_device <= usd[-1]
            assert not any(offer.component for offer in market.offers)


def prices_in(text: str) -> dict[str, AcceleratorPlan]:
    plan = plan_of(text)
    parts = tuple(load_accelerator(part.id) for part in plan.accelerators)
    found = resolve(plan, parts, load_prices, named=True, levels=load_seller_levels)
    return {entry.id: entry for entry in found.plan.accelerators}


BY_TERM = TWO_PARTS.replace("acquire: [buy]", "acquire: [rent, contract]").replace("mi300x", "mi355x")
BY_TERM = BY_TERM.replace(", buy_usd: {value: 15000, low: 12000, high: 18000}", "").replace(
    ", buy_usd: {value: 32000, low: 24000, high: 36000}", ""
)


def test_like_terms_are_compared() -> None:
    """A contract of 12 months was compared with rent by the hour, because no such contract of the other is recorded."""
    found = prices_in(BY_TERM)
    own, other = found["h200_sxm"], found["mi355x"]
    assert own.rent is not None
    assert other.rent is not None
    terms = {one.months: one.rent for one in own.contracts}
    estimated = {one.months: one.rent for one in other.contracts}
    assert terms.keys() <= estimated.keys()
    assert not any(rent.estimated for rent in terms.values())
    assert estimated[12].estimated
    assert estimated[12].value == pytest.approx(other.rent.value * terms[12].value / own.rent.value)
    assert "no seller's price is recorded" in estimated[12].source
    stated = BY_TERM.replace("{id: mi355x", "{id: mi355x, contracts: [{years: 3, usd_per_hour: 2}]")
    assert [one.months for one in prices_in(stated)["mi355x"].contracts] == [36]
    hourly = f"rent_usd_per_hour: {{value: {other.rent.value}, low: {other.rent.low}, high: {other.rent.high}}}"
    again = prices_in(BY_TERM.replace("{id: mi355x", f"{{id: mi355x, {hourly}"))["mi355x"]
    assert [one.rent.value for one in again.contracts] == [one.rent.value for one in other.contracts]


def test_rents_reach_the_recorded_prices() -> None:
    """Draws of MI355X began above what both of its clouds ask, and ended at the estimate."""
    for entry in prices_in(BY_TERM).values():
        assert entry.rent is not None
        market = market_price(load_prices(entry.id), "rent_on_demand")
        assert market is not None
        asked = [offer.usd_per_device for offer in market.offers]
        assert entry.rent.low <= min(asked)
        assert entry.rent.high >= max(asked)
        assert entry.rent.low < entry.rent.value < entry.rent.high


def test_an_order_at_an_estimated_price_asks_for_a_quote() -> None:
    text = BY_TERM.replace("name: two parts", "name: two parts\nhorizon_years: 1\ndraws: 100")
    answer = solved(text, {"mi355x": 40.0, "h200_sxm": 4.0}, prices_of=load_prices).answer
    assert isinstance(answer, Answer)
    cash = answer.winner.cash
    assert [order.accelerator for order in cash.orders if order.estimated] == ["mi355x"]
    said = dict(money_with_site(cash, plan_of(text)))["order"]
    assert "at an estimated price: ask for a quote first" in said
