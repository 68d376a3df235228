import subprocess
import sys
from datetime import date

import pytest

from conftest import REPOSITORY
from penstock.catalog import load_prices, priced_ids
from penstock.catalog.price import Price

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
    with pytest.raises(ValueError, match="needs a source"):
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
        if price.note is not None and "COMPONENT ONLY" in price.note
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
