"""Words for market prices: what a device costs, who sells it, and when the offers were published."""

from collections.abc import Sequence

from rich.text import Text

from penstock.catalog.device_prices import DevicePrice
from penstock.units import count_text


def price_notes(prices: Sequence[DevicePrice | None]) -> Text:
    """Return one line per accelerator and price, with its range, sellers and dates. Repeated prices appear once."""
    known = dict.fromkeys(price for price in prices if price is not None)
    lines = [_line(price) for price in known]
    return Text("\n".join(lines), style="dim")


def _line(price: DevicePrice) -> str:
    digits, unit = (2, "/h") if price.kind == "rent_on_demand" else (0, "")
    low, middle, high = (
        f"{usd:,.{digits}f}" for usd in (price.low_usd_per_device, price.usd_per_device, price.high_usd_per_device)
    )
    what = "rent on demand" if unit else "purchase with a share of the host" if price.with_host else "purchase"
    sellers = count_text(price.sellers, price.seller_class)
    dates = str(price.last_date) if price.first_date == price.last_date else f"{price.first_date} to {price.last_date}"
    how = "what a median seller would ask, from " if price.paired else "median of " if price.sellers > 1 else ""
    return f"{price.accelerator}: {what} ${middle}{unit} ({low}-{high}), {how}{sellers}, {dates}"
