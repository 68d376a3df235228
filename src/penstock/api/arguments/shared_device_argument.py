"""Describes the shared devices of a fleet file: the memory of each model, and its times to sleep and to wake."""

from dataclasses import dataclass, replace
from math import inf
from typing import Final

from penstock.api.arguments.fleet_argument import deployed_pool
from penstock.errors import DeploymentError, UsageError
from penstock.fleet.deployment import Deployment
from penstock.fleet.engine_settings import ENGINE_FIELDS
from penstock.fleet.pools import Fleet, Pool
from penstock.performance.memory.budget import fit
from penstock.performance.residency.co_residence import share_memory
from penstock.performance.residency.transition_times import TransitionSeconds, sleep_to_host, wake_from_host
from penstock.simulation.model_swapping import SwappedModel, SwappingDevice

_MEMORY: Final = frozenset({"memory_fraction", "kv_cache_bytes"})
"""Settings of an engine's own memory. They say nothing about the memory of its device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resident:
    """One replica of a pool on a device: memory per rank, and transition times."""

    awake_bytes: int
    asleep_bytes: int
    available_bytes: int
    """Bytes of the device that engines may use."""
    wake: TransitionSeconds | None
    sleep: TransitionSeconds | None


def swapping_devices(fleet: Fleet) -> tuple[SwappingDevice, ...]:
    """Return the shared devices of a fleet with median times. A device that holds all its models starts them awake."""
    pools = {name: fleet.pool(name) for device in fleet.shared_devices for name in device.pools}
    residents = {name: _resident(pool) for name, pool in pools.items()}
    devices = []
    for device in fleet.shared_devices:
        here = {name: residents[name] for name in device.pools}
        capacity = min(one.available_bytes for one in here.values())
        all_awake = sum(one.awake_bytes for one in here.values()) <= capacity
        models = tuple(
            SwappedModel(
                pool=name,
                awake_bytes=one.awake_bytes,
                asleep_bytes=one.asleep_bytes,
                wake_s=0.0 if one.wake is None else one.wake.median_s,
                sleep_s=0.0 if one.sleep is None else one.sleep.median_s,
                awake=all_awake,
                kept_awake=name in device.kept_awake or one.wake is None,
                patience_s=_patience_s(fleet, name),
            )
            for name, one in here.items()
        )
        try:
            devices.append(
                SwappingDevice(name=device.name, capacity_bytes=capacity, models=models, eviction=device.eviction)
            )
        except DeploymentError as error:
            raise UsageError(f"{error}; lower `kv_cache_memory_bytes`, or move a pool to another device") from None
    return tuple(devices)


def _patience_s(fleet: Fleet, pool: str) -> float:
    """Return the tightest TTFT limit of the routes to a pool."""
    limits = [route.slo.ttft_s for route in fleet.routes if pool in route.weights]
    return min((limit for limit in limits if limit is not None), default=inf)


def _resident(pool: Pool) -> _Resident:
    deployment = deployed_pool(pool)
    others = {name: value for name, value in pool.engine.settings.items() if ENGINE_FIELDS.get(name) not in _MEMORY}
    whole = deployed_pool(replace(pool, engine=replace(pool.engine, settings=others)))
    shared = share_memory([whole], [1])
    share, engine = shared.shares[0], deployment.engine
    return _Resident(
        awake_bytes=share.own_bytes + _kv_bytes(deployment),
        asleep_bytes=share.asleep_bytes,
        available_bytes=shared.available_bytes,
        wake=wake_from_host(deployment.accelerator, engine.name, _weight_bytes(deployment)),
        sleep=sleep_to_host(deployment.accelerator, engine.name, _weight_bytes(deployment)),
    )


def _kv_bytes(deployment: Deployment) -> int:
    """Return the KV cache of an engine: as stated, or what its share of the device leaves."""
    if deployment.engine.kv_cache_bytes is not None:
        return deployment.engine.kv_cache_bytes
    budget = fit(deployment, 1).budget
    return 0 if budget is None else max(0, budget.kv_bytes)


def _weight_bytes(deployment: Deployment) -> int:
    budget = fit(deployment, 1).budget
    return 0 if budget is None else budget.weight_bytes
