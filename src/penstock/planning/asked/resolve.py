"""What is left to choose from? A plan with every price filled in, and why each missing part is missing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.catalog.accelerator import Accelerator
from penstock.catalog.price import Price
from penstock.economics.energy import DrawUnderLoad, NodePower, node_power
from penstock.errors import UsageError
from penstock.planning.asked.inputs import Input
from penstock.planning.asked.plan import Acquisition, PartPlan, Plan, SitePlan, StackPlan
from penstock.planning.asked.plan_yaml import VENDORS, default_stack
from penstock.planning.asked.prices import catalog_price

PricesOf = Callable[[str], Sequence[Price]]
DrawOf = Callable[[Accelerator], DrawUnderLoad | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Something that was asked for, or could have been, and is not in the choice."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A plan whose parts all have an accelerator, a power figure and at least one price."""

    plan: Plan
    accelerators: Mapping[str, Accelerator]
    power: Mapping[str, NodePower]
    left_out: tuple[LeftOut, ...]

    def stack_of(self, vendor: str) -> StackPlan:
        """What the vendor's software takes."""
        return self.plan.stacks[vendor]


def resolve(
    plan: Plan,
    accelerators: Sequence[Accelerator],
    prices_of: PricesOf,
    *,
    named: bool,
    draw_of: DrawOf = lambda _: None,
) -> Resolved:
    """Fill in prices and power; `accelerators` are the ones the plan names, or the whole catalog if it names none."""
    asked = _asked(plan, accelerators) if named else {}
    kept: dict[str, PartPlan] = {}
    power: dict[str, NodePower] = {}
    left_out: list[LeftOut] = []
    for accelerator, part in ((entry, asked.get(entry.id, PartPlan(id=entry.id))) for entry in accelerators):
        if not named and not accelerator.recommendable:
            continue
        priced = _priced(part, plan.acquire, prices_of(accelerator.id))
        drawn = node_power(accelerator, draw_of(accelerator), given_watts=part.node_watts)
        if priced.buy is None and priced.rent is None:
            kinds = " or ".join(f"{kind}" for kind in plan.acquire)
            left_out.append(
                LeftOut(what=accelerator.id, why=f"no sourced price to {kinds}; give one under `accelerators:`")
            )
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
        plan=replace(plan, parts=tuple(kept.values()), stacks=stacks, sites=_sites(plan, accelerators)),
        accelerators=chosen,
        power=power,
        left_out=tuple(left_out),
    )


def _asked(plan: Plan, accelerators: Sequence[Accelerator]) -> dict[str, PartPlan]:
    """Give each part its catalog id: a plan may say h200 for h200_sxm."""
    asked: dict[str, PartPlan] = {}
    for part, accelerator in zip(plan.parts, accelerators, strict=True):
        if accelerator.id in asked:
            raise UsageError(f"accelerators: {accelerator.id} is listed twice; keep one entry")
        asked[accelerator.id] = replace(part, id=accelerator.id)
    return asked


def _sites(plan: Plan, accelerators: Sequence[Accelerator]) -> tuple[SitePlan, ...]:
    """Read what a site denies by catalog id; a name that is neither vendor nor part would deny nothing, silently."""
    known = {accelerator.id: accelerator.id for accelerator in accelerators}
    known |= {vendor: vendor for vendor in VENDORS}
    known |= {part.id: accelerator.id for part, accelerator in zip(plan.parts, accelerators, strict=False)}
    for site in plan.sites:
        unknown = [name for name in site.deny if name not in known]
        if unknown:
            raise UsageError(f"site {site.name}: deny: '{unknown[0]}' is neither a vendor nor a part of the plan")
    return tuple(replace(site, deny=tuple(known[name] for name in site.deny)) for site in plan.sites)


def _priced(part: PartPlan, acquire: Sequence[Acquisition], prices: Sequence[Price]) -> PartPlan:
    """A price in the plan file rules; otherwise the catalog's, for each way the plan allows."""
    buy = (part.buy or catalog_price(prices, "buy")) if "buy" in acquire else None
    rent = (part.rent or catalog_price(prices, "rent")) if "rent" in acquire else None
    return replace(part, buy=buy, rent=rent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One line of the report's table of inputs."""

    name: str
    input: Input


def _power_inputs(ident: str, power: NodePower) -> list[tuple[str, Input]]:
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
    """List every input that was used, with its range and source."""
    plan = resolved.plan
    found: list[tuple[str, Input]] = []
    for part in plan.parts:
        found += [(f"{part.id}: price", part.buy)] if part.buy else []
        found += [(f"{part.id}: rent", part.rent)] if part.rent else []
        found += _power_inputs(part.id, resolved.power[part.id])
    for site in plan.sites:
        found += [
            (f"{site.name}: power price", site.usd_per_kwh),
            (f"{site.name}: PUE", site.pue),
            (f"{site.name}: hosting", site.hosting_usd_per_kw_month),
        ]
    for vendor, entry in plan.stacks.items():
        found += [
            (f"{vendor}: extra engineers", entry.engineers),
            (f"{vendor}: engineers by size", entry.engineers_per_1000_devices),
            (f"{vendor}: support contract", entry.support_usd_per_device_year),
        ]
    money, node = plan.money, plan.node
    found += [
        ("an engineer", money.engineer_usd_per_year),
        ("discount rate", money.discount_rate),
        ("depreciation", money.depreciation_years),
        ("salvage value", money.salvage),
        ("host of a node", node.host_usd),
        ("network", node.network_usd_per_device),
        ("idle power", node.idle_power),
        ("device failures", node.annual_failures),
        ("use of capacity at the peak", plan.constraints.utilisation),
    ]
    for workload in plan.workloads:
        found += [
            (f"{workload.name}: mean load", workload.mean_load),
            (f"{workload.name}: growth", workload.growth_per_year),
        ]
    return tuple(Assumption(name=name, input=entry) for name, entry in found)
