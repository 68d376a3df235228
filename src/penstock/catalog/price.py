"""What does it cost? Dated prices, appended and never overwritten: yesterday's plan keeps yesterday's price."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import median
from typing import ClassVar, Literal

from penstock.catalog.accelerator import STRICT

Kind = Literal[
    "rent_on_demand",
    "rent_spot",
    "rent_index",
    "own_per_hour",
    "purchase_device",
    "purchase_rack",
    "own_three_years",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One price somebody published on one day. A later price is a new entry with its own date."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    id: str
    kind: Kind
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

    def __post_init__(self) -> None:
        if self.usd <= 0 or self.devices < 1:
            raise ValueError(f"price {self.id}: usd and devices must be positive")
        if self.source is None and self.confidence != "unverified":
            raise ValueError(f"price {self.id}: a {self.confidence} confidence needs a source")

    @property
    def hourly(self) -> bool:
        """Whether `usd` is per hour."""
        return self.kind.startswith("rent_") or self.kind == "own_per_hour"

    @property
    def usd_per_device(self) -> float:
        """The share of one device: per hour when hourly, else once."""
        return self.usd / self.devices


def on_demand_usd_per_device_hour(prices: Sequence[Price]) -> tuple[float, int] | None:
    """Return the median of each provider's newest on-demand price, and how many providers that is."""
    newest: dict[str, Price] = {}
    for price in prices:
        if price.kind == "rent_on_demand":
            known = newest.get(price.provider)
            if known is None or (price.effective_from, -price.usd_per_device) > (
                known.effective_from,
                -known.usd_per_device,
            ):
                newest[price.provider] = price
    if not newest:
        return None
    return median(price.usd_per_device for price in newest.values()), len(newest)
