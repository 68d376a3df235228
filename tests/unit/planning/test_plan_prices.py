"""Default prices are the catalog's newest, dated, with the range of who asks what."""

from dataclasses import replace
from datetime import date

import pytest

from penstock.catalog import accelerator_ids, load_prices
from penstock.catalog.price import Price, market_price
from penstock.planning.asked.prices import catalog_price

BASE = Price(
    id="a",
    kind="rent_on_demand",
    provider="one",
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
        replace(BASE, id="c", provider="two", usd=32.0, devices=8),
        replace(BASE, id="d", provider="three", usd=9.0),
    ]
    found = catalog_price(prices, "rent")
    assert found is not None
    assert (found.value, found.low, found.high) == (4.0, 3.5, 6.5)
    assert "3 providers" in found.source
    assert "2026-09-01" in found.source


def test_stale_unverified_partial_and_other_kinds_do_not_count() -> None:
    prices = [
        replace(BASE, id="old", provider="old", usd=90.0, effective_from=date(2024, 1, 1)),
        replace(BASE, id="un", provider="un", usd=90.0, confidence="unverified", source=None),
        replace(BASE, id="part", provider="part", usd=90.0, component=True),
        replace(BASE, id="spot", provider="spot", usd=90.0, kind="rent_spot"),
        BASE,
    ]
    found = catalog_price(prices, "rent")
    assert found is not None
    assert found.value == 2.0
    assert catalog_price(prices, "buy") is None


def test_a_single_opinion_is_not_exact() -> None:
    found = catalog_price([replace(BASE, kind="purchase_device", usd=15_000, confidence="low")], "buy")
    assert found is not None
    assert (found.low, found.value, found.high) == (12_000, 15_000, 18_000)
    assert "low confidence" in found.source


def test_the_catalog_has_no_price_for_mi355x_so_none_is_made_up() -> None:
    assert catalog_price(load_prices("mi355x"), "buy") is None
    assert catalog_price(load_prices("mi355x"), "rent") is None
    assert catalog_price(load_prices("mi300x"), "rent") is not None


@pytest.mark.parametrize("name", accelerator_ids())
def test_a_plan_and_a_simulation_pay_the_same_hour(name: str) -> None:
    planned, simulated = catalog_price(load_prices(name), "rent"), market_price(load_prices(name), "rent_on_demand")
    assert (planned and planned.value) == (simulated and simulated.usd_per_device)


def test_the_lowest_and_the_highest_offer_hold_the_range_between_them() -> None:
    for name in accelerator_ids():
        market = market_price(load_prices(name), "rent_on_demand")
        if market is not None and len(market.offers) > 1:
            usd = [offer.usd_per_device for offer in market.offers]
            assert usd == sorted(usd)
            assert usd[0] <= market.low_usd_per_device <= market.usd_per_device <= market.high_usd_per_device <= usd[-1]
            assert not any(offer.component for offer in market.offers)
