"""Lists the inputs of a plan that can be varied, and applies a value to a plan."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, Literal

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.problem import Problem
from penstock.planning.spec.plan_types import AcceleratorPlan, OwnedPlan, SitePlan, StackPlan, WorkloadPlan
from penstock.planning.spec.resolve_plan import Resolved
from penstock.planning.spec.sourced_inputs import Input
from penstock.units import counted

DAYS_PER_MONTH: Final = 365.25 / 12
_WIDE: Final = 10.0
"""Factor up to which a flip is searched: from a tenth of the value to ten times it, where such a value is possible."""
_MAX_PUE: Final = 3.0
_ENGINEER_USD: Final = (2e4, 1.5e6)
"""Dollars per engineer-year between which a flip is informative; a plan may state more (`unlikely`)."""


@dataclass(frozen=True, kw_only=True)
class InputWorld:
    """A plan's inputs, and the capacity of each accelerator's replicas relative to the estimate."""

    resolved: Resolved
    capacity: Mapping[str, float] = field(default_factory=dict)

    def problem(self, candidates: Sequence[Candidate]) -> Problem:
        """Build the optimizer's problem of this world."""
        return build_problem(self.resolved, candidates, capacity_scale=self.capacity)


KnobKind = Literal[
    "price", "rent", "throughput", "engineers", "engineers_by_size", "demand", "mean_load", "delivery", "rate"
]


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One input: its value and range, the bounds to search for a flip, and the function that applies a value."""

    kind: KnobKind
    id: str
    """Path of the input in the plan. Names are for readers and contain the user's own words."""
    subject: str
    """The accelerator or vendor it belongs to, or its own name."""
    name: str
    input: Input
    least: float
    most: float
    turned: Callable[[InputWorld, float], InputWorld]
    stack: str = ""
    """The vendor whose stack shares its error; empty if its error is independent."""
    months: int | None = None
    """Term of the contract; None for every other input."""


def capacity_spreads(candidates: Sequence[Candidate]) -> Mapping[str, tuple[float, float]]:
    """Return P10 and P90 relative to the estimate, per accelerator: the widest of its deployments.

    Errors of one stack are correlated.
    """
    found: dict[str, tuple[float, float]] = {}
    for candidate in candidates:
        for capacity in candidate.capacities:
            rate = capacity.requests_per_s
            if rate.value <= 0:
                continue
            low, high = found.get(candidate.accelerator.id, (1.0, 1.0))
            found[candidate.accelerator.id] = (min(low, rate.low / rate.value), max(high, rate.high / rate.value))
    return found


def knobs_of(resolved: Resolved, spreads: Mapping[str, tuple[float, float]]) -> tuple[Knob, ...]:
    """List every input that affects cost; `spreads` are P10 and P90 of capacity relative to the estimate."""
    return (
        *_prices(resolved.plan.accelerators),
        *_contracts(resolved.plan.accelerators),
        *_capacities(spreads, resolved),
        *_stacks(resolved.plan.stacks),
        *_demands(resolved.plan.workloads),
        *_sites(resolved.plan.sites),
        *_money(resolved),
        *_draws(resolved),
        *_owned(resolved.plan.owned),
        *_deliveries(resolved),
    )


def _prices(parts: Sequence[AcceleratorPlan]) -> Iterator[Knob]:
    for part in parts:
        for kind in ("buy", "rent"):
            price = getattr(part, kind)
            if price is None:
                continue
            name: KnobKind = "price" if kind == "buy" else "rent"
            yield Knob(
                kind=name,
                id=f"accelerators/{part.id}/{kind}",
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
        accelerators = tuple(
            replace(part, **{kind: getattr(part, kind).at(value)}) if part.id == ident else part
            for part in plan.accelerators
        )
        return replace(world, resolved=replace(world.resolved, plan=replace(plan, accelerators=accelerators)))

    return turned


def _contracts(parts: Sequence[AcceleratorPlan]) -> Iterator[Knob]:
    for part in parts:
        for number, contract in enumerate(part.contracts):

            def turned(world: InputWorld, value: float, ident: str = part.id, number: int = number) -> InputWorld:
                plan = world.resolved.plan
                accelerators = tuple(
                    _repriced(entry, number, value) if entry.id == ident else entry for entry in plan.accelerators
                )
                return replace(world, resolved=replace(world.resolved, plan=replace(plan, accelerators=accelerators)))

            yield Knob(
                kind="rent",
                id=f"accelerators/{part.id}/contracts/{contract.months}",
                subject=part.id,
                name=f"{part.id} rent for {counted(contract.months, 'month')}",
                input=contract.rent,
                least=contract.rent.value / _WIDE,
                most=contract.rent.value * _WIDE,
                turned=turned,
                months=contract.months,
            )


def _repriced(part: AcceleratorPlan, number: int, value: float) -> AcceleratorPlan:
    changed = replace(part.contracts[number], rent=part.contracts[number].rent.at(value))
    return replace(part, contracts=(*part.contracts[:number], changed, *part.contracts[number + 1 :]))


def _capacities(spreads: Mapping[str, tuple[float, float]], resolved: Resolved) -> Iterator[Knob]:
    for ident, (low, high) in spreads.items():
        source = "P10 to P90 of the prediction"
        estimate = Input(value=1.0, low=min(1.0, low), high=max(1.0, high), unit="x estimate", source=source)
        yield Knob(
            kind="throughput",
            id=f"accelerators/{ident}/throughput",
            subject=ident,
            name=f"{ident} throughput",
            input=estimate,
            least=1 / _WIDE,
            most=_WIDE,
            stack=resolved.accelerators[ident].vendor if ident in resolved.accelerators else "",
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
            id=f"stacks/{vendor}/engineers",
            subject=vendor,
            name=f"extra {vendor} engineers",
            input=stack.engineers,
            least=0.0,
            most=100.0,
            turned=turned,
        )
        yield from _other_stack(vendor, stack)


def _other_stack(vendor: str, stack: StackPlan) -> Iterator[Knob]:
    """Yield the other inputs of a stack that have a value or a range in the plan."""
    for key, name, most in (
        ("engineers_per_1000_devices", "engineers per 1,000 devices", 1000.0),
        ("support_usd_per_device_year", "support contract", 60_000.0),
        ("licence_usd_per_device_year", "licences", 60_000.0),
        ("software_gain_per_year", "software gain", 3.0),
    ):
        current: Input = getattr(stack, key)
        if not (current.value or current.uncertain):
            continue

        def turned(world: InputWorld, value: float, key: str = key) -> InputWorld:
            plan = world.resolved.plan
            entry = plan.stacks[vendor]
            changed = {**plan.stacks, vendor: replace(entry, **{key: getattr(entry, key).at(value)})}
            return replace(world, resolved=replace(world.resolved, plan=replace(plan, stacks=changed)))

        called, by_size = f"{vendor} {name}", key == "engineers_per_1000_devices"
        yield Knob(
            kind="engineers_by_size" if by_size else "rate",
            id=f"stacks/{vendor}/{key}",
            subject=vendor if by_size else called,
            name=f"extra {called}" if by_size else called,
            input=current,
            least=0.0,
            most=most,
            turned=turned,
        )


def _demands(workloads: Sequence[WorkloadPlan]) -> Iterator[Knob]:
    """List the peak of each workload, its growth if there is any, and its mean load relative to its peak."""
    turnable: tuple[tuple[KnobKind, str, str, float, float], ...] = (
        ("demand", "demand", "demand", 1 / _WIDE, _WIDE),
        ("demand", "growth_per_year", "growth", -0.9, _WIDE),
        ("mean_load", "mean_load", "mean load", 0.01, 1.0),
    )
    for number, workload in enumerate(workloads):
        for kind, key, what, least, most in turnable:
            current: Input = getattr(workload, key)
            # Periods depend on growth: without growth there is no such knob.
            if key == "growth_per_year" and not (current.value or current.uncertain):
                continue

            def turned(world: InputWorld, value: float, number: int = number, key: str = key) -> InputWorld:
                plan = world.resolved.plan
                entry = plan.workloads[number]
                changed = replace(entry, **{key: getattr(entry, key).at(value)})
                every = (*plan.workloads[:number], changed, *plan.workloads[number + 1 :])
                return replace(world, resolved=replace(world.resolved, plan=replace(plan, workloads=every)))

            name = f"{what} of {workload.name}"
            yield Knob(
                kind=kind,
                id=f"workloads/{workload.name}/{key}",
                subject=name,
                name=name,
                input=current,
                least=least,
                most=most,
                turned=turned,
            )


def _sites(sites: Sequence[SitePlan]) -> Iterator[Knob]:
    """Yield the knobs of each site: the prices of one site say nothing about another."""
    for number, site in enumerate(sites):
        for key, name in (("usd_per_kwh", "power price"), ("pue", "PUE"), ("hosting_usd_per_kw_month", "hosting")):
            current: Input = getattr(site, key)

            def turned(world: InputWorld, value: float, number: int = number, key: str = key) -> InputWorld:
                plan = world.resolved.plan
                changed = replace(plan.sites[number], **{key: getattr(plan.sites[number], key).at(value)})
                every = (*plan.sites[:number], changed, *plan.sites[number + 1 :])
                return replace(world, resolved=replace(world.resolved, plan=replace(plan, sites=every)))

            called = name if len(sites) == 1 else f"{name} at {site.name}"
            least, most = (1.0, max(_MAX_PUE, current.value)) if key == "pue" else _around(current.value)
            yield Knob(
                kind="rate",
                id=f"sites/{site.name}/{key}",
                subject=called,
                name=called,
                input=current,
                least=least,
                most=most,
                turned=turned,
            )


def _around(value: float) -> tuple[float, float]:
    return value / _WIDE, value * _WIDE or 1.0


_SINGULAR: Final = {"device failures": "rate of device failures"}
"""Names for sentences that put them below or above a value."""


def _money(resolved: Resolved) -> Iterator[Knob]:
    plan = resolved.plan
    for section, key, name, most in (
        ("money", "discount_rate", "discount rate", 0.5),
        ("money", "depreciation_years", "depreciation", 12.0),
        ("money", "salvage", "salvage value", 1.0),
        ("money", "resale", "resale before full depreciation", 1.0),
        ("money", "price_change_per_year", "change of prices", 3.0),
        ("money", "engineer_usd_per_year", "cost of an engineer", _ENGINEER_USD[1]),
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

        least = {
            "depreciation_years": current.value / _WIDE,
            "price_change_per_year": -0.9,
            "engineer_usd_per_year": min(_ENGINEER_USD[0], current.value),
        }.get(key, 0.0)
        yield Knob(
            kind="rate",
            id=f"{section}/{key}",
            subject=_SINGULAR.get(name, name),
            name=name,
            input=current,
            least=least,
            most=max(most, current.value),
            turned=turned,
        )


def _draws(resolved: Resolved) -> Iterator[Knob]:
    """Yield the power that nodes draw while they serve."""
    for ident, power in resolved.power.items():

        def turned(world: InputWorld, value: float, ident: str = ident) -> InputWorld:
            before = world.resolved.power
            changed = {**before, ident: replace(before[ident], serving_watts=value * 1000)}
            return replace(world, resolved=replace(world.resolved, power=changed))

        name = f"{ident} draw under load"
        drawn = Input(
            value=power.serving_watts / 1000,
            low=power.serving_low_watts / 1000,
            high=power.serving_high_watts / 1000,
            unit="kW/node",
            source=power.serving_note,
        )
        most = power.node_watts / 1000
        if drawn.uncertain:
            yield Knob(
                kind="rate",
                id=f"accelerators/{ident}/draw",
                subject=name,
                name=name,
                input=drawn,
                least=0.0,
                most=most,
                turned=turned,
            )


def _owned(owned: Sequence[OwnedPlan]) -> Iterator[Knob]:
    for number, entry in enumerate(owned):

        def turned(world: InputWorld, value: float, number: int = number) -> InputWorld:
            plan = world.resolved.plan
            changed = replace(plan.owned[number], resale_usd=plan.owned[number].resale_usd.at(value))
            every = (*plan.owned[:number], changed, *plan.owned[number + 1 :])
            return replace(world, resolved=replace(world.resolved, plan=replace(plan, owned=every)))

        several = [other.id for other in owned].count(entry.id) > 1
        name = f"resale of owned {entry.id}" + (f" at {entry.site}" if several else "")
        resale, ident = entry.resale_usd, f"owned/{entry.site}/{entry.id}/resale"
        most = max(resale.value * _WIDE, resale.high, 1e6)
        yield Knob(kind="rate", id=ident, subject=name, name=name, input=resale, least=0.0, most=most, turned=turned)


def _deliveries(resolved: Resolved) -> Iterator[Knob]:
    """Yield delivery dates as months from the start; accelerators available at once are left out."""
    plan = resolved.plan
    for part in plan.accelerators:
        if part.available is None or part.available <= plan.start:
            continue
        months = (part.available - plan.start).days / DAYS_PER_MONTH

        def turned(world: InputWorld, value: float, ident: str = part.id) -> InputWorld:
            plan = world.resolved.plan
            day = plan.start + timedelta(days=round(value * DAYS_PER_MONTH))
            accelerators = tuple(
                replace(entry, available=day) if entry.id == ident else entry for entry in plan.accelerators
            )
            return replace(world, resolved=replace(world.resolved, plan=replace(plan, accelerators=accelerators)))

        late = Input(value=months, low=months, high=months + 6, unit="months", source="plan file; half a year late")
        yield Knob(
            kind="delivery",
            id=f"accelerators/{part.id}/delivery",
            subject=part.id,
            name=f"{part.id} delivery",
            input=late,
            least=0.0,
            most=12 * plan.horizon_years,
            turned=turned,
        )
