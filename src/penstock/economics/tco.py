"""Computes the total cost of ownership, from the price of silicon to the engineers who maintain the stack."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.economics.bill_line import Item, Line, line, total_usd
from penstock.economics.finance import HOURS_PER_YEAR, MONTHS_PER_YEAR, Finance
from penstock.economics.node_power import average_watts

_WATTS_PER_KW: Final = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A location for nodes."""

    name: str
    usd_per_kwh: float
    pue: float
    """Power usage effectiveness: facility power divided by the power of the machines."""
    hosting_usd_per_kw_month: float
    """Rent for space and provisioned power, in dollars per month and per kilowatt of the nodes' maximum power."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackCosts:
    """Cost of one vendor's software stack, in addition to the software cost that every fleet has."""

    vendor: str
    engineers: float
    """Extra engineers that a fleet needs if it has any node of this vendor."""
    engineers_per_1000_devices: float
    engineer_usd_per_year: float
    support_usd_per_device_year: float
    """Support for an owned device. For rented devices, the rent includes support."""
    licence_usd_per_device_year: float = 0.0
    """Software licence, for owned and rented devices alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """One kind of node, with the figures that determine the cost of buying and running one node."""

    label: str
    devices: int
    device_usd: float
    """Price of a device after the volume discount."""
    host_usd: float
    """Price of a server without its accelerators; paid once per node."""
    network_usd_per_device: float
    node_watts: float
    """Maximum power of a node. Hosting is provisioned for the maximum power."""
    serving_watts: float
    """Average power of a node while it serves."""
    idle_fraction: float
    """Idle power of a node as a fraction of its maximum power."""
    load_fraction: float
    """Mean utilisation of the node over its life."""
    annual_failure_fraction: float
    """Fraction of devices that fail outside warranty and are replaced, per year."""


def ownership_bill(
    terms: Ownership,
    *,
    nodes: float,
    period_years: tuple[float, float],
    site: Site,
    stack: StackCosts,
    finance: Finance,
) -> tuple[Line, ...]:
    """Bill nodes that are bought at one date and sold later. The bill is proportional to the number of nodes."""
    start, end = period_years
    money = {
        "bought": finance.worth_today(start),
        "kept": finance.sold_fraction(end - start),
        "sold": finance.worth_today(end),
    }
    label, devices, years = terms.label, float(terms.devices), finance.paid_years(start, end)
    once = "*(bought - kept*sold)"
    return (
        line(
            Item.SILICON,
            label,
            f"nodes*devices*device_usd{once}",
            nodes=nodes,
            devices=devices,
            device_usd=terms.device_usd,
            **money,
        ),
        line(Item.HOST, label, f"nodes*host_usd{once}", nodes=nodes, host_usd=terms.host_usd, **money),
        line(
            Item.NETWORK,
            label,
            f"nodes*devices*network_usd{once}",
            nodes=nodes,
            devices=devices,
            network_usd=terms.network_usd_per_device,
            **money,
        ),
        *_running(terms, nodes, years, site),
        *_upkeep(terms, nodes, years, stack),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resale:
    """Resale value of an already owned node.

    The value falls linearly from today's to 0 at the end of the node's use.
    """

    today_usd: float
    ends_years: float

    def usd(self, years: float) -> float:
        """Return the resale value, in dollars, that the node has `years` years from today."""
        return self.today_usd * max(0.0, 1 - years / self.ends_years) if self.ends_years > 0 else 0.0


def retention_bill(
    terms: Ownership,
    resale: Resale,
    *,
    nodes: float,
    period_years: tuple[float, float],
    site: Site,
    stack: StackCosts,
    finance: Finance,
) -> tuple[Line, ...]:
    """Bill already owned nodes for a period. The bill has the nodes' running costs and their loss of resale value."""
    start, end = period_years
    years = finance.paid_years(start, end)
    return (
        line(
            Item.KEPT,
            terms.label,
            "nodes*(resale_usd*bought - later_usd*sold)",
            nodes=nodes,
            resale_usd=resale.usd(start),
            bought=finance.worth_today(start),
            later_usd=resale.usd(end),
            sold=finance.worth_today(end),
        ),
        *_running(terms, nodes, years, site),
        *_upkeep(terms, nodes, years, stack),
    )


def _upkeep(terms: Ownership, nodes: float, years: float, stack: StackCosts) -> Iterable[Line]:
    """Yield the line for support of all devices, and the line for replacing devices that fail outside warranty."""
    counted = {"nodes": nodes, "devices": float(terms.devices), "paid_years": years}
    support, each = stack.support_usd_per_device_year, "nodes*devices*usd_per_device_year*paid_years"
    yield line(Item.SUPPORT, terms.label, each, **counted, usd_per_device_year=support)
    yield line(
        Item.FAILURES,
        terms.label,
        "nodes*devices*annual_failures*device_usd*paid_years",
        **counted,
        annual_failures=terms.annual_failure_fraction,
        device_usd=terms.device_usd,
    )


def _running(terms: Ownership, nodes: float, years: float, site: Site) -> Iterable[Line]:
    """Yield one line each for the electricity of the machines, for cooling, and for space with provisioned power."""
    average = average_watts(
        terms.serving_watts, idle_watts=terms.node_watts * terms.idle_fraction, load_fraction=terms.load_fraction
    )
    energy = {
        "nodes": nodes,
        "average_kw": average / _WATTS_PER_KW,
        "hours_per_year": HOURS_PER_YEAR,
        "usd_per_kwh": site.usd_per_kwh,
        "paid_years": years,
    }
    formula = "nodes*average_kw*hours_per_year*usd_per_kwh*paid_years"
    yield line(Item.POWER, terms.label, formula, **energy)
    yield line(Item.COOLING, terms.label, f"{formula}*(pue - 1)", **energy, pue=site.pue)
    yield line(
        Item.HOSTING,
        terms.label,
        "nodes*maximum_kw*usd_per_kw_month*months_per_year*paid_years",
        nodes=nodes,
        maximum_kw=terms.node_watts / _WATTS_PER_KW,
        usd_per_kw_month=site.hosting_usd_per_kw_month,
        months_per_year=MONTHS_PER_YEAR,
        paid_years=years,
    )


def people(stack: StackCosts, *, period_years: tuple[float, float], finance: Finance) -> tuple[Line, ...]:
    """Bill the extra engineers that a vendor's stack needs.

    The number of these engineers does not depend on the size of the fleet.
    """
    return (
        line(
            Item.SOFTWARE,
            f"{stack.vendor} stack",
            "engineers*usd_per_year*paid_years",
            engineers=stack.engineers,
            usd_per_year=stack.engineer_usd_per_year,
            paid_years=finance.paid_years(*period_years),
        ),
    )


def stack_by_device(
    stack: StackCosts, *, devices: float, period_years: tuple[float, float], finance: Finance
) -> tuple[Line, ...]:
    """Bill the stack costs that grow with the number of devices, owned or rented: engineers and any licences."""
    counted = {"devices": devices, "paid_years": finance.paid_years(*period_years)}
    engineers = line(
        Item.SOFTWARE,
        f"{stack.vendor} stack, by size",
        "devices*engineers_per_1000*0.001*usd_per_year*paid_years",
        **counted,
        engineers_per_1000=stack.engineers_per_1000_devices,
        usd_per_year=stack.engineer_usd_per_year,
    )
    if not stack.licence_usd_per_device_year:
        return (engineers,)
    each, usd = "devices*usd_per_device_year*paid_years", stack.licence_usd_per_device_year
    return (engineers, line(Item.LICENCES, f"{stack.vendor} stack", each, **counted, usd_per_device_year=usd))


def as_spares(label: str, lines: tuple[Line, ...], *, nodes: float) -> Line:
    """Combine the whole bill of spare nodes into one line."""
    return line(Item.SPARES, label, "nodes*node_usd", nodes=nodes, node_usd=total_usd(lines) / nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallStep:
    """One bar of a waterfall chart."""

    item: Item
    usd: float
    running_usd: float
    """Sum of the bill's items up to and including the item of this bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """Costs of a bill, added up item by item from silicon alone to the all-in cost."""

    silicon_usd: float
    """Cost of bought silicon, plus the rent of rented nodes."""
    all_in_usd: float
    steps: tuple[WaterfallStep, ...]

    @property
    def software_usd(self) -> float:
        """Return the cost in dollars of extra engineers, in addition to the engineers that every fleet needs."""
        return sum(step.usd for step in self.steps if step.item is Item.SOFTWARE)


def waterfall(lines: Iterable[Line]) -> Waterfall:
    """Build a waterfall from the lines of a bill, in the order of `Item`. Items that cost nothing get no bar."""
    sums = by_item(lines)
    running, steps = 0.0, []
    for item in Item:
        if item in sums:
            running += sums[item]
            steps.append(WaterfallStep(item=item, usd=sums[item], running_usd=running))
    silicon = sums.get(Item.SILICON, 0.0) + sums.get(Item.RENT, 0.0)
    return Waterfall(silicon_usd=silicon, all_in_usd=running, steps=tuple(steps))


def by_item(lines: Iterable[Line]) -> Mapping[Item, float]:
    """Return the dollars of each item of a bill. Items that cost nothing are left out."""
    sums: dict[Item, float] = {}
    for entry in lines:
        if entry.usd:
            sums[entry.item] = sums.get(entry.item, 0.0) + entry.usd
    return sums
