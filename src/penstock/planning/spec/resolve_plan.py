"""Fills in every price of a plan, and gives the reason for each accelerator that is left out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.catalog.accelerator import Accelerator
from penstock.catalog.price import Price
from penstock.economics.node_power import DrawUnderLoad, NodePower, node_power
from penstock.errors import UsageError
from penstock.planning.spec.catalog_prices import (
    Levels,
    contract_prices,
    hourly_price,
    hourly_sizes,
    purchase_price,
    with_like_terms,
)
from penstock.planning.spec.plan_file import default_stack
from penstock.planning.spec.plan_types import (
    VENDORS,
    AcceleratorPlan,
    Acquisition,
    OwnedPlan,
    Plan,
    SitePlan,
    StackPlan,
)
from penstock.planning.spec.sourced_inputs import Input
from penstock.units import count_text

PricesOf = Callable[[str], Sequence[Price]]
DrawOf = Callable[[Accelerator], DrawUnderLoad | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """An accelerator or deployment that was left out of the comparison, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A plan whose accelerators all have catalog data, a power figure and at least one price."""

    plan: Plan
    accelerators: Mapping[str, Accelerator]
    power: Mapping[str, NodePower]
    left_out: tuple[LeftOut, ...]
    unpriced: tuple[str, ...] = ()
    """Current accelerators left out because no price is published for any way of acquisition that the plan allows."""
    unmeasured: tuple[str, ...] = ()
    """Accelerators left out because they have too few serving measurements and the plan does not list them."""
    headroom: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """Maps candidate and period to planned capacity relative to the load at the estimated inputs.

    The headroom follows from the plan's confidence; it is empty before candidates are known.
    """

    def stack_of(self, vendor: str) -> StackPlan:
        """Return the costs of the vendor's stack."""
        return self.plan.stacks[vendor]


def resolve(
    plan: Plan,
    accelerators: Sequence[Accelerator],
    prices_of: PricesOf,
    *,
    named: bool,
    draw_of: DrawOf = lambda _: None,
    served: Callable[[str], bool] = lambda _: True,
    levels: Levels | None = None,
) -> Resolved:
    """Fill in prices and power.

    `accelerators` are the accelerators that the plan lists, or the whole catalog if the plan lists none. If the plan
    lists no accelerators, only those with enough serving measurements, and owned accelerators, compete. To include
    another accelerator, whose speed is predicted from similar accelerators, the plan must list it.
    """
    asked = _resolve_accelerators(plan, accelerators) if named else {}
    owned = {entry.id for entry in _resolve_owned(plan, accelerators)}
    kept: dict[str, AcceleratorPlan] = {}
    power: dict[str, NodePower] = {}
    left_out: list[LeftOut] = []
    unpriced: list[str] = []
    unmeasured: list[str] = []
    for accelerator in {entry.id: entry for entry in accelerators}.values():
        listed = asked.get(accelerator.id, AcceleratorPlan(id=accelerator.id))
        if not named and not accelerator.recommendable and accelerator.id not in owned:
            continue
        priced = _with_prices(listed, plan.acquire, prices_of(accelerator.id), accelerator, levels)
        drawn = node_power(accelerator, draw_of(accelerator), given_watts=listed.node_watts)
        if not (priced.buy or priced.rent or priced.contracts or accelerator.id in owned):
            kinds = " or ".join(f"{kind}" for kind in plan.acquire)
            why = f"the catalog has no price to {kinds} it; give one under `accelerators:`"
            left_out.append(LeftOut(what=accelerator.id, why=why))
            unpriced.append(accelerator.id)
        elif not named and not served(accelerator.id) and accelerator.id not in owned:
            why = "too few serving measurements; list it under `accelerators:` to include it"
            left_out.append(LeftOut(what=accelerator.id, why=why))
            unmeasured.append(accelerator.id)
        elif drawn is None:
            left_out.append(LeftOut(what=accelerator.id, why="no power figure in the catalog; give `node_kw`"))
        else:
            kept[accelerator.id], power[accelerator.id] = priced, drawn
    if not kept:
        raise UsageError("no accelerator of the plan has a price; give buy_usd or rent_usd_per_hour in the plan file")
    chosen = {entry.id: entry for entry in accelerators if entry.id in kept}
    vendors: dict[str, None] = dict.fromkeys(entry.vendor for entry in chosen.values())
    stacks = {vendor: plan.stacks.get(vendor) or default_stack(vendor) for vendor in vendors}
    return Resolved(
        plan=replace(
            plan,
            accelerators=with_like_terms(tuple(kept.values())) if "contract" in plan.acquire else tuple(kept.values()),
            stacks=stacks,
            sites=_sites(plan, accelerators),
            owned=_resolve_owned(plan, accelerators),
        ),
        accelerators=chosen,
        power=power,
        left_out=tuple(left_out),
        unpriced=tuple(unpriced),
        unmeasured=tuple(unmeasured),
    )


def _resolve_owned(plan: Plan, accelerators: Sequence[Accelerator]) -> tuple[OwnedPlan, ...]:
    """Set the catalog id, node count and site of all owned nodes."""
    known = {accelerator.id: accelerator for accelerator in accelerators}
    known |= {listed.id: accelerator for listed, accelerator in zip(plan.accelerators, accelerators, strict=False)}
    sites = [site.name for site in plan.sites]
    found = []
    for entry in plan.owned:
        if entry.id not in known:
            raise UsageError(f"owned: no accelerator named '{entry.id}'; `penstock catalog list` shows all")
        accelerator, site = known[entry.id], entry.site or sites[0]
        if site not in sites:
            raise UsageError(f"owned: {entry.id}: '{site}' is not a site of the plan; use one of {', '.join(sites)}")
        found.append(_count_devices(replace(entry, id=accelerator.id, site=site), accelerator.node.devices))
    return tuple(found)


def _count_devices(entry: OwnedPlan, node_devices: int) -> OwnedPlan:
    """Count owned devices in whole nodes; if they do not fill whole nodes, count single devices.

    Amounts per node are then divided by the devices of a node. Fewer devices than a node are a smaller node.
    """
    nodes, left = divmod(entry.devices or 0, node_devices)
    if not left or entry.devices is None:
        return replace(entry, nodes=entry.nodes or nodes, devices=None)
    share = 1 / (node_devices if nodes else entry.devices)
    resale = entry.resale_usd
    return replace(
        entry,
        nodes=entry.devices,
        devices=None,
        unit_devices=1,
        largest_server=node_devices if nodes else left,
        book_usd=None if entry.book_usd is None else entry.book_usd * share,
        resale_usd=replace(
            resale,
            value=resale.value * share,
            low=resale.low * share,
            high=resale.high * share,
            unit="USD/device",
        ),
    )


def _resolve_accelerators(plan: Plan, accelerators: Sequence[Accelerator]) -> dict[str, AcceleratorPlan]:
    """Replace the name of each accelerator by its catalog id: a plan may write `h200` for `h200_sxm`."""
    asked: dict[str, AcceleratorPlan] = {}
    for listed, accelerator in zip(plan.accelerators, accelerators, strict=True):
        if accelerator.id in asked and listed.owned_only:
            continue
        if accelerator.id in asked:
            raise UsageError(f"accelerators: {accelerator.id} is listed twice; keep one entry")
        asked[accelerator.id] = replace(listed, id=accelerator.id)
    return asked


def _sites(plan: Plan, accelerators: Sequence[Accelerator]) -> tuple[SitePlan, ...]:
    """Replace accelerator names in each site's `deny` by catalog ids.

    Unknown names raise an error, because `deny` would otherwise ignore them silently.
    """
    known = {accelerator.id: accelerator.id for accelerator in accelerators}
    known |= {vendor: vendor for vendor in VENDORS}
    known |= {listed.id: accelerator.id for listed, accelerator in zip(plan.accelerators, accelerators, strict=False)}
    for site in plan.sites:
        unknown = [name for name in site.deny if name not in known]
        if unknown:
            raise UsageError(
                f"site {site.name}: deny: '{unknown[0]}' is neither a vendor nor an accelerator of the plan"
            )
    return tuple(replace(site, deny=tuple(known[name] for name in site.deny)) for site in plan.sites)


def _with_prices(
    listed: AcceleratorPlan,
    acquire: Sequence[Acquisition],
    prices: Sequence[Price],
    accelerator: Accelerator,
    levels: Levels | None,
) -> AcceleratorPlan:
    """Return the accelerator with a price for each allowed way to acquire it.

    A price in the plan file takes precedence over the catalog's price.
    """
    if listed.node_devices not in {None, accelerator.node.devices}:
        raise UsageError(
            f"accelerators: {listed.node_devices}x{listed.id}: a node has {accelerator.node.devices} devices; "
            f"write `{listed.id}`, with `instances: [{listed.node_devices}]` to rent in this size and "
            f"`tp: [{listed.node_devices}]` for replicas of {listed.node_devices} devices"
        )
    buy, with_host = listed.buy, listed.with_host
    if buy is not None and with_host:
        buy = _over(buy, accelerator.node.devices)
    if buy is None:
        buy, with_host = purchase_price(prices) or (None, False)
    sizes = hourly_sizes(prices) if listed.instances is None else listed.instances
    stated = tuple(replace(entry, sizes=sizes) for entry in listed.contracts)
    return replace(
        listed,
        instances=sizes,
        instances_stated=listed.instances is not None,
        # An accelerator of which only owned nodes are kept needs a price too, to replace devices that fail.
        buy=buy if "buy" in acquire or listed.owned_only else None,
        with_host=with_host,
        rent=(listed.rent or hourly_price(prices, levels)) if "rent" in acquire and not listed.owned_only else None,
        contracts=(stated or contract_prices(prices)) if "contract" in acquire and not listed.owned_only else (),
    )


def is_quoted_in_larger_units(planned: AcceleratorPlan) -> bool:
    """Return whether a price is the user's own, no size is stated, and the catalog knows no single devices of it."""
    rents = (planned.rent, *(contract.rent for contract in planned.contracts))
    quoted = any(rent.given for rent in rents if rent is not None)
    return quoted and not planned.instances_stated and 1 not in (planned.instances or ())


def by_the_device(planned: AcceleratorPlan, node_devices: int) -> AcceleratorPlan:
    """Return the accelerator with every size from a single device on, also on the user's own contracts."""
    sizes = tuple(size for size in range(1, node_devices + 1) if node_devices % size == 0)
    contracts = tuple(
        replace(one, sizes=sizes) if one.rent.given or one.rent.estimated else one for one in planned.contracts
    )
    return replace(planned, instances=sizes, contracts=contracts)


def _over(node: Input, devices: int) -> Input:
    """Divide a server's price by its number of devices."""
    low, high = node.low / devices, node.high / devices
    return replace(node, value=node.value / devices, low=low, high=high, unit="USD/device")


Confirmer = Literal["procurement", "facilities", "engineering", "finance"]
"""The department that can confirm an input."""
_Named = list[tuple[str, Input]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One line of the report's table of inputs."""

    name: str
    input: Input
    confirmed_by: Confirmer


def _power_inputs(ident: str, power: NodePower) -> _Named:
    most = power.node_watts / 1000
    largest = Input(value=most, low=most, high=most, unit="kW/node", source=power.note, given=power.basis == "given")
    serving = Input(
        value=power.serving_watts / 1000,
        low=power.serving_low_watts / 1000,
        high=power.serving_high_watts / 1000,
        unit="kW/node",
        source=power.serving_note,
    )
    return [(f"{ident}: node at its maximum", largest), (f"{ident}: node while it serves", serving)]


def assumptions(resolved: Resolved) -> tuple[Assumption, ...]:
    """List every input used, with its range, its source and the department that can confirm it."""
    groups: tuple[tuple[Confirmer, _Named], ...] = (
        ("procurement", _bought_inputs(resolved)),
        ("facilities", _site_inputs(resolved)),
        ("engineering", _run_inputs(resolved.plan)),
        ("finance", _money_inputs(resolved.plan)),
    )
    return tuple(
        Assumption(name=name, input=entry, confirmed_by=whose) for whose, found in groups for name, entry in found
    )


def _bought_inputs(resolved: Resolved) -> _Named:
    plan = resolved.plan
    found: _Named = []
    for listed in plan.accelerators:
        price = f"{listed.id}: price with its share of the server" if listed.with_host else f"{listed.id}: price"
        found += [(price, listed.buy)] if listed.buy else []
        found += [(f"{listed.id}: rent by the hour", listed.rent)] if listed.rent else []
        found += [
            (f"{listed.id}: rent for {count_text(entry.months, 'month')}", entry.rent) for entry in listed.contracts
        ]
    for vendor, entry in plan.stacks.items():
        found += [
            (f"{vendor}: support contract", entry.support_usd_per_device_year),
            (f"{vendor}: licences", entry.licence_usd_per_device_year),
        ]
    found += [("host of a node", plan.node.host_usd), ("network", plan.node.network_usd_per_device)]
    return [*found, *((f"{entry.id} owned: resale today", entry.resale_usd) for entry in plan.owned)]


def _site_inputs(resolved: Resolved) -> _Named:
    found: _Named = []
    for listed in resolved.plan.accelerators:
        found += _power_inputs(listed.id, resolved.power[listed.id])
    for site in resolved.plan.sites:
        found += [
            (f"{site.name}: power price", site.usd_per_kwh),
            (f"{site.name}: PUE", site.pue),
            (f"{site.name}: hosting", site.hosting_usd_per_kw_month),
        ]
    return [*found, ("idle power", resolved.plan.node.idle_power)]


def _run_inputs(plan: Plan) -> _Named:
    found: _Named = []
    for workload in plan.workloads:
        found += [
            (f"{workload.name}: demand", workload.demand),
            (f"{workload.name}: mean load", workload.mean_load),
            (f"{workload.name}: growth", workload.growth_per_year),
        ]
    for vendor, entry in plan.stacks.items():
        found += [
            (f"{vendor}: extra engineers, floor", entry.engineers),
            (f"{vendor}: engineers by size", entry.engineers_per_1000_devices),
            (f"{vendor}: software gain", entry.software_gain_per_year),
        ]
    failures, used = plan.node.annual_failures, plan.constraints.utilisation
    return [*found, ("device failures", failures), ("use of capacity at the peak", used)]


def _money_inputs(plan: Plan) -> _Named:
    money = plan.money
    return [
        ("an engineer", money.engineer_usd_per_year),
        ("discount rate", money.discount_rate),
        ("depreciation", money.depreciation_years),
        ("salvage value", money.salvage),
        ("resale before full depreciation", money.resale),
        ("change of prices", money.price_change_per_year),
    ]
