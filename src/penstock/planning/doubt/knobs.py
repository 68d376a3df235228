"""What can be turned? Every input of a plan that has a range, and how a plan looks with it turned."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, Literal

from penstock.planning.asked.inputs import Input
from penstock.planning.asked.plan import PartPlan, SitePlan, StackPlan
from penstock.planning.asked.resolve import Resolved

DAYS_PER_MONTH: Final = 365.25 / 12
_WIDE: Final = 10.0
"""How far a flip is looked for: a tenth of the value to ten times it."""


@dataclass(frozen=True, kw_only=True)
class InputWorld:
    """A plan's inputs, and what every replica of a part carries beside the estimate."""

    resolved: Resolved
    capacity: Mapping[str, float] = field(default_factory=dict)


KnobKind = Literal["price", "rent", "throughput", "engineers", "delivery", "rate"]


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One input: its value and range, how far to look for a flip, and the world with it turned."""

    kind: KnobKind
    subject: str
    """The part or the vendor it belongs to, or what it is called."""
    name: str
    input: Input
    least: float
    most: float
    turned: Callable[[InputWorld, float], InputWorld]


def knobs_of(resolved: Resolved, spreads: Mapping[str, tuple[float, float]]) -> tuple[Knob, ...]:
    """List every input that matters to cost; `spreads` are P10 and P90 of each part's capacity over its estimate."""
    return (
        *_prices(resolved.plan.parts),
        *_capacities(spreads),
        *_stacks(resolved.plan.stacks),
        *_sites(resolved.plan.sites),
        *_money(resolved),
        *_deliveries(resolved),
    )


def _prices(parts: Sequence[PartPlan]) -> Iterator[Knob]:
    for part in parts:
        for kind in ("buy", "rent"):
            price = getattr(part, kind)
            if price is None:
                continue
            name: KnobKind = "price" if kind == "buy" else "rent"
            yield Knob(
                kind=name,
                subject=part.id,
                name=f"{part.id} {name}",
                input=price,
                least=price.value / _WIDE,
                most=price.value * _WIDE,
                turned=_part_turner(part.id, kind),
            )


def _part_turner(ident: str, kind: str) -> Callable[[InputWorld, float], InputWorld]:
    def turned(world: InputWorld, value: float) -> InputWorld:
        plan = world.resolved.plan
        parts = tuple(
            replace(part, **{kind: getattr(part, kind).at(value)}) if part.id == ident else part for part in plan.parts
        )
        return replace(world, resolved=replace(world.resolved, plan=replace(plan, parts=parts)))

    return turned


def _capacities(spreads: Mapping[str, tuple[float, float]]) -> Iterator[Knob]:
    for ident, (low, high) in spreads.items():
        source = "P10 to P90 of the prediction"
        estimate = Input(value=1.0, low=min(1.0, low), high=max(1.0, high), unit="x estimate", source=source)
        yield Knob(
            kind="throughput",
            subject=ident,
            name=f"{ident} throughput",
            input=estimate,
            least=1 / _WIDE,
            most=_WIDE,
            turned=lambda world, value, ident=ident: replace(world, capacity={**world.capacity, ident: value}),  # type: ignore[misc]
        )


def _stacks(stacks: Mapping[str, StackPlan]) -> Iterator[Knob]:
    for vendor, stack in stacks.items():

        def turned(world: InputWorld, value: float, vendor: str = vendor) -> InputWorld:
            plan = world.resolved.plan
            entry = plan.stacks[vendor]
            changed = {**plan.stacks, vendor: replace(entry, engineers=entry.engineers.at(value))}
            return replace(world, resolved=replace(world.resolved, plan=replace(plan, stacks=changed)))

        yield Knob(
            kind="engineers",
            subject=vendor,
            name=f"extra {vendor} engineers",
            input=stack.engineers,
            least=0.0,
            most=100.0,
            turned=turned,
        )


def _sites(sites: Sequence[SitePlan]) -> Iterator[Knob]:
    """A knob per site: what one of them pays says nothing about another."""
    for number, site in enumerate(sites):
        for key, name in (("usd_per_kwh", "power price"), ("pue", "PUE"), ("hosting_usd_per_kw_month", "hosting")):
            current: Input = getattr(site, key)

            def turned(world: InputWorld, value: float, number: int = number, key: str = key) -> InputWorld:
                plan = world.resolved.plan
                changed = replace(plan.sites[number], **{key: getattr(plan.sites[number], key).at(value)})
                every = (*plan.sites[:number], changed, *plan.sites[number + 1 :])
                return replace(world, resolved=replace(world.resolved, plan=replace(plan, sites=every)))

            called = name if len(sites) == 1 else f"{name} at {site.name}"
            least = 1.0 if key == "pue" else current.value / _WIDE
            most = current.value * _WIDE or 1.0
            yield Knob(kind="rate", subject=called, name=called, input=current, least=least, most=most, turned=turned)


def _money(resolved: Resolved) -> Iterator[Knob]:
    plan = resolved.plan
    for section, key, name, most in (
        ("money", "discount_rate", "discount rate", 0.5),
        ("money", "depreciation_years", "depreciation", 12.0),
        ("money", "engineer_usd_per_year", "cost of an engineer", 2.8e6),
        ("node", "host_usd", "host of a node", 7e5),
        ("node", "network_usd_per_device", "network per device", 2e4),
        ("node", "annual_failures", "device failures", 0.5),
        ("node", "idle_power", "idle power", 1.0),
    ):
        current: Input = getattr(getattr(plan, section), key)

        def turned(world: InputWorld, value: float, section: str = section, key: str = key) -> InputWorld:
            plan = world.resolved.plan
            part = getattr(plan, section)
            changed = replace(part, **{key: getattr(part, key).at(value)})
            return replace(world, resolved=replace(world.resolved, plan=replace(plan, **{section: changed})))

        least = current.value / _WIDE if key == "depreciation_years" else 0.0
        yield Knob(
            kind="rate",
            subject=name,
            name=name,
            input=current,
            least=least,
            most=max(most, current.value),
            turned=turned,
        )


def _deliveries(resolved: Resolved) -> Iterator[Knob]:
    """Dates as months from the start; a part that is there at once is not asked about."""
    plan = resolved.plan
    for part in plan.parts:
        if part.available is None or part.available <= plan.start:
            continue
        months = (part.available - plan.start).days / DAYS_PER_MONTH

        def turned(world: InputWorld, value: float, ident: str = part.id) -> InputWorld:
            plan = world.resolved.plan
            day = plan.start + timedelta(days=round(value * DAYS_PER_MONTH))
            parts = tuple(replace(entry, available=day) if entry.id == ident else entry for entry in plan.parts)
            return replace(world, resolved=replace(world.resolved, plan=replace(plan, parts=parts)))

        late = Input(value=months, low=months, high=months + 6, unit="months", source="plan file; half a year late")
        yield Knob(
            kind="delivery",
            subject=part.id,
            name=f"{part.id} delivery",
            input=late,
            least=0.0,
            most=12 * plan.horizon_years,
            turned=turned,
        )
