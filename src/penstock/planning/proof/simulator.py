"""What does the simulator say about a replica and about a pool? The two questions a plan asks of it."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penstock.fleet.deployment import Deployment
from penstock.performance.evidence.efficiencies import Efficiencies
from penstock.planning.candidates.screen import QueuelessScreen
from penstock.planning.proof.simulated import Times
from penstock.simulation.capacity import capacity
from penstock.simulation.options import Options
from penstock.simulation.placement import Placement, place
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run import simulate
from penstock.workload import Requests, Slo, Workload

_TRIAL_REQUESTS: Final = 2000
"""Requests of one trial of a capacity: attainment to about half a point, and the queue shows if it grows."""


@dataclass(slots=True)
class Simulator:
    """Lays deployments out on the stack the closed loop chose for them, and runs them."""

    efficiencies: Efficiencies
    loop: QueuelessScreen
    seed: int = 0
    _placed: dict[tuple[object, ...], Placement] = field(default_factory=dict)

    def rate(self, deployment: Deployment, workload: Workload, slo: Slo) -> float:
        """The highest rate one replica sustains; all requests of a plan's bucket are alike, so its first is typical."""
        del slo  # the workload's class carries it
        first = next(workload.blocks(seed=self.seed, requests=1, rate_per_s=1.0))
        placed = self._place(deployment, int(first.input_tokens[0] + first.output_tokens[0]))
        if placed.replica is None:
            return 0.0
        pool = ReplicaPool(name="replica", replica=placed.replica)
        found = capacity([pool], workload, classes=workload.classes, requests=_TRIAL_REQUESTS, seed=self.seed)
        return found.rate_per_s

    def serve(self, deployment: Deployment, replicas: int, requests: Requests) -> Times:
        """Run a pool, the least loaded replica taking the next request; what is not served never ends."""
        count = len(requests.arrival_s)
        tokens = int(np.mean(requests.input_tokens) + np.mean(requests.output_tokens))
        placed = self._place(deployment, tokens)
        never = np.full(count, np.inf)
        times = Times(ttft_s=never.copy(), tpot_s=never.copy(), e2e_s=never.copy())
        if placed.replica is None:
            return times
        pool = ReplicaPool(name="pool", replica=placed.replica, replicas=replicas)
        served = simulate([pool], [requests], options=Options(keep_requests=True)).served
        if served is None:
            return times
        times.ttft_s[served.number], times.e2e_s[served.number] = served.ttft_s, served.e2e_s
        after = np.where(served.output_tokens > 1, served.output_tokens - 1.0, np.nan)
        times.tpot_s[served.number] = (served.e2e_s - served.ttft_s) / after
        return times

    def _place(self, deployment: Deployment, typical_tokens: int) -> Placement:
        model, split = deployment.model, deployment.parallelism
        key = (model.name, model.quantisation, deployment.accelerator.id, split, deployment.cache_dtype, typical_tokens)
        if key not in self._placed:
            measured_engine = self.loop.measured_engine_of(deployment)
            self._placed[key] = place(deployment, measured_engine, self.efficiencies, typical_tokens=typical_tokens)
        return self._placed[key]
