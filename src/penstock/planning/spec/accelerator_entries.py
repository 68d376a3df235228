"""Declares the keys of the entries `accelerators` and `owned` in a plan file."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Final

from penstock.errors import UsageError
from penstock.planning.spec.plan_types import AcceleratorPlan, ContractPlan, Discount, OwnedPlan
from penstock.planning.spec.sourced_inputs import Input, Stated
from penstock.reading.file_shape import FieldError
from penstock.reading.scalars import Day, number, whole

_MONTHS_PER_YEAR: Final = 12
_WATTS_PER_KW: Final = 1000.0
_COUNTED: Final = re.compile(r"(\d{1,7})\s*[xX*]\s*([A-Za-z]\S*)")
_Price = Annotated[Input, Stated("USD/device/hour", price=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractEntry:
    """A rental contract with a fixed term, in months or years."""

    months: Annotated[int, whole(low=1, high=180)] | None = None
    years: Annotated[int, whole(low=1, high=15)] | None = None
    usd_per_hour: _Price
    """Dollars per device and hour."""

    def __post_init__(self) -> None:
        if (self.months is None) == (self.years is None):
            raise UsageError("a contract needs either `months:` or `years:`")

    def plan(self) -> ContractPlan:
        """Return the contract, with its term in months."""
        return ContractPlan(months=self.months or _MONTHS_PER_YEAR * (self.years or 0), rent=self.usd_per_hour)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorEntry:
    """One accelerator and the ways to acquire it."""

    id: str
    """Name from `penstock catalog list`; `8xh100` states the devices per node."""
    buy_usd: Annotated[Input, Stated("USD/device", price=True)] | None = None
    """Dollars per device, without host and network. Default: the catalog's price, if any."""
    node_usd: Annotated[Input, Stated("USD/node", price=True)] | None = None
    """Dollars per whole server, instead of `buy_usd`."""
    rent_usd_per_hour: _Price | None = None
    """Dollars per device and hour, without a term. Default: the catalog's price, if any."""
    contracts: tuple[ContractEntry, ...] = ()
    """Rents by term. Default: the catalog's."""
    instances: tuple[Annotated[int, whole(low=1, high=64)], ...] | None = None
    """Devices per instance that can be rented by the hour or on a stated contract, such as [1, 2, 4, 8]. Default: the
    sizes of the catalog's hourly SKUs. Whole servers can always be rented."""
    lead_weeks: Annotated[float, number(high=520)] | None = None
    """Weeks from order to service."""
    discounts: tuple[Discount, ...] = ()
    available: Day | None = None
    """First day a node can serve."""
    max_nodes: Annotated[int, whole(high=10**6)] | None = None
    node_kw: Annotated[float, number(low=0.01)] | None = None
    """Maximum power of a server in kW."""
    tp: tuple[Annotated[int, whole(low=1, high=4096)], ...] = ()
    """The only tensor-parallel splits to consider. Default: every split in common use."""

    def __post_init__(self) -> None:
        if self.buy_usd is not None and self.node_usd is not None:
            raise FieldError("give either `buy_usd`, per device, or `node_usd`, per whole server; not both", "node_usd")
        terms = [entry.plan().months for entry in self.contracts]
        if len(set(terms)) < len(terms):
            raise FieldError("two contracts have the same term; keep one entry per term", "contracts")
        if any(more.fraction <= less.fraction for less, more in pairwise(self._discounts())):
            raise FieldError(
                "a discount for more devices must be larger than every discount for fewer devices", "discounts"
            )

    def _discounts(self) -> tuple[Discount, ...]:
        return tuple(sorted(self.discounts, key=lambda discount: discount.devices))

    def plan(self) -> AcceleratorPlan:
        """Return the accelerator with its prices."""
        devices, name = split_count(self.id)
        return AcceleratorPlan(
            id=name,
            node_devices=devices,
            buy=self.buy_usd or self.node_usd,
            with_host=self.node_usd is not None,
            rent=self.rent_usd_per_hour,
            contracts=tuple(sorted((entry.plan() for entry in self.contracts), key=lambda entry: entry.months)),
            instances=None if self.instances is None else tuple(sorted(set(self.instances))),
            lead_weeks=self.lead_weeks,
            discounts=self._discounts(),
            available=self.available,
            max_nodes=self.max_nodes,
            node_watts=None if self.node_kw is None else self.node_kw * _WATTS_PER_KW,
            tp=self.tp,
        )


def split_count(text: str) -> tuple[int | None, str]:
    """Split `8xh100` into a device count and an accelerator name; for `h100` the count is None."""
    match = _COUNTED.fullmatch(text.strip())
    return (int(match[1]), match[2]) if match else (None, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedEntry:
    """Nodes or devices owned already."""

    id: str
    """Name from `penstock catalog list`; `64xh100` also states the number of devices."""
    nodes: Annotated[int, whole(low=1, high=10**6)] | None = None
    devices: Annotated[int, whole(low=1, high=10**7)] | None = None
    """Number of devices, instead of `nodes`. Devices that do not fill whole nodes are counted singly, and a spare is
    then one device."""
    age_years: Annotated[float, number(high=30)] = 0.0
    book_usd: Annotated[float, number()] | None = None
    """Book value of one node today in dollars. Fewer devices than a node are one node."""
    resale_usd: Annotated[Input, Stated("USD/node")] | None = None
    """Dollars that selling one node today brings. A device beyond whole nodes brings its share of a node."""
    until: Day | None = None
    """Last day of use, because of lease, warranty or space. Default: beyond the horizon."""
    site: str | None = None
    """Site name. Default: the first site."""

    def __post_init__(self) -> None:
        if (self.nodes is None) == (self._devices() is None):
            raise UsageError("give either devices (64xh100) or nodes ({id: h100, nodes: 8}), but not both")

    def _devices(self) -> int | None:
        return self.devices or split_count(self.id)[0]

    def plan(self) -> OwnedPlan:
        """Return the owned nodes. If the plan states no resale price, 0 is assumed."""
        unsold = Input(
            value=0.0, low=0.0, high=self.book_usd or 0.0, unit="USD/node", source="not given: assumes no resale"
        )
        return OwnedPlan(
            id=split_count(self.id)[1],
            devices=self._devices(),
            nodes=self.nodes,
            age_years=self.age_years,
            book_usd=self.book_usd,
            resale_usd=self.resale_usd or unsold,
            until=self.until,
            site=self.site,
        )
