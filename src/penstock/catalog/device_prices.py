"""Market prices of one accelerator: its rent by the hour and its purchase price, as plans use them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from penstock.catalog._catalog_files import accelerator_ids, load_prices, load_seller_levels
from penstock.catalog.accelerator import Accelerator
from penstock.catalog.price import MarketPrice, Price, PriceKind, market_price
from penstock.catalog.seller import SellerClass

_PURCHASES: Final[Sequence[PriceKind]] = ("purchase_device", "purchase_node", "purchase_rack")
"""Kinds of purchase prices, the price of the device alone first. The others include a share of the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePrice:
    """Price of one device with its range, and the offers that it summarises."""

    accelerator: str
    kind: PriceKind
    usd_per_device: float
    """Dollars per device. The price is per hour if `kind` is a rent, else it is paid once."""
    low_usd_per_device: float
    high_usd_per_device: float
    """Quartiles of the offers, or an assumed spread around a single offer."""
    seller_class: SellerClass
    sellers: int
    first_date: date
    last_date: date
    """Dates of the oldest and the newest offer."""
    paired: bool
    """Whether the price was corrected by what its few sellers ask for other devices."""

    @property
    def with_host(self) -> bool:
        """Return whether a purchase price includes a share of the host."""
        return self.kind in _PURCHASES[1:]


def hourly_rent(accelerator_id: str) -> DevicePrice | None:
    """Return the price of an accelerator by the hour, on demand. None if the catalog has no sourced price."""
    market = market_price(load_prices(accelerator_id), "rent_on_demand", levels=load_seller_levels)
    return None if market is None else _price(accelerator_id, "rent_on_demand", market)


def rent_of(accelerator: Accelerator) -> DevicePrice | None:
    """Return the price of an accelerator by the hour. None without a sourced price, or if it is not in the catalog."""
    return hourly_rent(accelerator.id) if accelerator.id in accelerator_ids() else None


def purchase_price(accelerator_id: str) -> DevicePrice | None:
    """Return the purchase price of an accelerator. None if the catalog has no sourced price."""
    found = purchase_market(load_prices(accelerator_id))
    return None if found is None else _price(accelerator_id, *found)


def purchase_market(prices: Sequence[Price]) -> tuple[PriceKind, MarketPrice] | None:
    """Return the market price of a device and its kind.

    If no device price is published, the price of a server or rack is divided by its number of devices. The result then
    includes a share of the host.
    """
    for kind in _PURCHASES:
        market = market_price(prices, kind)
        if market is not None:
            return kind, market
    return None


def _price(accelerator_id: str, kind: PriceKind, market: MarketPrice) -> DevicePrice:
    days = [offer.effective_from for offer in market.offers]
    return DevicePrice(
        accelerator=accelerator_id,
        kind=kind,
        usd_per_device=market.usd_per_device,
        low_usd_per_device=market.low_usd_per_device,
        high_usd_per_device=market.high_usd_per_device,
        seller_class=market.seller_class,
        sellers=len(market.offers),
        first_date=min(days),
        last_date=max(days),
        paired=market.paired,
    )
