"""Simulates a recorded run of a load tool on a replica whose steps are faster or slower than predicted."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.errors import UsageError
from penstock.load_tools.load_run import LoadRun
from penstock.simulation.outcome import Outcome
from penstock.simulation.placement import Placement
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options
from penstock.workload import Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """Means that a load tool would have reported."""

    ttft_s: float
    tpot_s: float
    output_tokens_per_s: float


def replay_run(run: LoadRun, placement: Placement, log_factor: float) -> SimulatedRun:
    """Simulate the requests of a run. Every step takes exp(`log_factor`) times as long as predicted.

    If the file lists every request, the requests start when they started. Otherwise the users of a closed loop send
    their next request at once, and the requests of an open loop arrive at random at the rate that was applied.

    The users of a closed loop do the same if the requests that start when they started would be more at once than there
    are users. The simulated server is then slower than the measured one, and its users would have waited for it.
    """
    replica = placement.at(log_factor)
    if replica is None:
        raise UsageError("the model does not fit on this accelerator, so these runs cannot have been measured on it")
    pool = ReplicaPool(name="measured", replica=replica, replicas=1)
    outcome = simulate([pool], _requests(run), options=Options(users=None if run.has_all_records else run.users))
    if run.users is not None and _mean_in_flight(outcome) > run.users:
        outcome = simulate([pool], _requests(run), options=Options(users=run.users))
    ttft_s, tpot_s = outcome.classes[0].ttft.mean_s, outcome.classes[0].tpot.mean_s
    if ttft_s is None or tpot_s is None:
        raise UsageError(f"{run.where}: the simulated server answers none of its requests")
    return SimulatedRun(ttft_s=ttft_s, tpot_s=tpot_s, output_tokens_per_s=outcome.output_tokens_per_s)


def _mean_in_flight(outcome: Outcome) -> float:
    """Return the mean number of requests between their arrival and their last token. By Little's law."""
    latencies_s = sum(one.e2e.sum_s for one in outcome.classes)
    tokens = sum(one.output_tokens for one in outcome.classes)
    return latencies_s * outcome.output_tokens_per_s / max(1, tokens)


def _requests(run: LoadRun) -> Iterator[Requests]:
    if run.has_all_records:
        starts = np.array([record.start_s for record in run.records], np.float64)
        inputs = np.array([max(1, record.input_tokens) for record in run.records], np.int32)
        outputs = np.array([max(1, record.output_tokens) for record in run.records], np.int32)
    else:
        count = run.completed
        starts = np.zeros(count)
        if run.users is None:
            starts = np.cumsum(np.random.default_rng(0).exponential(1.0 / run.applied_rate_per_s, count))
        inputs = np.full(count, max(1, round(run.input_length.mean)), np.int32)
        outputs = np.full(count, max(1, round(run.output_length.mean)), np.int32)
    yield Requests(
        arrival_s=starts, input_tokens=inputs, output_tokens=outputs, slo_class=np.zeros(len(starts), np.uint8)
    )
