"""Adds to a launch what an engine needs that shares its device with the engines of other models."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from typing import Final

from penstock.fleet.pools import Fleet, Pool, SharedDevice
from penstock.preflight.launch.launch_plan import ReplicaPlace
from penstock.preflight.launch.server_program import program_of
from penstock.preflight.launch.setting import Setting
from penstock.preflight.pool_check import add_flags
from penstock.preflight.preflight_result import Preflight
from penstock.preflight.rules.knowledge import Knowledge

_STEPS: Final = 1000
"""Steps of one in which a share of the memory is rounded up."""


def check_shared(answer: Preflight, pool: Pool, device: SharedDevice, fleet: Fleet, knowledge: Knowledge) -> Preflight:
    """Check a pool's launch on one of the fleet's shared devices.

    vLLM refuses to start unless its share of the memory is free, also where the size of the KV cache is stated. Without
    a share of its own, every engine but the first of a device would be refused.
    """
    added = tuple(_flags(answer, pool, device))
    checked = add_flags(answer, added, knowledge) if added else answer
    variables = checked.plan.variables
    if any(flag.name == "enable-sleep-mode" for flag in added):
        variables = (*variables, Setting(name="VLLM_SERVER_DEV_MODE", value="1", why="serves /sleep and /wake_up"))
    place = _place(checked, pool, device, fleet)
    return replace(checked, plan=replace(checked.plan, variables=variables, place=place))


def _flags(answer: Preflight, pool: Pool, device: SharedDevice) -> Iterator[Setting]:
    budget = answer.memory.budget
    if answer.plan.engine != "vllm" or budget is None:
        return
    if not answer.plan.has("gpu-memory-utilization"):
        taken = budget.weight_bytes + budget.activation_bytes + budget.runtime_bytes + budget.graph_bytes
        share = ceil(_STEPS * (taken + budget.kv_bytes) / budget.device_bytes) / _STEPS
        yield Setting(
            name="gpu-memory-utilization", value=f"{share:g}", why="the share of the device that must be free"
        )
    if pool.name not in device.kept_awake:
        yield Setting(name="enable-sleep-mode", value=None, why="other models may need the memory")


def _place(answer: Preflight, pool: Pool, device: SharedDevice, fleet: Fleet) -> ReplicaPlace:
    """Return the devices of the engine on its machine, and a port that no other engine of the machine has."""
    same = [one for one in fleet.shared_devices if _machines(fleet, one) == _machines(fleet, device)]
    size = fleet.machine_devices(pool) or answer.question.accelerator.node.devices
    ranks = pool.split.devices
    per_machine, number = max(1, size // ranks), same.index(device)
    first, slot = number - number % per_machine, number % per_machine
    engines = [name for one in same[first : number + 1] for name in one.pools]
    before = len(engines) - len(device.pools) + device.pools.index(pool.name)
    stated = next((address.rpartition(":")[2] for address in pool.endpoints), None)
    return ReplicaPlace(
        devices=tuple(range(slot * ranks, (slot + 1) * ranks)) if ranks < size else (),
        port=program_of(answer.plan.engine).port + before if stated is None else int(stated),
        replicas=1,
    )


def _machines(fleet: Fleet, device: SharedDevice) -> tuple[str, str, int]:
    """Return what tells the machines of a device from others."""
    pool = fleet.pool(device.pools[0])
    return pool.accelerator, pool.site, pool.split.devices
