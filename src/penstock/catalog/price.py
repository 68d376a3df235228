"""What does it cost? Dated prices, appended and never overwritten: yesterday's plan keeps yesterday's price."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from statistics import median, quantiles
from typing import ClassVar, Final, Literal

from penstock.reading.toml import STRICT

PriceKind = Literal[
    "rent_on_demand",
    "rent_spot",
    "rent_index",
    "own_per_hour",
    "purchase_device",
    "purchase_rack",
    "own_three_years",
]
_HOURLY: Final = frozenset({"rent_on_demand", "rent_spot", "rent_index", "own_per_hour"})
_RECENT: Final = timedelta(days=365)
"""Prices older than this beside the newest are another market."""
_LONE_SPREAD: Final = {"high": 0.05, "medium": 0.1, "low": 0.2}
"""A single price is one opinion: how far others may be from it, by its confidence. An assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One price somebody published on one day. A later price is a new entry with its own date."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    id: str
    kind: PriceKind
    provider: str
    usd: float
    """For `devices` devices together: per hour when the kind is rent or own_per_hour, else once."""
    devices: int
    effective_from: date
    confidence: Literal["high", "medium", "low", "unverified"]
    date_precision: Literal["day", "month", "year"] = "day"
    sku: str | None = None
    region: str | None = None
    source: str | None = None
    note: str | None = None
    component: bool = False
    """Whether it pays for the accelerator alone and the host is billed apart: no machine can be had for it."""

    def __post_init__(self) -> None:
        if self.usd <= 0 or self.devices < 1:
            raise ValueError(f"price {self.id}: usd and devices must be positive")
        if self.source is None and self.confidence != "unverified":
            raise ValueError(f"price {self.id}: a {self.confidence} confidence needs a source")

    @property
    def hourly(self) -> bool:
        """Whether `usd` is per hour."""
        return self.kind in _HOURLY

    @property
    def usd_per_device(self) -> float:
        """The share of one device: per hour when hourly, else once."""
        return self.usd / self.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketPrice:
    """What a device costs: the middle of what everybody asks, and who asks what."""

    usd_per_device: float
    low_usd_per_device: float
    high_usd_per_device: float
    """Between the quartiles: one cloud's list price is no market. Around a lone price, by its confidence."""
    offers: tuple[Price, ...]
    """Each provider's newest price, cheapest first."""


def market_price(prices: Sequence[Price], kind: PriceKind) -> MarketPrice | None:
    """Take the median of each provider's newest price of a kind; None where nobody published one with a source."""
    whole = [p for p in prices if p.kind == kind and p.confidence != "unverified" and not p.component]
    if not whole:
        return None
    newest = max(price.effective_from for price in whole)
    offers = _newest_by_provider([price for price in whole if newest - price.effective_from <= _RECENT])
    usd = [price.usd_per_device for price in offers]
    if len(offers) == 1:
        spread = _LONE_SPREAD[offers[0].confidence]
        low, high = usd[0] * (1 - spread), usd[0] * (1 + spread)
    else:
        low, _, high = quantiles(usd, n=4, method="inclusive")
    return MarketPrice(usd_per_device=median(usd), low_usd_per_device=low, high_usd_per_device=high, offers=offers)


def _newest_by_provider(prices: Sequence[Price]) -> tuple[Price, ...]:
    """Keep one price per provider: its newest, and of those the one for most devices together."""
    kept: dict[str, Price] = {}
    for price in sorted(prices, key=lambda entry: (entry.effective_from, entry.devices, -entry.usd_per_device)):
        kept[price.provider] = price
    return tuple(sorted(kept.values(), key=lambda price: price.usd_per_device))
