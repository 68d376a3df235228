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
"""`rent_contract` is for `term_months`; `rent_block` for a window of days to weeks, prepaid or waited for;
`purchase_node` is the server, `purchase_all_in` with network and storage; `run_per_hour` is owning without buying."""
_HOURLY: Final = frozenset(
    {"rent_on_demand", "rent_spot", "rent_index", "rent_contract", "rent_block", "own_per_hour", "run_per_hour"}
)
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
    term_months: int | None = None
    """How long a `rent_contract` binds; None where its source does not say."""
    survey: bool = False
    """Whether it is what somebody found many providers and buyers to agree on, and not one provider's list."""
    corrected_by: str | None = None
    """The entry that carries the same offer under its right label: this one stays on record and is not used."""

    def __post_init__(self) -> None:
        if self.usd <= 0 or self.devices < 1:
            raise ValueError(f"price {self.id}: usd and devices must be positive")
        if self.source is None and self.confidence != "unverified":
            raise ValueError(f"price {self.id}: a {self.confidence} confidence needs a source")
        if self.term_months is not None and (self.kind != "rent_contract" or self.term_months < 1):
            raise ValueError(f"price {self.id}: only a rent_contract has a term, of at least a month")

    @property
    def hourly(self) -> bool:
        """Whether `usd` is per hour."""
        return self.kind in _HOURLY

    @property
    def usable(self) -> bool:
        """Whether it has a source, pays for a whole machine and carries its right label."""
        return self.confidence != "unverified" and not self.component and self.corrected_by is None

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


def market_price(prices: Sequence[Price], kind: PriceKind, *, term_months: int | None = None) -> MarketPrice | None:
    """Take the median of each provider's newest price of a kind; None where nobody published one with a source."""
    whole = [p for p in prices if (p.kind, p.term_months) == (kind, term_months) and p.usable]
    if not whole:
        return None
    newest = max(price.effective_from for price in whole)
    offers = _newest_by_provider([price for price in whole if newest - price.effective_from <= _RECENT])
    return _middle(offers)


def _middle(offers: tuple[Price, ...]) -> MarketPrice:
    """A survey of the market where there is one, else the median; contracts on lists are dearer than those signed."""
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
    """Keep one price per provider: its newest, and of those the one for most devices together."""
    kept: dict[str, Price] = {}
    for price in sorted(prices, key=lambda entry: (entry.effective_from, entry.devices, -entry.usd_per_device)):
        kept[price.provider] = price
    return tuple(sorted(kept.values(), key=lambda price: price.usd_per_device))
