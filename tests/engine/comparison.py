"""Does the simulator say what the engine did? Medians of latencies and counts, simulated over observed."""

import math
from dataclasses import dataclass

import numpy as np

from engine.calibration import Fit
from engine.recording import Part, Recording
from engine.server import Settings
from penstock.performance.step.step_cost import StepCost
from penstock.simulation.replica import Replica, ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What the simulator says about one part."""

    ttft_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    preemptions: int
    prefix_hit_tokens: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Simulated over observed, all parts of a recording together; 1 is right."""

    ttft_p50: float
    tpot_p50: float
    preemptions: float | None
    """None where the engine preempted nobody and the simulator neither."""
    prefix_hit_tokens: float


def compare(recording: Recording) -> Ratios:
    """Every part simulated from an idle engine with the step times calibrated around it."""
    counts = [part.counts for part in recording.parts]
    simulated = [
        simulate_part(part, recording.settings, recording.num_blocks, cost)
        for part, cost in zip(recording.parts, recording.fits(), strict=True)
    ]
    return Ratios(
        ttft_p50=_median([one.ttft_s for one in simulated]) / _median([part.ttft_s for part in recording.parts]),
        tpot_p50=_median([one.tpot_s for one in simulated]) / _median([part.tpot_s() for part in recording.parts]),
        preemptions=_ratio(sum(one.preemptions for one in simulated), sum(one.preemptions for one in counts)),
        prefix_hit_tokens=sum(one.prefix_hit_tokens for one in simulated)
        / sum(one.prefix_hit_tokens for one in counts),
    )


def _median(columns: list[tuple[float, ...]]) -> float:
    return float(np.median(np.concatenate(columns)))


def _ratio(simulated: int, observed: int) -> float | None:
    if observed == 0:
        return None if simulated == 0 else math.inf
    return simulated / observed


def steps_before_the_first_token(part: Part, settings: Settings) -> int:
    """Of a line of requests; vLLM counts a step only when it gives somebody a token, and until then nobody decodes."""
    return (part.trace.input_tokens[0] - 1) // settings.max_num_batched_tokens


def simulate_part(part: Part, settings: Settings, num_blocks: int, cost: Fit) -> Simulated:
    """The same requests at the same times through the simulator."""
    replica = Replica(
        cost=StepCost(
            step_s=cost.step_s,
            decode_s=cost.decode_s,
            prefill_token_s=cost.prefill_token_s,
            context_s=(cost.context_s,),
            pair_s=(cost.pair_s,),
        ),
        kv_blocks=num_blocks,
        block_tokens=settings.block_size,
        max_batched_tokens=settings.max_num_batched_tokens,
        max_sequences=settings.max_num_seqs,
        request_s=cost.overhead_s,
    )
    outcome = simulate(
        [ReplicaPool(name="engine", replica=replica)], [part.trace.requests()], options=Options(keep_requests=True)
    )
    (pool,) = outcome.pools
    served = outcome.served
    assert served is not None, "the requests were asked for"
    return Simulated(
        ttft_s=tuple(served.ttft_s.tolist()),
        tpot_s=tuple(served.tpot_s.tolist()),
        preemptions=pool.preemptions,
        # vLLM exports the hits of first admissions (`PrefixCacheStats.record`), which is what a request's own are.
        prefix_hit_tokens=int(served.hit_tokens.sum()),
        steps=pool.engine_steps,
    )
