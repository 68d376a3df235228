"""Plans many models on shared devices: the fewest devices of each accelerator, and the bill by model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from penstock.catalog.accelerator import Accelerator
from penstock.catalog.price import Price
from penstock.economics.finance import HOURS_PER_YEAR
from penstock.errors import UsageError
from penstock.fleet.deployment import Deployment
from penstock.fleet.pools import Fleet, NodeGroup
from penstock.fleet.serving_engines import serving_defaults
from penstock.model import ModelSpec, cache_dtype
from penstock.model.model_spec import model_as_measured
from penstock.performance.residency.transition_times import TransitionSeconds
from penstock.planning.shared_placement.model_loads import ModelLoad, PlaceOf, size_model
from penstock.planning.shared_placement.shared_fleet import (
    NoSharedFleet,
    SharedFleet,
    dedicated_devices,
    smallest_fleet,
)
from penstock.planning.shared_placement.shared_fleet_file import shared_fleet_file
from penstock.planning.spec.catalog_prices import Levels, hourly_price, hourly_sizes
from penstock.planning.spec.plan_types import AcceleratorPlan, Constraints, Plan, WorkloadPlan

SIMULATED_HOURS: Final = 2.0
_ENGINE: Final = "vllm"
"""The engine whose sleep times are published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBill:
    """One model's part of the shared devices."""

    workload: str
    model: str
    device: int
    """Number of its device, from 1."""
    kept_awake: bool
    """Whether the model never sleeps. Otherwise it is woken on demand."""
    memory_bytes: int
    attained_fraction: float | None
    """Share of its requests within the SLO."""
    cold_starts: int
    wake: TransitionSeconds | None
    share_fraction: float
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedChoice:
    """All models on shared devices of one accelerator."""

    accelerator: str
    vendor: str
    devices: int
    spare_devices: int
    """Devices of the spare instances."""
    rented_devices: int
    """Devices that are paid for: those needed, in instances of the smallest size that is rented, and the spares."""
    dedicated_devices: int
    """Devices without sharing and without spares: at least one per model."""
    usd_per_device_hour: float
    usd: float
    """Rent of `rented_devices` over the horizon."""
    worst_attained_fraction: float
    busy_fraction: float
    """Busy share of the busiest device, with the P90 of all step times."""
    cold_missed_fraction: float | None
    """Share of missed SLOs whose model slept or woke at their arrival."""
    bills: tuple[ModelBill, ...]
    too_large: tuple[str, ...]
    """Workloads whose model does not fit on one device with its KV cache. They need devices of their own."""


@dataclass(frozen=True, kw_only=True)
class SharedPlan:
    """Shared devices for the workloads of a plan, one choice per accelerator, the cheapest first."""

    name: str
    horizon_years: float
    simulated_hours: float
    choices: tuple[SharedChoice, ...]
    left_out: tuple[str, ...]
    """Why an accelerator has no choice."""
    fleets: Mapping[str, Fleet]
    """The fleet file of each choice, by accelerator."""


@dataclass(frozen=True, kw_only=True)
class SharedSources:
    """Where a shared plan gets its accelerators, models, step times and prices."""

    accelerators: Sequence[Accelerator]
    model_of: Callable[[str], ModelSpec]
    place: PlaceOf
    prices_of: Callable[[str], Sequence[Price]]
    seller_levels: Levels | None = None
    """Function that returns how dear each cloud is, to pair the rents of accelerators that few clouds rent."""


def plan_shared(asked: Plan, sources: SharedSources) -> SharedPlan:
    """Find the fewest shared devices of each accelerator on which every workload keeps its SLO in simulation."""
    _check_rules(asked)
    loads = [_load(workload, sources.model_of) for workload in asked.workloads]
    entries = asked.accelerators or tuple(AcceleratorPlan(id=accelerator.id) for accelerator in sources.accelerators)
    denied = {name for site in asked.sites[:1] for name in site.deny}
    choices, left_out, fleets = [], [], {}
    for accelerator, stated in zip(sources.accelerators, entries, strict=True):
        if denied & {accelerator.id, accelerator.vendor, stated.id}:
            left_out.append(f"{accelerator.id}: the site excludes it")
            continue
        found = _choice(asked, accelerator, stated, loads, sources)
        if isinstance(found, str):
            left_out.append(f"{accelerator.id}: {found}")
        else:
            choice, fleets[accelerator.id] = found
            choices.append(choice)
    return SharedPlan(
        name=asked.name,
        horizon_years=asked.horizon_years,
        simulated_hours=SIMULATED_HOURS,
        choices=tuple(sorted(choices, key=lambda choice: (len(choice.too_large), choice.usd))),
        left_out=tuple(left_out),
        fleets=fleets,
    )


def _check_rules(asked: Plan) -> None:
    """Refuse rules of a plan that shared devices would not keep."""
    rules = asked.constraints
    if "rent" not in asked.acquire:
        raise UsageError("shared devices are rented by the hour; add `rent` to `acquire`")
    if rules.min_vendors > 1 or rules.max_vendor_share is not None:
        raise UsageError("a shared plan has one vendor; remove `min_vendors` and `max_vendor_share`")
    if asked.owned:
        raise UsageError("a shared plan rents all devices; remove `owned`")
    if rules.utilisation.given or rules.confidence != Constraints().confidence:
        raise UsageError("a shared plan is sized for P90 times in simulation; remove `utilisation` and `confidence`")
    names: dict[str, str] = {}
    for workload in asked.workloads:
        if workload.demand.low < workload.demand.high:
            raise UsageError(f"workload '{workload.name}': a shared plan serves one rate; state it without a range")
        if workload.growth_per_year.value:
            raise UsageError(f"workload '{workload.name}': a shared plan has no growth; remove `growth_per_year`")
        other = names.setdefault(workload.model, workload.name)
        if other != workload.name:
            raise UsageError(
                f"workloads '{other}' and '{workload.name}' have one model, which a device holds once; "
                "make them one workload with both `lengths`"
            )
        if workload.engines and _ENGINE not in workload.engines:
            raise UsageError(
                f"workload '{workload.name}': shared devices run vLLM, whose sleep times are published; remove `engine`"
            )


def _load(workload: WorkloadPlan, model_of: Callable[[str], ModelSpec]) -> ModelLoad:
    shares = workload.shares
    if not shares:
        raise UsageError(f"workload '{workload.name}': shared devices need stated lengths instead of a trace")
    spec, chosen = model_of(workload.model), workload.weights[0]
    return ModelLoad(
        name=workload.name,
        model=spec if chosen == "checkpoint" else model_as_measured(spec, chosen),
        slo=workload.slo,
        requests_per_s=workload.peak_requests_per_s,
        shares=shares,
        cache_dtype=None if workload.kv == "auto" else cache_dtype(workload.kv),
    )


def _choice(
    asked: Plan,
    accelerator: Accelerator,
    stated: AcceleratorPlan,
    loads: Sequence[ModelLoad],
    sources: SharedSources,
) -> tuple[SharedChoice, Fleet] | str:
    """Return the choice of an accelerator and its fleet file, or the reason why there is none."""
    prices = sources.prices_of(accelerator.id)
    rent = stated.rent or hourly_price(prices, sources.seller_levels)
    if rent is None:
        return "no rent by the hour is known; state `rent_usd_per_hour`"
    sized = {load.name: size_model(load, _deployment(load, accelerator), sources.place, host=True) for load in loads}
    models = [model for model in sized.values() if model is not None]
    if not models:
        return "no model fits on one device"
    fleet = smallest_fleet(models, hours=SIMULATED_HOURS, seed=asked.seed, eviction="least-harm")
    if isinstance(fleet, NoSharedFleet):
        return _why_none(fleet)
    sizes = hourly_sizes(prices) if stated.instances is None else stated.instances
    smallest = min([*sizes, accelerator.node.devices])
    instances, spare = ceil(len(fleet.devices) / smallest), asked.constraints.spare_nodes
    rented = (instances + spare) * smallest
    if stated.max_nodes is not None and rented > stated.max_nodes * accelerator.node.devices:
        return f"{rented} devices are more than `max_nodes` allows"
    usd = rented * rent.value * HOURS_PER_YEAR * asked.horizon_years
    choice = SharedChoice(
        accelerator=accelerator.id,
        vendor=accelerator.vendor,
        devices=len(fleet.devices),
        spare_devices=spare * smallest,
        rented_devices=rented,
        dedicated_devices=dedicated_devices(models),
        usd_per_device_hour=rent.value,
        usd=usd,
        worst_attained_fraction=fleet.worst_attained_fraction,
        busy_fraction=max(device.busy_fraction for device in fleet.outcome.devices),
        cold_missed_fraction=fleet.outcome.cold_missed_fraction,
        bills=_bills(fleet, usd),
        too_large=tuple(name for name, model in sized.items() if model is None),
    )
    nodes = NodeGroup(
        accelerator=accelerator.id,
        site=asked.sites[0].name if asked.sites else "site",
        nodes=instances + spare,
        spare_nodes=spare,
        node_devices=smallest,
    )
    named = {workload.name: workload.model for workload in asked.workloads}
    return choice, shared_fleet_file(asked.name, fleet, named, nodes=nodes, usd_per_device_hour=rent.value)


def _why_none(found: NoSharedFleet) -> str:
    if found.overloaded:
        return (
            f"one device is too slow for the load of {', '.join(found.overloaded)}, and a shared model has one device; "
            "`penstock plan` without --share gives it more"
        )
    missed = f"misses of the SLO by {', '.join(found.missed)}" if found.missed else "a queue that keeps growing"
    return f"simulated with a device per model and the P90 of step times: {missed}"


def _deployment(load: ModelLoad, accelerator: Accelerator) -> Deployment:
    return Deployment(
        model=load.model,
        accelerator=accelerator,
        engine=serving_defaults(_ENGINE, accelerator, version=None, tp=1, pp=1),
        cache_dtype=load.cache_dtype,
    )


def _bills(fleet: SharedFleet, usd: float) -> tuple[ModelBill, ...]:
    awake = {one.pool: one.kept_awake for device in fleet.devices for one in device.models}
    return tuple(
        ModelBill(
            workload=model.load.name,
            model=model.load.model.name,
            device=device + 1,
            kept_awake=awake[pool.name],
            memory_bytes=model.awake_bytes,
            attained_fraction=judged.met_fraction,
            cold_starts=pool.cold_starts,
            wake=model.wake,
            share_fraction=share,
            usd=share * usd,
        )
        for model, device, share, pool, judged in zip(
            fleet.models,
            fleet.device_of,
            fleet.cost_shares,
            fleet.outcome.pools,
            fleet.outcome.classes,
            strict=True,
        )
    )
