"""Describes models on shared devices: each model's memory, the KV cache left, and its times to wake and to start."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from penstock.fleet.deployment import Deployment
from penstock.performance.residency.co_residence import ModelShare, SharedMemory
from penstock.performance.residency.host_loads import HostLoads
from penstock.performance.residency.packing import Packing
from penstock.performance.residency.transition_times import TransitionSeconds, start, wake_from_disk, wake_from_host

_STEPS: Final = 1000
"""Steps of one in which a share of the memory is rounded up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOnDevice:
    """One model on a shared device. Bytes are of one device."""

    name: str
    group: int
    """Number of the device, or of the tensor-parallel group, from 1."""
    context_tokens: int
    weight_bytes: int
    engine_bytes: int
    """Activations, runtime and graphs."""
    kv_bytes: int
    kv_tokens: int
    concurrent_requests: int | None
    asleep_bytes: int
    host_bytes: int
    """Bytes of host memory that the weights of all ranks take while the model sleeps at level 1."""
    memory_fraction: float
    """Share of the device while the model serves, rounded up: `--gpu-memory-utilization` of vLLM, which an engine must
    find free when it starts."""
    wake: TransitionSeconds | None
    """Wake from host memory (vLLM's sleep level 1). None if undetermined."""
    wake_from_disk: TransitionSeconds | None
    """Wake from disk (vLLM's sleep level 2). None if undetermined."""
    start: TransitionSeconds | None
    """Start of a new process. None if undetermined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """One device, or one tensor-parallel group, with the models that share it."""

    number: int
    models: tuple[str, ...]
    available_bytes: int
    """Bytes of a device that engines may use."""
    kv_bytes: int
    kv_bytes_p10: int
    kv_bytes_p90: int
    certain: bool
    """Whether the models also fit if all reserves take their P90."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDevices:
    """Models packed on the fewest devices of one accelerator."""

    accelerator: str
    devices: int
    """Devices of one group: the tensor-parallel ranks."""
    device_bytes: int
    together: bool
    """Whether one group holds all models."""
    groups: int
    device_groups: tuple[DeviceGroup, ...]
    models: tuple[ModelOnDevice, ...]
    too_large: tuple[str, ...]
    """Names of models that no group holds."""


def describe_packing(
    deployments: Sequence[Deployment],
    packing: Packing,
    server: str,
    *,
    starts: HostLoads | None = None,
    reloads: HostLoads | None = None,
) -> SharedDevices:
    """Describe a packing of deployments that have the same accelerator and split. `server` is the engine's program.

    `starts` and `reloads` are those of the user's host; without them, published times are used.
    """
    first = deployments[0]
    return SharedDevices(
        accelerator=first.accelerator.id,
        devices=first.parallelism.devices,
        device_bytes=first.accelerator.usable_hbm_bytes,
        together=packing.together,
        groups=len(packing.groups),
        device_groups=tuple(_group(number, group) for number, group in enumerate(packing.groups, 1)),
        models=tuple(
            _model(number, share, server, starts, reloads)
            for number, group in enumerate(packing.groups, 1)
            for share in group.shares
        ),
        too_large=packing.too_large,
    )


def _group(number: int, shared: SharedMemory) -> DeviceGroup:
    return DeviceGroup(
        number=number,
        models=tuple(share.name for share in shared.shares),
        available_bytes=shared.available_bytes,
        kv_bytes=shared.kv_bytes,
        kv_bytes_p10=max(0, shared.low_kv_bytes),
        kv_bytes_p90=shared.high_kv_bytes,
        certain=shared.certain,
    )


def _model(
    number: int, share: ModelShare, server: str, starts: HostLoads | None, reloads: HostLoads | None
) -> ModelOnDevice:
    deployment, budget = share.alone.deployment, share.alone.budget
    capacity = None if share.fit is None else share.fit.capacity
    weight_bytes = 0 if budget is None else budget.weight_bytes
    accelerator, ranks = deployment.accelerator, deployment.parallelism.tp
    return ModelOnDevice(
        name=share.name,
        group=number,
        context_tokens=share.alone.context_tokens,
        weight_bytes=weight_bytes,
        engine_bytes=share.own_bytes - weight_bytes,
        kv_bytes=share.kv_bytes,
        kv_tokens=0 if capacity is None else capacity.tokens,
        concurrent_requests=None if capacity is None else capacity.concurrent_requests,
        asleep_bytes=share.asleep_bytes,
        host_bytes=weight_bytes * ranks,
        memory_fraction=ceil(_STEPS * share.resident_bytes / accelerator.usable_hbm_bytes) / _STEPS,
        wake=wake_from_host(accelerator, server, weight_bytes),
        wake_from_disk=wake_from_disk(accelerator, server, weight_bytes * ranks, host=reloads),
        start=start(accelerator, server, weight_bytes * ranks, host=starts),
    )
