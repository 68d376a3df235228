"""What does the catalog say a device costs? The market's price as an input of the plan, with its range and dates."""

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.catalog.price import Price, PriceKind, market_price
from penstock.planning.asked.inputs import Input
from penstock.planning.asked.plan import Acquisition

_KINDS: Final[Mapping[Acquisition, PriceKind]] = {"buy": "purchase_device", "rent": "rent_on_demand"}


def catalog_price(prices: Sequence[Price], acquisition: Acquisition) -> Input | None:
    """Take the market's price; None where nobody published one with a source."""
    market = market_price(prices, _KINDS[acquisition])
    if market is None:
        return None
    if len(market.offers) == 1:
        (only,) = market.offers
        source = f"catalog {only.id}: {only.provider}, {only.effective_from} ({only.confidence} confidence)"
    else:
        days = sorted(price.effective_from for price in market.offers)
        kind = "purchase estimates" if acquisition == "buy" else "providers' newest on-demand prices"
        source = f"catalog: median and middle half of {len(days)} {kind}, {days[0]} to {days[-1]}"
    return Input(
        value=market.usd_per_device,
        low=market.low_usd_per_device,
        high=market.high_usd_per_device,
        unit="USD/device" if acquisition == "buy" else "USD/device/hour",
        source=source,
    )
