import subprocess
import sys
from datetime import date
from typing import Literal

import pytest

from conftest import REPOSITORY
from penstock.catalog import api_price_of, load_api_prices, load_prices, priced_ids
from penstock.catalog.price import Price, market_price, newest_offers

PRICES = {ident: load_prices(ident) for ident in priced_ids()}


def test_prices_are_many_dated_and_sorted() -> None:
    assert sum(len(prices) for prices in PRICES.values()) >= 300
    for prices in PRICES.values():
        assert [price.effective_from for price in prices] == sorted(price.effective_from for price in prices)


def test_ids_are_unique() -> None:
    ids = [price.id for prices in PRICES.values() for price in prices]
    assert len(ids) == len(set(ids))


def test_a_node_price_is_shared_by_its_devices() -> None:
    # ND96isr H100 v5: 98.32 USD an hour for eight devices, 12.29 each.
    price = next(
        price for price in PRICES["h100_sxm"] if price.sku == "Standard_ND96isr_H100_v5" and price.devices == 8
    )
    assert price.usd_per_device == pytest.approx(price.usd / 8)
    assert price.hourly


def test_a_price_without_a_source_must_call_itself_unverified() -> None:
    with pytest.raises(ValueError, match="must have a source"):
        Price(
            id="x",
            kind="purchase_device",
            provider="somebody",
            usd=1.0,
            devices=1,
            effective_from=date(2026, 1, 1),
            confidence="high",
        )


def test_a_price_without_its_host_says_so_in_a_field() -> None:
    noted = {
        (ident, price.id)
        for ident, prices in PRICES.items()
        for price in prices
        if price.note is not None and ("COMPONENT ONLY" in price.note or "baseboard only" in price.note)
    }
    flagged = {(ident, price.id) for ident, prices in PRICES.items() for price in prices if price.component}
    # A TPU's hour is of the full slice, as the same note says.
    assert flagged == {(ident, number) for ident, number in noted if not ident.startswith("tpu_")}


def test_recorded_prices_never_change() -> None:
    """The ledger holds a digest of every price ever recorded; an edited price no longer matches its line."""
    tool = REPOSITORY / "tools" / "price_ledger.py"
    if not tool.is_file():
        pytest.skip("the ledger tool is part of the repository, not of the wheel")
    result = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_corrected_label_stays_on_record_and_is_not_used() -> None:
    # Vultr's MI300X at $1.85 was read as on demand; it is a contract of 24 months.
    by_id = {price.id: price for price in PRICES["mi300x"]}
    assert by_id["p0274"].corrected_by == by_id["p0281"].corrected_by == "p1137"
    right = by_id["p1137"]
    assert (right.kind, right.term_months, right.usd_per_device) == ("rent_contract", 24, by_id["p0274"].usd_per_device)
    on_demand = market_price(PRICES["mi300x"], "rent_on_demand")
    assert on_demand is not None
    assert not {"p0274", "p0281"} & {price.id for price in on_demand.offers}


def test_every_correction_names_a_recorded_price_of_the_same_part() -> None:
    for prices in PRICES.values():
        ids = {price.id for price in prices}
        assert {price.corrected_by for price in prices if price.corrected_by} <= ids


def test_contracts_of_another_term_are_another_market() -> None:
    one, three = (market_price(PRICES["mi300x"], "rent_contract", term_months=term) for term in (12, 36))
    assert one is not None
    assert three is not None
    assert not {price.id for price in one.offers} & {price.id for price in three.offers}


def test_a_survey_of_contracts_beats_the_lists_of_single_clouds() -> None:
    # SemiAnalysis, September 2026: three years of H100 at $2.00; AWS, GCP and Azure list 2.97 to 5.40.
    market = market_price(PRICES["h100_sxm"], "rent_contract", term_months=36)
    assert market is not None
    assert market.usd_per_device == pytest.approx(2.00)
    assert market.low_usd_per_device <= 2.00 < market.high_usd_per_device
    assert max(price.usd_per_device for price in market.offers) > 5


def test_only_a_contract_has_a_term() -> None:
    with pytest.raises(ValueError, match="only a rent_contract"):
        Price(
            id="x",
            kind="rent_on_demand",
            provider="somebody",
            usd=1.0,
            devices=1,
            effective_from=date(2026, 1, 1),
            confidence="unverified",
            term_months=12,
        )


def test_api_prices_are_ordered() -> None:
    assert len(load_api_prices()) == 13
    for price in load_api_prices():
        assert price.low_input_usd_per_mtok <= price.input_usd_per_mtok <= price.high_input_usd_per_mtok
        assert price.low_output_usd_per_mtok <= price.output_usd_per_mtok <= price.high_output_usd_per_mtok
        assert (price.cached_input_usd_per_mtok or 0) < price.input_usd_per_mtok


def test_weight_formats_share_an_api_price() -> None:
    # LiteLLM 1.109.1: median of 20 sellers of Llama-3.3-70B.
    price = api_price_of("llama-3.3-70b")
    assert price is not None
    assert (price.input_usd_per_mtok, price.output_usd_per_mtok) == (0.447, 0.68)
    assert (price.sellers, price.checked_on, price.cached_input_usd_per_mtok) == (20, date(2026, 11, 19), None)
    for name in ("llama-3.3-70b-fp8-dynamic", "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic"):
        assert api_price_of(name) == price


@pytest.mark.parametrize(
    ("name", "sold"),
    [
        ("amd/GLM-5.3-Flash-Quark-MXFP4", "glm-5.3-flash"),
        ("glm-5.3-bf16", "glm-5.3"),
        ("nvidia/GLM-5.3-NVFP4", "glm-5.3"),
        ("moonshotai/Kimi-K2.6", "kimi-k2.6"),
        ("kimi-k2.5", None),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", None),
    ],
)
def test_shape_alone_has_no_api_price(name: str, sold: str | None) -> None:
    price = api_price_of(name)
    assert (None if price is None else price.model) == sold


def _offer(number: int, usd: float, day: int, confidence: Literal["high", "low"], *, available: bool | None) -> Price:
    return Price(
        id=f"x{number}",
        kind="rent_on_demand",
        provider="vultr",
        usd=usd,
        devices=1,
        effective_from=date(2026, 10, day),
        confidence=confidence,
        source="list",
        available=available,
    )


def test_weak_price_replaces_no_better_one() -> None:
    better, weak = _offer(1, 3.99, 1, "high", available=None), _offer(2, 2.19, 20, "low", available=None)
    assert newest_offers([better, weak], "rent_on_demand") == (better,)
    assert newest_offers([weak], "rent_on_demand") == (weak,)
    # Vultr's MI300X: an undated payload says 2.19, the API said 3.99 on 2026-09-23.
    sold = {offer.provider: offer.id for offer in newest_offers(PRICES["mi300x"], "rent_on_demand")}
    assert sold.get("vultr") != "p1357"


def test_sold_out_seller_makes_no_offer() -> None:
    """Nor does its older price, from before it was sold out."""
    before, sold_out = _offer(1, 3.0, 1, "high", available=None), _offer(2, 3.0, 20, "high", available=False)
    assert newest_offers([before, sold_out], "rent_on_demand") == ()
    assert newest_offers([before, sold_out, _offer(3, 3.0, 21, "high", available=True)], "rent_on_demand")
    # DigitalOcean's MI300X: available false in its API on 2026-10-08.
    assert "digitalocean" not in {offer.provider for offer in newest_offers(PRICES["mi300x"], "rent_on_demand")}


def test_listing_average_is_no_offer() -> None:
    # compute-screener does not say whether an H100 is SXM, PCIe or NVL.
    averages = [price for price in PRICES["h100_sxm"] if "compute-screener" in (price.source or "")]
    assert {price.kind for price in averages} == {"rent_index"}
    assert {price.confidence for price in averages} == {"low"}
    assert len(averages) == 11
