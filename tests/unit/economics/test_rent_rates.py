"""Dollars in fit, predict, simulate and catalog diff: computed from the price that plans use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.catalog import load_prices, load_seller_levels, priced_ids
from penstock.catalog.device_prices import hourly_rent, purchase_price
from penstock.economics.rent_rates import rent_usd_per_gib_month, rent_usd_per_output_mtok
from penstock.planning.spec import catalog_prices
from penstock.units import GIB

positive = st.floats(1e-3, 1e6)


@pytest.mark.parametrize("accelerator", priced_ids())
def test_a_device_costs_what_a_plan_pays(accelerator: str) -> None:
    prices = load_prices(accelerator)
    planned, asked = catalog_prices.hourly_price(prices, load_seller_levels), hourly_rent(accelerator)
    assert (planned is None) == (asked is None)
    if planned is not None and asked is not None:
        assert (asked.low_usd_per_device, asked.usd_per_device, asked.high_usd_per_device) == (
            planned.low,
            planned.value,
            planned.high,
        )
        assert (asked.sellers, asked.seller_class) == (planned.sellers, planned.seller_class)
    bought, quoted = catalog_prices.purchase_price(prices), purchase_price(accelerator)
    assert (bought is None) == (quoted is None)
    if bought is not None and quoted is not None:
        assert (quoted.usd_per_device, quoted.with_host) == (bought[0].value, bought[1])


@given(usd=positive, gib=positive, devices=st.integers(1, 72), per_s=positive)
def test_rents_are_hours_times_the_price(usd: float, gib: float, devices: int, per_s: float) -> None:
    assert rent_usd_per_gib_month(usd, gib * GIB) * gib == pytest.approx(usd * 730)
    tokens_per_hour = per_s * 3600
    assert rent_usd_per_output_mtok(usd, devices, per_s) * tokens_per_hour / 1e6 == pytest.approx(usd * devices)


def test_fit_prices_the_memory_that_is_left() -> None:
    answer = penstock.fit("llama-3.1-70b", "mi300x,h100,h100:2")
    rent, too_small, shard = answer.kv_rents_usd_per_gib_month
    assert too_small is None
    budget, price = answer.reports[0].fit.budget, hourly_rent("mi300x")
    assert budget is not None
    assert price is not None
    assert rent == pytest.approx(price.usd_per_device * 730 * GIB / budget.kv_bytes)
    assert shard is not None
    assert [row["rent_usd_per_kv_gib_month"] for row in answer.rows()] == [rent, None, shard]


def test_predict_prices_its_throughput() -> None:
    answer = penstock.predict("llama-3.1-70b", "mi300x,h100:2", concurrency=16)
    assert isinstance(answer, penstock.PredictAnswer)
    for prediction, cost in zip(answer.predictions, answer.costs_usd_per_output_mtok, strict=True):
        rent, placed = hourly_rent(prediction.deployment.accelerator.id), prediction.deployment
        assert rent is not None
        assert cost is not None
        per_hour = rent.usd_per_device * placed.parallelism.devices
        assert cost.value == pytest.approx(per_hour / (prediction.output_tokens_per_s.value * 3600) * 1e6)
        assert cost.low <= cost.value <= cost.high


def test_diff_has_a_price_per_gib_and_per_bandwidth() -> None:
    rows = {row["fact"]: row for row in penstock.catalog("diff", "mi300x", "h100").rows()}
    rent = rows["rent_usd_per_device_hour"]["mi300x"]
    assert isinstance(rent, float)
    assert rows["rent_usd_per_hbm_gib_month"]["mi300x"] == pytest.approx(rent * 730 / 192)
    assert rows["rent_usd_per_hbm_tb_per_s_month"]["mi300x"] == pytest.approx(rent * 730 / 5.3, rel=0.02)
