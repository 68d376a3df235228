"""Lists the inputs of a plan that can be varied, and sets an input of a plan to a given value."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, Final, Literal

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.problem import Problem
from penstock.planning.spec.plan_types import AcceleratorPlan, OwnedPlan, Plan, SitePlan, StackPlan, WorkloadPlan
from penstock.planning.spec.resolve_plan import Resolved
from penstock.planning.spec.sourced_inputs import Input
from penstock.units import count_text

DAYS_PER_MONTH: Final = 365.25 / 12
_WIDE: Final = 10.0
"""Factor that bounds the search for a flip: from a tenth of the plan's value to ten times that value, if possible."""
_MAX_PUE: Final = 3.0
_ENGINEER_USD: Final = (2e4, 1.5e6)
"""Range of dollars per engineer-year within which flips are searched; a plan may state a higher cost (`unlikely`)."""


@dataclass(frozen=True, kw_only=True)
class InputWorld:
    """The values of all inputs of a plan, and the capacity of each accelerator's replicas relative to the estimate."""

    resolved: Resolved
    capacity: Mapping[str, float] = field(default_factory=dict)

    def problem(self, candidates: Sequence[Candidate]) -> Problem:
        """Build the optimizer's problem for these input values."""
        return build_problem(self.resolved, candidates, capacity_scale=self.capacity)

    def at(self, knob: "Knob", value: float) -> "InputWorld":
        """Return this world in which one input has the given value; the same object each time.

        Offers are known by the identity of what they depend on, so problems built again from it are cheap.
        """
        key = knob.path, value
        if key not in self._changed:
            self._changed[key] = knob.apply(self, value)
        return self._changed[key]

    @cached_property
    def _changed(self) -> dict[tuple[object, ...], "InputWorld"]:
        return {}


KnobKind = Literal[
    "price",
    "rent",
    "throughput",
    "engineers",
    "engineers_by_size",
    "demand",
    "software_gain",
    "mean_load",
    "delivery",
    "rate",
]


Path = tuple[str | int, ...]
"""Path to a value in an `InputWorld`: attribute names, mapping keys, and indices or ids of tuple entries."""
_PLAN: Final = ("resolved", "plan")


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One input: its value, its range, the bounds of the search for a flip, and the field of the plan that it sets."""

    kind: KnobKind
    id: str
    """Path of the input in the plan, for use by programs; `name` is for readers."""
    subject: str
    """The accelerator or vendor that the input belongs to, or else the input's own name."""
    name: str
    input: Input
    minimum: float
    maximum: float
    path: Path
    stored: Callable[[float], object] | None = None
    """Function that converts a value to the object stored at the path; None if that object is an `Input`."""
    stack: str = ""
    """The vendor whose prediction errors are correlated with the error of this input; empty if the error is
    independent."""
    months: int | None = None
    """Term of the contract; None for every other input."""

    def apply(self, world: InputWorld, value: float) -> InputWorld:
        """Return a copy of `world` in which this input has the given value."""
        changed: InputWorld = _with_value(world, self.path, self.stored or (lambda value: value), value)
        return changed


def _with_value(owner: Any, path: Path, stored: Callable[[float], object], value: float) -> Any:  # noqa: ANN401
    """Return a copy of an `InputWorld`, or of an object within it, in which only the value at the path is replaced."""
    if not path:
        return owner.at(value) if isinstance(owner, Input) else stored(value)
    key, rest = path[0], path[1:]
    if isinstance(owner, tuple):
        return tuple(
            _with_value(entry, rest, stored, value) if key in {number, getattr(entry, "id", None)} else entry
            for number, entry in enumerate(owner)
        )
    if isinstance(owner, Mapping):
        return {**owner, key: _with_value(owner.get(key), rest, stored, value)}
    return replace(owner, **{str(key): _with_value(getattr(owner, str(key)), rest, stored, value)})


def capacity_spreads(candidates: Sequence[Candidate]) -> Mapping[str, tuple[float, float]]:
    """Map each accelerator to P10 and P90 of its capacity, relative to the estimate.

    P10 and P90 are those of the accelerator's least certain deployment, because errors within one stack are correlated.
    A deployment that misses the SLO at its P10 counts with a tenth of its capacity, the least that a draw considers.
    """
    found: dict[str, tuple[float, float]] = {}
    for candidate in candidates:
        for capacity in candidate.capacities:
            rate = capacity.requests_per_s
            if rate.value <= 0:
                continue
            low, high = found.get(candidate.accelerator.id, (1.0, 1.0))
            least = max(1 / _WIDE, rate.low / rate.value)
            found[candidate.accelerator.id] = (min(low, least), max(high, rate.high / rate.value))
    return found


def knobs_of(resolved: Resolved, spreads: Mapping[str, tuple[float, float]]) -> tuple[Knob, ...]:
    """List every input that affects cost.

    `spreads` maps each accelerator to P10 and P90 of its capacity, relative to the estimate.
    """
    return (
        *_prices(resolved.plan.accelerators),
        *_contracts(resolved.plan.accelerators),
        *_capacities(spreads, resolved),
        *_stacks(resolved.plan.stacks),
        *_demands(resolved.plan.workloads),
        *_sites(resolved.plan.sites),
        *_money(resolved.plan),
        *_power_draws(resolved),
        *_owned_knobs(resolved.plan.owned),
        *_deliveries(resolved.plan),
    )


def _prices(accelerators: Sequence[AcceleratorPlan]) -> Iterator[Knob]:
    for accelerator in accelerators:
        kinds: tuple[tuple[str, KnobKind], ...] = (("buy", "price"), ("rent", "rent"))
        for key, kind in kinds:
            price = getattr(accelerator, key)
            if price is not None:
                yield Knob(
                    kind=kind,
                    id=f"accelerators/{accelerator.id}/{key}",
                    subject=accelerator.id,
                    name=f"{accelerator.id} {kind}",
                    input=price,
                    minimum=price.value / _WIDE,
                    maximum=price.value * _WIDE,
                    path=(*_PLAN, "accelerators", accelerator.id, key),
                )


def _contracts(accelerators: Sequence[AcceleratorPlan]) -> Iterator[Knob]:
    for accelerator in accelerators:
        for number, contract in enumerate(accelerator.contracts):
            yield Knob(
                kind="rent",
                id=f"accelerators/{accelerator.id}/contracts/{contract.months}",
                subject=accelerator.id,
                name=f"{accelerator.id} rent for {count_text(contract.months, 'month')}",
                input=contract.rent,
                minimum=contract.rent.value / _WIDE,
                maximum=contract.rent.value * _WIDE,
                path=(*_PLAN, "accelerators", accelerator.id, "contracts", number, "rent"),
                months=contract.months,
            )


def _capacities(spreads: Mapping[str, tuple[float, float]], resolved: Resolved) -> Iterator[Knob]:
    for ident, (low, high) in spreads.items():
        source = "P10 to P90 of the prediction"
        yield Knob(
            kind="throughput",
            id=f"accelerators/{ident}/throughput",
            subject=ident,
            name=f"{ident} throughput",
            input=Input(value=1.0, low=min(1.0, low), high=max(1.0, high), unit="x estimate", source=source),
            minimum=1 / _WIDE,
            maximum=_WIDE,
            stack=resolved.accelerators[ident].vendor if ident in resolved.accelerators else "",
            path=("capacity", ident),
        )


def _stacks(stacks: Mapping[str, StackPlan]) -> Iterator[Knob]:
    """Yield a vendor's engineers, and the other inputs of its stack that have a value or a range in the plan."""
    for vendor, stack in stacks.items():
        by_size = f"{vendor} engineers per 1,000 devices"
        inputs: tuple[tuple[KnobKind, str, str, str, float], ...] = (
            ("engineers", "engineers", vendor, f"extra {vendor} engineers", 100.0),
            ("engineers_by_size", "engineers_per_1000_devices", vendor, f"extra {by_size}", 1000.0),
            ("rate", "support_usd_per_device_year", "", f"{vendor} support contract", 60_000.0),
            ("rate", "licence_usd_per_device_year", "", f"{vendor} licences", 60_000.0),
            ("software_gain", "software_gain_per_year", "", f"{vendor} software gain", 3.0),
        )
        for kind, key, subject, name, maximum in inputs:
            current: Input = getattr(stack, key)
            if kind == "engineers" or current.value or current.uncertain:
                yield Knob(
                    kind=kind,
                    id=f"stacks/{vendor}/{key}",
                    subject=subject or name,
                    name=name,
                    input=current,
                    minimum=0.0,
                    maximum=maximum,
                    path=(*_PLAN, "stacks", vendor, key),
                )


def _demands(workloads: Sequence[WorkloadPlan]) -> Iterator[Knob]:
    """List three inputs per workload: its peak, its growth if there is any, and its mean load relative to the peak."""
    inputs: tuple[tuple[KnobKind, str, str, float, float], ...] = (
        ("demand", "demand", "demand", 1 / _WIDE, _WIDE),
        ("demand", "growth_per_year", "growth", -0.9, _WIDE),
        ("mean_load", "mean_load", "mean load", 0.01, 1.0),
    )
    for number, workload in enumerate(workloads):
        for kind, key, what, minimum, maximum in inputs:
            current: Input = getattr(workload, key)
            # The plan's periods depend on growth, so a workload without growth has no knob for growth.
            if key == "growth_per_year" and not (current.value or current.uncertain):
                continue
            name = f"{what} of {workload.name}"
            yield Knob(
                kind=kind,
                id=f"workloads/{workload.name}/{key}",
                subject=name,
                name=name,
                input=current,
                minimum=minimum,
                maximum=maximum,
                path=(*_PLAN, "workloads", number, key),
            )


def _sites(sites: Sequence[SitePlan]) -> Iterator[Knob]:
    """Yield the inputs of each site; the inputs of different sites are varied independently."""
    for number, site in enumerate(sites):
        for key, called in (("usd_per_kwh", "power price"), ("pue", "PUE"), ("hosting_usd_per_kw_month", "hosting")):
            current: Input = getattr(site, key)
            name = called if len(sites) == 1 else f"{called} at {site.name}"
            around = (current.value / _WIDE, current.value * _WIDE or 1.0)
            minimum, maximum = (1.0, max(_MAX_PUE, current.value)) if key == "pue" else around
            yield Knob(
                kind="rate",
                id=f"sites/{site.name}/{key}",
                subject=name,
                name=name,
                input=current,
                minimum=minimum,
                maximum=maximum,
                path=(*_PLAN, "sites", number, key),
            )


PRICE_CHANGE: Final = "money/price_change_per_year"
"""Id of the input that changes later prices."""
_SINGULAR: Final = {"device failures": "rate of device failures"}
"""Names of inputs for sentences of the form "if the ... is below a value"."""


def _money(plan: Plan) -> Iterator[Knob]:
    for section, key, name, maximum in (
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
        minimum = {
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
            minimum=minimum,
            maximum=max(maximum, current.value),
            path=(*_PLAN, section, key),
        )


def _power_draws(resolved: Resolved) -> Iterator[Knob]:
    """Yield the power that nodes draw while they serve."""
    for ident, power in resolved.power.items():
        name = f"{ident} draw under load"
        draw = Input(
            value=power.serving_watts / 1000,
            low=power.serving_low_watts / 1000,
            high=power.serving_high_watts / 1000,
            unit="kW/node",
            source=power.serving_note,
        )
        if draw.uncertain:
            yield Knob(
                kind="rate",
                id=f"accelerators/{ident}/draw",
                subject=name,
                name=name,
                input=draw,
                minimum=0.0,
                maximum=power.node_watts / 1000,
                path=("resolved", "power", ident, "serving_watts"),
                stored=lambda kilowatts: kilowatts * 1000,
            )


def _owned_knobs(owned: Sequence[OwnedPlan]) -> Iterator[Knob]:
    for number, entry in enumerate(owned):
        several = [other.id for other in owned].count(entry.id) > 1
        name = f"resale of owned {entry.id}" + (f" at {entry.site}" if several else "")
        yield Knob(
            kind="rate",
            id=f"owned/{entry.site}/{entry.id}/resale",
            subject=name,
            name=name,
            input=entry.resale_usd,
            minimum=0.0,
            maximum=max(entry.resale_usd.value * _WIDE, entry.resale_usd.high, 1e6),
            path=(*_PLAN, "owned", number, "resale_usd"),
        )


def _deliveries(plan: Plan) -> Iterator[Knob]:
    """Yield delivery dates as months from the start; accelerators available at once are left out."""
    for accelerator in plan.accelerators:
        if accelerator.available is None or accelerator.available <= plan.start:
            continue
        months = (accelerator.available - plan.start).days / DAYS_PER_MONTH
        yield Knob(
            kind="delivery",
            id=f"accelerators/{accelerator.id}/delivery",
            subject=accelerator.id,
            name=f"{accelerator.id} delivery",
            input=Input(value=months, low=months, high=months + 6, unit="months", source="plan file; half a year late"),
            minimum=0.0,
            maximum=12 * plan.horizon_years,
            path=(*_PLAN, "accelerators", accelerator.id, "available"),
            stored=lambda months: plan.start + timedelta(days=round(months * DAYS_PER_MONTH)),
        )
