"""Checks the launch of one replica of every pool of a fleet file."""

from penstock.api.arguments.choices import model_choice
from penstock.api.arguments.fleet_argument import fleet_choice
from penstock.api.arguments.shared_device_argument import swapping_devices
from penstock.api.options.file_types import AskedFleet
from penstock.api.progress import ProgressListener
from penstock.catalog.own_accelerator import find_accelerator
from penstock.checkpoint import open_checkpoint
from penstock.preflight import Preflight
from penstock.preflight.facts.subject import subject_of
from penstock.preflight.pool_check import check_pool, place_replica
from penstock.preflight.preflight_result import CheckedPool
from penstock.preflight.rules.knowledge import Knowledge
from penstock.preflight.shared_pool import check_shared


def check_fleet(
    asked: AskedFleet, knowledge: Knowledge, watch: ProgressListener
) -> tuple[tuple[CheckedPool, ...], tuple[Preflight, ...]]:
    """Return the pools of a fleet, and the preflight of one replica of each.

    Shared devices that cannot hold the models that they keep awake are refused.
    """
    fleet, pools, answers = fleet_choice(asked), list[CheckedPool](), list[Preflight]()
    swapping_devices(fleet)
    for done, pool in enumerate(fleet.pools):
        watch.progress("checking", done, len(fleet.pools))
        subject = subject_of(open_checkpoint(pool.model), pool.model)
        accelerator, converted = find_accelerator(pool.accelerator), model_choice(pool.model, pool.weights)
        checked = check_pool(pool, accelerator, subject, converted, knowledge)
        device = next((one for one in fleet.shared_devices if pool.name in one.pools), None)
        if device is None:
            answers.append(place_replica(checked, pool, fleet.machine_devices(pool)))
        else:
            answers.append(check_shared(checked, pool, device, fleet, knowledge))
        pools.append(CheckedPool(name=pool.name, replicas=pool.replicas, device="" if device is None else device.name))
    return tuple(pools), tuple(answers)
