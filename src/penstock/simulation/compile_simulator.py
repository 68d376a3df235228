"""Compiles the simulator once per machine and version."""

from typing import Final

import numpy as np

from penstock.performance.step.step_cost import StepCost
from penstock.simulation.loop import events
from penstock.simulation.loop.compiler import keeps, on_disk
from penstock.simulation.replica import Replica, ReplicaPool
from penstock.simulation.run import simulate
from penstock.workload import Requests

COMPILE_COST: Final = "about 2 minutes of processor time"
"""Measured: 117 to 156 s; the longest on a machine with other load."""


def is_compiled() -> bool:
    """Return whether this version of the loop is compiled on this machine, now or earlier."""
    return on_disk(events.run)


def is_kept() -> bool:
    """Return whether the compiled loop outlives this process: next to the package or in the user's cache folder."""
    return keeps(events.run)


def compile_once() -> None:
    """Run one request, which compiles the whole loop."""
    one = Requests(
        arrival_s=np.zeros(1),
        input_tokens=np.ones(1, np.int32),
        output_tokens=np.ones(1, np.int32),
        slo_class=np.zeros(1, np.uint8),
    )
    cost = StepCost(step_s=0.01, decode_s=0.0, prefill_token_s=0.0)
    simulate([ReplicaPool(name="one", replica=Replica(cost=cost, kv_blocks=1))], [one])
