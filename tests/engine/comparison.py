"""Does a simulator say what the engine did? Medians of latencies and counts, simulated over observed."""

import math
from dataclasses import dataclass

import numpy as np

from engine.calibration import Fit
from engine.recording import Part, Recording
from reference import ReferenceCost, ReferenceRequest, ReferenceSettings, simulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Simulated over observed, all parts of a recording together; 1 is right."""

    ttft_p50: float
    tpot_p50: float
    preemptions: float | None
    """None where the engine preempted nobody and the simulator neither."""
    prefix_hit_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Simulated:
    ttft_s: list[float]
    tpot_s: list[float]
    preemptions: int
    prefix_hit_tokens: int


def compare(recording: Recording) -> Ratios:
    """Every part simulated from an idle engine with the step times calibrated around it."""
    simulated = [_simulate(recording, part, cost) for part, cost in zip(recording.parts, recording.fits(), strict=True)]
    return Ratios(
        ttft_p50=_median_ratio([one.ttft_s for one in simulated], [list(part.ttft_s) for part in recording.parts]),
        tpot_p50=_median_ratio([one.tpot_s for one in simulated], [part.tpot_s() for part in recording.parts]),
        preemptions=_count_ratio(
            sum(one.preemptions for one in simulated), sum(part.counts.preemptions for part in recording.parts)
        ),
        prefix_hit_tokens=sum(one.prefix_hit_tokens for one in simulated)
        / sum(part.counts.prefix_hit_tokens for part in recording.parts),
    )


def _median_ratio(simulated: list[list[float]], observed: list[list[float]]) -> float:
    return float(np.median(np.concatenate(simulated)) / np.median(np.concatenate(observed)))


def _count_ratio(simulated: int, observed: int) -> float | None:
    if observed == 0:
        return None if simulated == 0 else math.inf
    return simulated / observed


def _simulate(recording: Recording, part: Part, cost: Fit) -> _Simulated:
    settings = ReferenceSettings(
        max_num_batched_tokens=recording.settings.max_num_batched_tokens,
        max_num_seqs=recording.settings.max_num_seqs,
        block_tokens=recording.settings.block_size,
        num_blocks=recording.num_blocks,
    )
    outcomes = simulate(
        _requests(part),
        settings,
        ReferenceCost(
            step_s=cost.step_s,
            decode_s=cost.decode_s,
            prefill_token_s=cost.prefill_token_s,
            limits=(math.inf,),
            context_s=(cost.context_s,),
            pair_s=(cost.pair_s,),
        ),
    ).outcomes
    return _Simulated(
        # The way through the front end is no step; it is measured apart and added to what the client waits for.
        ttft_s=[outcome.ttft_s + cost.overhead_s for outcome in outcomes],
        tpot_s=[outcome.tpot_s for outcome in outcomes if outcome.tpot_s is not None],
        preemptions=sum(outcome.preemptions for outcome in outcomes),
        # vLLM counts hits at first admissions only (`PrefixCacheStats.record`), and so does an outcome.
        prefix_hit_tokens=sum(outcome.prefix_hit_tokens for outcome in outcomes),
    )


def _requests(part: Part) -> list[ReferenceRequest]:
    """In the order in which they were sent: two calls a hair apart may have left in the other order."""
    trace = part.trace
    requests = [
        ReferenceRequest(
            arrival_s=at_s,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            path=tuple((segment, trace.segment_tokens[segment]) for segment in path),
        )
        for at_s, input_tokens, output_tokens, path in zip(
            trace.arrival_s, trace.input_tokens, trace.output_tokens, trace.paths, strict=True
        )
    ]
    return sorted(requests, key=lambda request: request.arrival_s)
