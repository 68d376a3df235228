"""Does a simulator say what the engine did? Medians of latencies and counts, simulated over observed."""

import math
from dataclasses import dataclass

import numpy as np

from engine.calibration import Fit
from engine.recording import Part, Recording
from engine.server import Settings
from reference import ReferenceCost, ReferenceRequest, ReferenceSettings, simulate


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
    steps: float


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
        steps=sum(one.steps for one in simulated) / sum(one.steps for one in counts),
    )


def _median(columns: list[tuple[float, ...]]) -> float:
    return float(np.median(np.concatenate(columns)))


def _ratio(simulated: int, observed: int) -> float | None:
    if observed == 0:
        return None if simulated == 0 else math.inf
    return simulated / observed


def simulate_part(part: Part, settings: Settings, num_blocks: int, cost: Fit) -> Simulated:
    """The same requests at the same times through the simulator."""
    result = simulate(
        _requests(part),
        ReferenceSettings(
            max_num_batched_tokens=settings.max_num_batched_tokens,
            max_num_seqs=settings.max_num_seqs,
            block_tokens=settings.block_size,
            num_blocks=num_blocks,
        ),
        ReferenceCost(
            step_s=cost.step_s,
            decode_s=cost.decode_s,
            prefill_token_s=cost.prefill_token_s,
            limits=(math.inf,),
            context_s=(cost.context_s,),
            pair_s=(cost.pair_s,),
        ),
    )
    return Simulated(
        # The way through the front end is no step; it is measured apart and added to what the client waits for.
        ttft_s=tuple(outcome.ttft_s + cost.overhead_s for outcome in result.outcomes),
        tpot_s=tuple(outcome.tpot_s for outcome in result.outcomes if outcome.tpot_s is not None),
        preemptions=result.preemptions,
        # vLLM exports the hits of first admissions (`PrefixCacheStats.record`), which is what an outcome has.
        prefix_hit_tokens=sum(outcome.prefix_hit_tokens for outcome in result.outcomes),
        steps=len(result.steps),
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
