"""What does the catalog say a device costs? The newest sourced prices, dated, with the range of who asks what."""

from collections.abc import Sequence
from datetime import timedelta
from statistics import median, quantiles
from typing import Final

from penstock.catalog.price import Price
from penstock.planning.inputs import Input
from penstock.planning.plan_file import Acquisition

_KINDS: Final = {"buy": "purchase_device", "rent": "rent_on_demand"}
_RECENT: Final = timedelta(days=365)
"""Prices older than this beside the newest are another market."""
_LONE_SPREAD: Final = {"high": 0.05, "medium": 0.1, "low": 0.2}
"""A single price is one opinion: how far others may be from it, by the catalog's confidence. An assumption."""


def catalog_price(prices: Sequence[Price], acquisition: Acquisition) -> Input | None:
    """Take the median of each provider's newest price; None where nobody published one with a source."""
    sourced = [price for price in prices if price.kind == _KINDS[acquisition] and _whole(price)]
    if not sourced:
        return None
    newest = max(price.effective_from for price in sourced)
    recent = [price for price in sourced if newest - price.effective_from <= _RECENT]
    offers = tuple(_newest_by_provider(recent).values())
    usd = sorted(price.usd_per_device for price in offers)
    unit = "USD/device" if acquisition == "buy" else "USD/device/hour"
    if len(offers) == 1:
        (only,) = offers
        spread = _LONE_SPREAD[only.confidence]
        low, high = usd[0] * (1 - spread), usd[0] * (1 + spread)
        source = f"catalog {only.id}: {only.provider}, {only.effective_from} ({only.confidence} confidence)"
    else:
        low, high = _middle_half(usd)
        oldest = min(price.effective_from for price in offers)
        kind = "purchase estimates" if acquisition == "buy" else "providers' newest on-demand prices"
        source = f"catalog: median and middle half of {len(offers)} {kind}, {oldest} to {newest}"
    return Input(value=median(usd), low=low, high=high, unit=unit, source=source)


def _whole(price: Price) -> bool:
    """Whether it is sourced and pays for a usable machine; some clouds list the accelerator without its host."""
    component = price.note is not None and "COMPONENT ONLY" in price.note
    return price.confidence != "unverified" and not component


def _middle_half(usd: Sequence[float]) -> tuple[float, float]:
    """Between the quartiles: one cloud's list price is no market."""
    lower, _, upper = quantiles(usd, n=4, method="inclusive")
    return lower, upper


def _newest_by_provider(prices: Sequence[Price]) -> dict[str, Price]:
    """Keep one price per provider: its newest, and of those the one for most devices together."""
    kept: dict[str, Price] = {}
    for price in sorted(prices, key=lambda entry: (entry.effective_from, entry.devices, -entry.usd_per_device)):
        kept[price.provider] = price
    return kept
