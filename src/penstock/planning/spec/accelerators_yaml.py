"""Reads accelerators on offer, nodes owned already, and numbers with ranges from a plan file."""

import re
from datetime import date
from itertools import pairwise
from math import inf
from typing import Final

from penstock.errors import UsageError
from penstock.planning.spec.plan_types import AcceleratorPlan, ContractPlan, Discount, OwnedPlan
from penstock.planning.spec.sourced_inputs import Input, default, given
from penstock.reading.yaml import Table, Value

ALL_VERIFIED: Final = "all verified"
VENDORS: Final = ("amd", "nvidia", "intel", "google")
_WATTS_PER_KW: Final = 1000.0
_PART: Final = (
    "id",
    "buy_usd",
    "node_usd",
    "rent_usd_per_hour",
    "contracts",
    "lead_weeks",
    "discounts",
    "available",
    "max_nodes",
    "node_kw",
    "tp",
)
_COUNTED: Final = re.compile(r"(\d{1,7})\s*[xX*]\s*([A-Za-z]\S*)")


def defaulted(table: Table, key: str, name: str, *, low: float = 0.0, high: float = inf) -> Input:
    """Read an input that has a default."""
    fallback = default(name)
    return table.optional(key, lambda entry: ranged(entry, fallback.unit, low=low, high=high), fallback)


def ranged(value: Value, unit: str, *, low: float = 0.0, high: float = inf) -> Input:
    """Read a number, or a table of value, low, high and source."""
    if not value.is_table:
        return given(value.number(low=low, high=high), unit)
    table = value.table("value", "low", "high", "source")
    number = table.required("value").number(low=low, high=high)
    least = table.optional("low", lambda entry: entry.number(low=low, high=high), number)
    most = table.optional("high", lambda entry: entry.number(low=low, high=high), number)
    source = table.optional("source", Value.text, "plan file")
    try:
        return given(number, unit, source=source, span=(least, most))
    except UsageError as error:
        value.refuse(str(error))


def words(value: Value) -> tuple[str, ...]:
    """Read a list of words, in lower case."""
    return tuple(entry.text().lower() for entry in value.items())


def read_accelerators(value: Value) -> tuple[AcceleratorPlan, ...]:
    """Read the accelerators to choose from; empty for all of them."""
    if not value.is_list:
        if value.text().lower() != ALL_VERIFIED:
            value.refuse(f"write a list of accelerators, or `{ALL_VERIFIED}`")
        return ()
    found = tuple(_part(entry) for entry in value.items())
    if not found:
        value.refuse(f"the list is empty; name accelerators or write `{ALL_VERIFIED}`")
    return found


def _part(value: Value) -> AcceleratorPlan:
    if not value.is_table:
        devices, name = counted(value.text())
        return AcceleratorPlan(id=name, node_devices=devices)
    table = value.table(*_PART)
    device, node = table.get("buy_usd"), table.get("node_usd")
    if device is not None and node is not None:
        node.refuse("a part has either `buy_usd` of a device or `node_usd` of a whole server")
    price = device or node
    devices, name = counted(table.required("id").text())
    return AcceleratorPlan(
        id=name,
        node_devices=devices,
        buy=None if price is None else _price(price, "USD/device" if price is device else "USD/node"),
        with_host=node is not None,
        rent=table.optional("rent_usd_per_hour", lambda entry: _price(entry, "USD/device/hour"), None),
        contracts=table.optional("contracts", _contracts, ()),
        lead_weeks=table.optional("lead_weeks", lambda entry: entry.number(high=520), None),
        discounts=table.optional("discounts", _discounts, ()),
        available=table.optional("available", Value.date, None),
        max_nodes=table.optional("max_nodes", lambda entry: entry.whole(high=10**6), None),
        node_watts=table.optional("node_kw", lambda entry: entry.number(low=0.01) * _WATTS_PER_KW, None),
        tp=table.optional("tp", lambda entry: tuple(rank.whole(low=1, high=4096) for rank in entry.items()), ()),
    )


def counted(text: str) -> tuple[int | None, str]:
    """Split `8xh100` into a device count and an accelerator; the count of a bare `h100` is None."""
    match = _COUNTED.fullmatch(text.strip())
    return (int(match[1]), match[2]) if match else (None, text)


def _price(value: Value, unit: str) -> Input:
    found = ranged(value, unit)
    if found.low <= 0:
        value.refuse("a price is above 0")
    return found


def _contracts(value: Value) -> tuple[ContractPlan, ...]:
    found = []
    for entry in value.items():
        table = entry.table("months", "years", "usd_per_hour")
        months, years = table.get("months"), table.get("years")
        if (months is None) == (years is None):
            table.value.refuse("needs either `months:` or `years:`")
        term = (
            months.whole(low=1, high=180) if months is not None else 12 * (years or table.value).whole(low=1, high=15)
        )
        found.append(ContractPlan(months=term, rent=_price(table.required("usd_per_hour"), "USD/device/hour")))
    if len({entry.months for entry in found}) < len(found):
        value.refuse("each term needs one price; keep one entry per term")
    return tuple(sorted(found, key=lambda contract: contract.months))


def _discounts(value: Value) -> tuple[Discount, ...]:
    found = []
    for entry in value.items():
        table = entry.table("devices", "off")
        found.append(
            Discount(
                devices=table.required("devices").whole(low=1),
                fraction=table.required("off").number(low=0, high=0.99),
            )
        )
    found.sort(key=lambda discount: discount.devices)
    if any(more.fraction <= less.fraction for less, more in pairwise(found)):
        value.refuse("a discount for more devices must be larger; is one of them of another order?")
    return tuple(found)


def read_owned(value: Value) -> tuple[OwnedPlan, ...]:
    """Read the nodes owned already."""
    found = tuple(_owned(entry) for entry in value.items())
    keys = [(entry.id, entry.site) for entry in found]
    if len(set(keys)) < len(keys):
        value.refuse("a part is listed twice at one site; add its nodes up, with their mean age and value")
    return found


def _owned(value: Value) -> OwnedPlan:
    if not value.is_table:
        devices, name = counted(value.text())
        if devices is None:
            value.refuse("say how many: 64xh100, or {id: h100, nodes: 8}")
        return _stands(name, devices=devices)
    table = value.table("id", "nodes", "devices", "resale_usd", "age_years", "book_usd", "until", "site")
    devices, name = counted(table.required("id").text())
    nodes = table.optional("nodes", lambda entry: entry.whole(low=1, high=10**6), None)
    devices = table.optional("devices", lambda entry: entry.whole(low=1, high=10**7), devices)
    if (nodes is None) == (devices is None):
        table.value.refuse("needs either `nodes:` or `devices:`")
    resale = table.get("resale_usd")
    return _stands(
        name,
        devices=devices,
        nodes=nodes,
        age_years=table.optional("age_years", lambda entry: entry.number(high=30), 0.0),
        book_usd=table.optional("book_usd", lambda entry: entry.number(), None),
        resale=None if resale is None else ranged(resale, "USD/node"),
        until=table.optional("until", Value.date, None),
        site=table.optional("site", Value.text, None),
    )


def _stands(
    name: str,
    *,
    devices: int | None = None,
    nodes: int | None = None,
    age_years: float = 0.0,
    book_usd: float | None = None,
    resale: Input | None = None,
    until: date | None = None,
    site: str | None = None,
) -> OwnedPlan:
    nothing = Input(
        value=0.0, low=0.0, high=book_usd or 0.0, unit="USD/node", source="not given: no sale is counted on"
    )
    return OwnedPlan(
        id=name,
        devices=devices,
        nodes=nodes,
        age_years=age_years,
        book_usd=book_usd,
        resale_usd=resale or nothing,
        until=until,
        site=site,
    )
