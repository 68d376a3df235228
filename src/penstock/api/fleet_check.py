"""Checks the launch of one replica of every pool of a fleet file."""

from penstock.api.arguments.choices import model_choice
from penstock.api.arguments.fleet_argument import fleet_choice
from penstock.api.options.file_types import AskedFleet
from penstock.api.progress import ProgressListener
from penstock.catalog import load_accelerator
from penstock.checkpoint import open_checkpoint
from penstock.preflight import Preflight
from penstock.preflight.facts.subject import subject_of
from penstock.preflight.pool_check import check_pool, place_replica
from penstock.preflight.preflight_result import CheckedPool
from penstock.preflight.rules.knowledge import Knowledge


def check_fleet(
    asked: AskedFleet, knowledge: Knowledge, watch: ProgressListener
) -> tuple[tuple[CheckedPool, ...], tuple[Preflight, ...]]:
    """Return the pools of a fleet, and the preflight of one replica of each."""
    fleet, answers = fleet_choice(asked), list[Preflight]()
    for done, pool in enumerate(fleet.pools):
        watch.progress("checking", done, len(fleet.pools))
        subject = subject_of(open_checkpoint(pool.model), pool.model)
        accelerator, converted = load_accelerator(pool.accelerator), model_choice(pool.model, pool.weights)
        checked = check_pool(pool, accelerator, subject, converted, knowledge)
        answers.append(place_replica(checked, pool, fleet.machine_devices(pool)))
    return tuple(CheckedPool(name=pool.name, replicas=pool.replicas) for pool in fleet.pools), tuple(answers)
