"""Prices are compared within one class of sellers, and paired by seller where few sell."""

from dataclasses import replace
from datetime import date
from math import exp, log
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.catalog import load_prices, load_seller_levels, priced_ids
from penstock.catalog.price import Price, instance_sizes, market_price, newest_offers, prices_by_class
from penstock.catalog.seller import class_of, seller_levels, seller_of

BASE = Price(
    id="a",
    kind="rent_on_demand",
    provider="lambda",
    usd=2.0,
    devices=1,
    effective_from=date(2026, 8, 1),
    confidence="high",
    source="https://example.org",
    sku="1x_H100",
)
SELLERS = ("lambda", "nebius", "verda", "aws", "gcp")


def offers(usd_by_seller: dict[str, float]) -> tuple[Price, ...]:
    return tuple(replace(BASE, id=name, provider=name, usd=usd) for name, usd in usd_by_seller.items())


@pytest.mark.parametrize("name", priced_ids())
def test_a_default_rent_is_of_one_class_and_counts_each_cloud_once(name: str) -> None:
    market = market_price(load_prices(name), "rent_on_demand")
    if market is not None:
        assert {class_of(offer) for offer in market.offers} == {market.seller_class}
        assert len({seller_of(offer) for offer in market.offers}) == len(market.offers)


def test_a_hyperscaler_does_not_move_the_rent_of_specialised_clouds() -> None:
    clouds = offers({"lambda": 3.0, "nebius": 4.0, "verda": 5.0})
    with_list = market_price((*clouds, *offers({"aws": 12.0, "gcp": 13.0})), "rent_on_demand")
    assert with_list is not None
    assert with_list.usd_per_device == 4.0
    assert [entry.seller_class for entry in prices_by_class((*clouds, *offers({"aws": 12.0})))] == [
        "specialised cloud",
        "hyperscaler",
    ]


def test_a_resellers_list_price_is_not_averaged_in() -> None:
    # CDW lists an 8-way MI300X board at $936,955, that is $117,119 per device.
    node = market_price(load_prices("mi300x"), "purchase_node")
    assert node is not None
    assert node.usd_per_device == pytest.approx(145_017 / 8)
    only = market_price([replace(BASE, kind="purchase_device", provider="CDW list", usd=9.0)], "purchase_device")
    assert only is not None
    assert (only.usd_per_device, only.seller_class) == (9.0, "reseller list")


@given(
    st.lists(st.floats(0.5, 30.0), min_size=3, max_size=5),
    st.lists(st.floats(0.5, 3.0), min_size=5, max_size=5),
    st.data(),
)
def test_levels_recover_devices_and_sellers_where_each_price_is_their_product(
    devices: list[float], dearness: list[float], data: st.DataObject
) -> None:
    # The first seller offers every device, so that all prices are connected.
    table = []
    for device in devices:
        sold_by = data.draw(st.sets(st.sampled_from(SELLERS[1:])))
        table.append(offers({name: device * dearness[SELLERS.index(name)] for name in (SELLERS[0], *sorted(sold_by))}))
    levels = seller_levels(table)
    known = {seller for seller, _ in levels.by_seller}
    clouds = [dearness[SELLERS.index(name)] for name in SELLERS[:3] if name in known]
    typical = exp(median([log(level) for level in clouds]))
    for device, sold in zip(devices, table, strict=True):
        assert levels.paired_usd(sold, "specialised cloud") == pytest.approx(device * typical, rel=1e-3)


def test_levels_are_the_least_squares_fit() -> None:
    table = [newest_offers(load_prices(name), "rent_on_demand") for name in priced_ids()]
    levels = load_seller_levels().by_seller
    rows = [(n, (seller_of(o), class_of(o)), log(o.usd_per_device)) for n, sold in enumerate(table) for o in sold]
    rows = [row for row in rows if row[1] in levels]
    columns = sorted(levels)
    design = np.zeros((len(rows), len(table) + len(columns)))
    for at, (device, seller, _) in enumerate(rows):
        design[at, device] = design[at, len(table) + columns.index(seller)] = 1.0
    fitted = np.linalg.lstsq(design, np.array([usd for _, _, usd in rows]), rcond=None)[0][len(table) :]
    found = np.array([levels[seller] for seller in columns])
    assert np.ptp(found - fitted) < 1e-4


def test_mi355x_against_h200_moves_to_what_one_cloud_asks_for_both() -> None:
    # Oracle rents both: MI355X at 8.60, H200 at 10.00. The two other clouds that rent MI355X are cheap in general, but
    # Vultr less so: its MI325X is the dearest of five, 4.62 where their median is 3.21.
    medians = [market_price(load_prices(name), "rent_on_demand") for name in ("mi355x", "h200_sxm")]
    paired = [
        market_price(load_prices(name), "rent_on_demand", levels=load_seller_levels) for name in ("mi355x", "h200_sxm")
    ]
    before, after = (one.usd_per_device / two.usd_per_device for one, two in (medians, paired) if one and two)
    assert before == pytest.approx(2.77 / 4.38, abs=0.01)
    assert before < after < 8.60 / 10.00
    assert after == pytest.approx(0.76, abs=0.01)


def test_sizes_are_those_of_skus_and_a_rate_is_no_size() -> None:
    prices = [
        BASE,
        replace(BASE, id="b", devices=2, sku="2x_H100"),
        replace(BASE, id="c", devices=1, sku="VM 1x/4x", provider="hot aisle"),
        replace(BASE, id="d", devices=1, sku='"Starting at"', provider="verda"),
        replace(BASE, id="e", devices=16, sku="16x_H100", provider="aws"),
    ]
    assert instance_sizes(prices, "rent_on_demand") == (1, 2, 4, 16)
    assert instance_sizes(prices, "rent_on_demand", seller_class="specialised cloud") == (1, 2, 4)
    assert instance_sizes([prices[3]], "rent_on_demand") == ()
    # TensorWave and Vultr state a rate per MI355X; the recorded SKUs are whole servers.
    assert instance_sizes(load_prices("mi355x"), "rent_on_demand") == (8,)
    assert instance_sizes(load_prices("mi300x"), "rent_on_demand") == (1, 2, 4, 8)


def test_every_seller_of_a_current_hourly_rent_is_classified() -> None:
    assumed = {"Wafer (rent assumed)", "dstack benchmark host"}
    for name in priced_ids():
        for offer in newest_offers(load_prices(name), "rent_on_demand"):
            assert class_of(offer) != "estimate" or offer.provider in assumed
