"""What does owning it cost, all in? From the price of silicon to the engineers who keep the stack running."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.economics.bill_line import Item, Line, line, total_usd
from penstock.economics.finance import HOURS_PER_YEAR, MONTHS_PER_YEAR, Finance
from penstock.economics.node_power import average_watts

_WATTS_PER_KW: Final = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A place to put nodes."""

    name: str
    usd_per_kwh: float
    pue: float
    """Facility power over the power of the machines."""
    hosting_usd_per_kw_month: float
    """Space and provisioned power, per kilowatt of the nodes' maximum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackCosts:
    """What one vendor's software costs to run beyond what every fleet needs."""

    vendor: str
    engineers: float
    """Extra engineers as soon as one node of the vendor is in the fleet."""
    engineers_per_1000_devices: float
    engineer_usd_per_year: float
    support_usd_per_device_year: float
    """For hardware that is owned; a rent holds it."""
    licence_usd_per_device_year: float = 0.0
    """For software, however its device is had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """One kind of node and what buying and running one takes."""

    label: str
    devices: int
    device_usd: float
    """After the discount for volume."""
    host_usd: float
    """The server around the devices, once per node."""
    network_usd_per_device: float
    node_watts: float
    """At its maximum: what is provisioned."""
    serving_watts: float
    """On average while it serves."""
    idle_fraction: float
    """Of the maximum."""
    load_fraction: float
    """Mean use of the node over its life."""
    annual_failure_fraction: float
    """Share of devices that fail in a year outside warranty and are bought again."""


def owned(
    terms: Ownership,
    *,
    nodes: float,
    period_years: tuple[float, float],
    site: Site,
    stack: StackCosts,
    finance: Finance,
) -> tuple[Line, ...]:
    """Bill nodes bought at one date and sold, for what a sale brings, at another. Linear in nodes."""
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
    """What a node owned already would bring: a straight line from today to nothing on the day its use ends."""

    today_usd: float
    ends_years: float

    def usd(self, years: float) -> float:
        """What it brings so many years from now."""
        return self.today_usd * max(0.0, 1 - years / self.ends_years) if self.ends_years > 0 else 0.0


def kept(
    terms: Ownership,
    resale: Resale,
    *,
    nodes: float,
    period_years: tuple[float, float],
    site: Site,
    stack: StackCosts,
    finance: Finance,
) -> tuple[Line, ...]:
    """Bill nodes owned already for a time: running them, and what selling them at its start would have brought."""
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
    """Support by the device, and devices that fail outside warranty."""
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
    """Electricity for the machines and for cooling them, and the space."""
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
    """Bill the engineers a vendor's stack takes however small its share of the fleet is."""
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
    """Bill what grows with the fleet, owned or rented: engineers, and licences where there are any."""
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
    """Fold the whole bill of nodes that only stand by into one line."""
    return line(Item.SPARES, label, "nodes*node_usd", nodes=nodes, node_usd=total_usd(lines) / nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallStep:
    """One bar of a waterfall."""

    item: Item
    usd: float
    running_usd: float
    """The bill once this is added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """From silicon alone to all in."""

    silicon_usd: float
    """Silicon, or the rent that stands in its place."""
    all_in_usd: float
    steps: tuple[WaterfallStep, ...]

    @property
    def software_usd(self) -> float:
        """The software tax as money: engineers beyond what every fleet needs."""
        return sum(step.usd for step in self.steps if step.item is Item.SOFTWARE)


def waterfall(lines: Iterable[Line]) -> Waterfall:
    """Stack a bill in the order of `Item`; what costs nothing has no bar."""
    sums = by_item(lines)
    running, steps = 0.0, []
    for item in Item:
        if item in sums:
            running += sums[item]
            steps.append(WaterfallStep(item=item, usd=sums[item], running_usd=running))
    silicon = sums.get(Item.SILICON, 0.0) + sums.get(Item.RENT, 0.0)
    return Waterfall(silicon_usd=silicon, all_in_usd=running, steps=tuple(steps))


def by_item(lines: Iterable[Line]) -> Mapping[Item, float]:
    """Sum a bill by what it pays for, leaving out what costs nothing."""
    sums: dict[Item, float] = {}
    for entry in lines:
        if entry.usd:
            sums[entry.item] = sums.get(entry.item, 0.0) + entry.usd
    return sums
