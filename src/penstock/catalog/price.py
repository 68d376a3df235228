"""Holds dated prices. Prices are appended and never overwritten, so that an older plan keeps the prices it used."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from statistics import median
from typing import Final, Literal

from penstock.catalog.seller import SELLER_CLASSES, SellerClass, SellerLevels, class_of, seller_of

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

    available: bool | None = None
    """Whether the seller had it that day. None if the source does not say."""

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


_FEW_SELLERS: Final = 3
"""Number of sellers of a class from which on the median of their prices is used as it is."""
_SEVERAL_SIZES: Final = re.compile(r"\d+x(?:/\d+x)+|\d+ or \d+ GPUs")
_RATE_TEXT: Final = re.compile(r'"?(starting at|on-demand|cloud gpu page|secure|community|hgx)', re.IGNORECASE)
"""Matches a SKU text that states the rate of a device, not the size of an instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketPrice:
    """Market price of a device: the central price, its range, and the offers from which both are computed."""

    usd_per_device: float
    low_usd_per_device: float
    high_usd_per_device: float
    """Low and high price are the lowest and highest offer: draws reach what is asked. If there is only one offer,
    the range around its price depends on the confidence in that price."""
    offers: tuple[Price, ...]
    """The newest price of each seller of the class, cheapest first."""
    seller_class: SellerClass
    """Class of the sellers."""
    paired: bool = False
    """Whether the price was corrected by what its few sellers ask for other devices."""


def market_price(
    prices: Sequence[Price],
    kind: PriceKind,
    *,
    term_months: int | None = None,
    levels: Callable[[], SellerLevels] | None = None,
) -> MarketPrice | None:
    """Return the market price, computed from the newest price of each seller of one class.

    The class is the first of `SELLER_CLASSES` that sells the device; a survey of contracts comes before any list. If
    few sellers of the class rent the device by the hour, and `levels` is given, the price is what a median seller of
    the class would ask (`SellerLevels.paired_usd`). The result is None if no sourced price of that kind is published.
    """
    offers = newest_offers(prices, kind, term_months=term_months)
    if not offers:
        return None
    found = _middle(_of_one_class(offers, kind))
    if levels is None or kind != "rent_on_demand" or len(found.offers) >= _FEW_SELLERS:
        return found
    usd = levels().paired_usd(offers, found.seller_class)
    if usd is None:
        return found
    low = min(found.low_usd_per_device, usd)
    # What a median seller would ask may be as much above the estimate as recorded sellers are below it.
    return replace(
        found,
        usd_per_device=usd,
        low_usd_per_device=low,
        high_usd_per_device=max(found.high_usd_per_device, usd * usd / low),
        paired=True,
    )


def newest_offers(prices: Sequence[Price], kind: PriceKind, *, term_months: int | None = None) -> tuple[Price, ...]:
    """Return the newest usable price of each seller, cheapest first; prices much older than the newest are dropped.

    A seller has one price per class, because a cloud that resells private devices sells two things. A price of low
    confidence never replaces a better one. Among a seller's prices of the same date, the price for the largest number
    of devices is taken. A seller whose newest price is of something that it did not have makes no offer.
    """
    recent = recent_prices(prices, kind, term_months)
    kept: dict[tuple[str, SellerClass], Price] = {}
    for price in sorted(recent, key=_rank):
        kept[seller_of(price), class_of(price)] = price
    offers = (price for price in kept.values() if price.available is not False)
    return tuple(sorted(offers, key=lambda price: price.usd_per_device))


def _rank(price: Price) -> tuple[bool, date, int, float]:
    return price.confidence != "low", price.effective_from, price.devices, -price.usd_per_device


def _of_one_class(offers: tuple[Price, ...], kind: PriceKind) -> tuple[Price, ...]:
    """Return the offers of sellers that can be compared with each other.

    For a rent these are the sellers of one class, with the surveys. For a purchase these are all sellers but resellers'
    lists. No buyer is known to pay a list price, so a list counts only if there is nothing else.
    """
    classes = {class_of(offer) for offer in offers}
    if kind.startswith("rent"):
        surveys = tuple(offer for offer in offers if offer.survey)
        rest = next((name for name in SELLER_CLASSES if name in classes - {"survey"}), "survey")
        return tuple(sorted({*surveys, *(o for o in offers if class_of(o) == rest)}, key=lambda o: o.usd_per_device))
    return tuple(offer for offer in offers if class_of(offer) != "reseller list") or offers


def _middle(offers: tuple[Price, ...]) -> MarketPrice:
    """Return the newest market survey if there is one, else the median of the offers.

    Surveys are preferred because list prices of contracts are higher than signed prices.
    """
    usd = [price.usd_per_device for price in offers]
    if len(offers) == 1:
        spread = _LONE_SPREAD[offers[0].confidence]
        low, high = usd[0] * (1 - spread), usd[0] * (1 + spread)
    else:
        low, high = min(usd), max(usd)
    surveys = sorted((price for price in offers if price.survey), key=lambda price: price.effective_from)
    middle = surveys[-1].usd_per_device if surveys else median(usd)
    return MarketPrice(
        usd_per_device=middle,
        low_usd_per_device=min(low, middle),
        high_usd_per_device=max(high, middle),
        offers=offers,
        seller_class="survey" if surveys else class_of(offers[0]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPrice:
    """Prices by the hour of the sellers of one class."""

    seller_class: SellerClass
    sellers: int
    low_usd_per_device: float
    median_usd_per_device: float
    high_usd_per_device: float


def prices_by_class(prices: Sequence[Price]) -> tuple[ClassPrice, ...]:
    """Return the hourly prices of each class of sellers, in the order of `SELLER_CLASSES`."""
    offers = newest_offers(prices, "rent_on_demand")
    by_class = {name: [o.usd_per_device for o in offers if class_of(o) == name] for name in SELLER_CLASSES}
    return tuple(
        ClassPrice(
            seller_class=name,
            sellers=len(usd),
            low_usd_per_device=usd[0],
            median_usd_per_device=median(usd),
            high_usd_per_device=usd[-1],
        )
        for name, usd in by_class.items()
        if usd
    )


def instance_sizes(
    prices: Sequence[Price], kind: PriceKind, *, term_months: int | None = None, seller_class: SellerClass | None = None
) -> tuple[int, ...]:
    """Return the numbers of devices in which recorded SKUs are rented, smallest first; empty if no SKU is recorded.

    A price that is only the rate of a device, such as "starting at", says nothing about the size of an instance. If
    `seller_class` is given, only SKUs of that class count.
    """
    sizes: set[int] = set()
    for price in recent_prices(prices, kind, term_months):
        if seller_class is not None and class_of(price) != seller_class:
            continue
        several = _SEVERAL_SIZES.search(price.sku or "")
        if several is not None:
            sizes |= {int(number) for number in re.findall(r"\d+", several[0])}
        elif _is_instance(price):
            sizes.add(price.devices)
    return tuple(sorted(sizes))


def recent_prices(prices: Sequence[Price], kind: PriceKind, term_months: int | None) -> tuple[Price, ...]:
    """Return the usable prices of a kind that are not much older than the newest."""
    whole = [p for p in prices if (p.kind, p.term_months) == (kind, term_months) and p.usable]
    newest = max((price.effective_from for price in whole), default=date.min)
    return tuple(price for price in whole if newest - price.effective_from <= _RECENT)


def _is_instance(price: Price) -> bool:
    text, sold = price.sku or "", class_of(price) not in {"estimate", "survey"}
    return bool(text) and sold and (price.devices > 1 or not _RATE_TEXT.match(text))
