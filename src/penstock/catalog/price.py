"""Holds dated prices. Prices are appended and never overwritten, so that an older plan keeps the prices it used."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from statistics import median, quantiles
from typing import Final, Literal

PriceKind = Literal[
    "rent_on_demand",
    "rent_spot",
    "rent_index",
    "rent_contract",
    "rent_block",
    "own_per_hour",
    "run_per_hour",
    "purchase_device",
    "purchase_node",
    "purchase_rack",
    "purchase_all_in",
    "own_three_years",
]
"""The thing or service that a price is for. `rent_contract` rents for `term_months`. `rent_block` rents for some days
to weeks, prepaid or after a waiting time. `purchase_node` buys the server. `purchase_all_in` buys the server with
network and storage. `run_per_hour` is the hourly cost of an owned device without its purchase price."""
_HOURLY: Final = frozenset(
    {"rent_on_demand", "rent_spot", "rent_index", "rent_contract", "rent_block", "own_per_hour", "run_per_hour"}
)
_RECENT: Final = timedelta(days=365)
"""Prices that are older than the newest price by more than this are not used, because the market has changed since."""
_LONE_SPREAD: Final = {"high": 0.05, "medium": 0.1, "low": 0.2}
"""Assumed relative spread around the price if there is only one price, keyed by the confidence in that price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Price published on one day. A later price is a new entry with its own date."""

    id: str
    kind: PriceKind
    provider: str
    usd: float
    """Price in dollars for `devices` devices together. Prices for rent, own_per_hour and run_per_hour are per hour;
    prices of other kinds are paid once."""
    devices: int
    effective_from: date
    confidence: Literal["high", "medium", "low", "unverified"]
    date_precision: Literal["day", "month", "year"] = "day"
    sku: str | None = None
    region: str | None = None
    source: str | None = None
    note: str | None = None
    component: bool = False
    """Whether the price is for the accelerator alone, without the host, which is billed separately."""
    term_months: int | None = None
    """Term of a `rent_contract` in months. None if the source does not state the term."""
    survey: bool = False
    """Whether the price comes from a survey of many providers and buyers, instead of one provider's price list."""
    corrected_by: str | None = None
    """If this entry has a wrong label: id of the entry that records the same offer with the correct label. The wrong
    entry stays on record but is not used."""

    def __post_init__(self) -> None:
        if self.usd <= 0 or self.devices < 1:
            raise ValueError(f"price {self.id}: usd and devices must be positive")
        if self.source is None and self.confidence != "unverified":
            raise ValueError(f"price {self.id}: a price of {self.confidence} confidence must have a source")
        if self.term_months is not None and (self.kind != "rent_contract" or self.term_months < 1):
            raise ValueError(f"price {self.id}: term_months must be at least 1, and only a rent_contract can have it")

    @property
    def hourly(self) -> bool:
        """Return whether `usd` is per hour."""
        return self.kind in _HOURLY

    @property
    def usable(self) -> bool:
        """Return whether the price has a source, is for a whole machine and has the correct label."""
        return self.confidence != "unverified" and not self.component and self.corrected_by is None

    @property
    def usd_per_device(self) -> float:
        """Return the dollars per device. The price is per hour if `hourly` is true, else it is paid once."""
        return self.usd / self.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketPrice:
    """Market price of a device: the central price, its range, and the offers from which both are computed."""

    usd_per_device: float
    low_usd_per_device: float
    high_usd_per_device: float
    """Low and high price are quartiles of the offers, because one cloud's list price is not a market. If there is only
    one offer, the range around its price depends on the confidence in that price."""
    offers: tuple[Price, ...]
    """Each provider's newest price, cheapest first."""


def market_price(prices: Sequence[Price], kind: PriceKind, *, term_months: int | None = None) -> MarketPrice | None:
    """Return the market price, computed from each provider's newest price of one kind.

    The result is None if no sourced price of that kind is published.
    """
    whole = [p for p in prices if (p.kind, p.term_months) == (kind, term_months) and p.usable]
    if not whole:
        return None
    newest = max(price.effective_from for price in whole)
    offers = _newest_by_provider([price for price in whole if newest - price.effective_from <= _RECENT])
    return _middle(offers)


def _middle(offers: tuple[Price, ...]) -> MarketPrice:
    """Return the newest market survey if there is one, else the median of the offers.

    Surveys are preferred because list prices of contracts are higher than signed prices.
    """
    usd = [price.usd_per_device for price in offers]
    if len(offers) == 1:
        spread = _LONE_SPREAD[offers[0].confidence]
        low, high = usd[0] * (1 - spread), usd[0] * (1 + spread)
    else:
        low, _, high = quantiles(usd, n=4, method="inclusive")
    surveys = sorted((price for price in offers if price.survey), key=lambda price: price.effective_from)
    middle = surveys[-1].usd_per_device if surveys else median(usd)
    return MarketPrice(
        usd_per_device=middle,
        low_usd_per_device=min(low, middle),
        high_usd_per_device=max(min(high, median(usd)) if surveys else high, middle),
        offers=offers,
    )


def _newest_by_provider(prices: Sequence[Price]) -> tuple[Price, ...]:
    """Return the newest price of each provider.

    Among a provider's prices of the same date, the price for the largest number of devices is taken.
    """
    kept: dict[str, Price] = {}
    for price in sorted(prices, key=lambda entry: (entry.effective_from, entry.devices, -entry.usd_per_device)):
        kept[price.provider] = price
    return tuple(sorted(kept.values(), key=lambda price: price.usd_per_device))
