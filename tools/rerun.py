"""How would a published benchmark have gone here? Its closed loop, request by request, through the simulator."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.catalog.measurement import Measurement
from penstock.performance.calibration.benchmark_harness import Sending, harness_of
from penstock.performance.calibration.measured_runs import AcceleratorOf, ModelOf, cache_tokens, measured_deployment
from penstock.performance.step.prompt_queue import DRAWN
from penstock.performance.step.step_cost import StepCost, step_cost
from penstock.performance.step.step_work import Array, ReplicaWork
from penstock.simulation.placement import PROMPTS_WAIT_STEPS
from penstock.simulation.replica import Replica, ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options
from penstock.workload import Requests

_BLOCK = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """What the simulator says of a published run, in the statistic that was published."""

    ttft_s: float
    """Through the engine's steps alone."""
    tpot_s: float
    kv_limited: bool
    """Whether the cache we predict is too small for the load; the run was served, so it is simulated without limit."""


class Reruns:
    """Published runs through the simulator; what a deployment needs is worked out once."""

    def __init__(self, model_of: ModelOf, accelerator_of: AcceleratorOf) -> None:
        self._model_of, self._accelerator_of = model_of, accelerator_of
        self._placed: dict[tuple[object, ...], tuple[ReplicaWork, int]] = {}

    def __call__(self, measurement: Measurement, slowdowns: Array) -> Rerun:
        """Run one again, on a stack with these slowdowns."""
        m = measurement
        key = (m.model, m.weights, m.accelerator, m.tp, m.dp, m.ep, m.kv)
        if key not in self._placed:
            deployment = measured_deployment(m, self._model_of, self._accelerator_of)
            self._placed[key] = ReplicaWork(deployment), cache_tokens(deployment)
        work, kv_tokens = self._placed[key]
        return rerun(m, step_cost(work, slowdowns), kv_tokens)


def rerun(measurement: Measurement, cost: StepCost, kv_tokens: int) -> Rerun:
    """Send as many requests as the benchmark did, each when an earlier one ends."""
    harness, users = harness_of(measurement), round(measurement.concurrency or 1)
    median = harness.sending.statistic == "median"
    requests = drawn(measurement)
    longest = longest_tokens(measurement)
    replica = Replica(
        cost=cost,
        kv_blocks=max(kv_tokens // cost.ranks, users * longest) // _BLOCK,
        block_tokens=_BLOCK,
        max_batched_tokens=max(harness.batched_tokens, users),
        max_sequences=users,
        prefix_caching=False,
        prompts_wait_steps=PROMPTS_WAIT_STEPS.get(measurement.engine, 0),
    )
    outcome = simulate(
        [ReplicaPool(name="measured", replica=replica)], [requests], options=Options(users=users)
    ).classes[0]
    ttft_s = outcome.ttft.quantile_s(0.5) if median else outcome.ttft.mean_s
    tpot_s = outcome.tpot.quantile_s(0.5) if median else outcome.tpot.mean_s
    return Rerun(ttft_s=ttft_s or 0.0, tpot_s=tpot_s or 0.0, kv_limited=users * longest > kv_tokens)


def drawn(measurement: Measurement) -> Requests:
    """As many requests as the benchmark sent, of lengths drawn as it draws them."""
    random, sending = np.random.default_rng(1), harness_of(measurement).sending
    count = sending.requests_per_user * round(measurement.concurrency or 1)
    return Requests(
        arrival_s=np.zeros(count),
        input_tokens=_lengths(random, sending, measurement.input_tokens, count),
        output_tokens=_lengths(random, sending, measurement.output_tokens, count),
        slo_class=np.zeros(count, np.uint8),
    )


def longest_tokens(measurement: Measurement) -> int:
    """Tokens the longest of them caches at most."""
    return int((measurement.input_tokens + measurement.output_tokens) * (1 + DRAWN)) + 2 * _BLOCK


def _lengths(random: np.random.Generator, sending: Sending, mean: float, count: int) -> NDArray[np.int32]:
    drawn = random.uniform(mean * (1 - sending.length_spread), mean * (1 + sending.length_spread), count)
    return np.maximum(1, np.rint(drawn)).astype(np.int32)
