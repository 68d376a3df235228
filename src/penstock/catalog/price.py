"""Holds dated prices. They are appended and never overwritten, so that an older plan keeps its prices."""

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
"""`rent_contract` is for `term_months`. `rent_block` is for a window of days to weeks, prepaid or with a wait.
`purchase_node` is the server; `purchase_all_in` adds network and storage. `run_per_hour` is the cost of owning without
the purchase."""
_HOURLY: Final = frozenset(
    {"rent_on_demand", "rent_spot", "rent_index", "rent_contract", "rent_block", "own_per_hour", "run_per_hour"}
)
_RECENT: Final = timedelta(days=365)
"""A price that is older than the newest price by more than this is not used, because the market has changed."""
_LONE_SPREAD: Final = {"high": 0.05, "medium": 0.1, "low": 0.2}
"""Assumed relative spread around a single price, by its confidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Price published on one day. A later price is a new entry with its own date."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    id: str
    kind: PriceKind
    provider: str
    usd: float
    """Price in dollars for `devices` devices together: per hour if the kind is rent, own_per_hour or run_per_hour, else
    once."""
    devices: int
    effective_from: date
    confidence: Literal["high", "medium", "low", "unverified"]
    date_precision: Literal["day", "month", "year"] = "day"
    sku: str | None = None
    region: str | None = None
    source: str | None = None
    note: str | None = None
    component: bool = False
    """Whether the price is for the accelerator alone, with the host billed separately. No machine is available at this
    price."""
    term_months: int | None = None
    """Term of a `rent_contract` in months. None if its source does not state it."""
    survey: bool = False
    """Whether the price is the result of a survey of many providers and buyers, and not one provider's list price."""
    corrected_by: str | None = None
    """Id of another entry that has the same offer with the correct label. The entry with the wrong label stays on
    record and is not used."""

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
        """Return whether the price has a source, pays for a whole machine and has the correct label."""
        return self.confidence != "unverified" and not self.component and self.corrected_by is None

    @property
    def usd_per_device(self) -> float:
        """Return the dollars per device: per hour if hourly, else once."""
        return self.usd / self.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketPrice:
    """Market price of a device: the central price and the offers behind it."""

    usd_per_device: float
    low_usd_per_device: float
    high_usd_per_device: float
    """Quartiles of the offers, because one cloud's list price is not a market. If there is only one price, the range
    around it depends on its confidence."""
    offers: tuple[Price, ...]
    """Each provider's newest price, cheapest first."""


def market_price(prices: Sequence[Price], kind: PriceKind, *, term_months: int | None = None) -> MarketPrice | None:
    """Return the market price from each provider's newest price of a kind. None if no sourced price is published."""
    whole = [p for p in prices if (p.kind, p.term_months) == (kind, term_months) and p.usable]
    if not whole:
        return None
    newest = max(price.effective_from for price in whole)
    offers = _newest_by_provider([price for price in whole if newest - price.effective_from <= _RECENT])
    return _middle(offers)


def _middle(offers: tuple[Price, ...]) -> MarketPrice:
    """Return the newest market survey if there is one, else the median. Listed contracts cost more than signed ones."""
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
    """Return one price per provider: the newest price, and among prices of the same date the price for most devices."""
    kept: dict[str, Price] = {}
    for price in sorted(prices, key=lambda entry: (entry.effective_from, entry.devices, -entry.usd_per_device)):
        kept[price.provider] = price
    return tuple(sorted(kept.values(), key=lambda price: price.usd_per_device))
