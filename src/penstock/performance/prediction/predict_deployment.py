"""Predicts the speed of one deployment under one load, with its bottleneck, its uncertainty and its evidence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Final

import numpy as np

from penstock.fleet.deployment import Deployment
from penstock.performance.calibration.benchmark_harness import BENCHMARK, Statistic
from penstock.performance.calibration.efficiencies import Efficiencies, Novelty, ObservedSetups
from penstock.performance.calibration.error_summary import Logs
from penstock.performance.calibration.first_token_regression import Software
from penstock.performance.memory.budget import MemoryFit, fit
from penstock.performance.prediction.drafted_load import DraftedCurve, drafted_curve
from penstock.performance.prediction.measured_load import (
    CorrectedTime,
    QueuedFirstToken,
    RequestedLoad,
    first_token_at,
    per_rank,
    time_per_token_at,
)
from penstock.performance.prediction.running_limit import engine_limit
from penstock.performance.prediction.serving_stack import Stack, Tier, independent_rank, stack_of
from penstock.performance.prediction.speculation import Speculation
from penstock.performance.step.first_token import LoopLoad
from penstock.performance.step.step_work import COMPONENTS, PHYSICAL, Array, ReplicaWork, roofline_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A predicted value with its P10 and P90."""

    value: float
    low: float
    high: float

    @property
    def ends(self) -> tuple[float, float, float]:
        """Return the value, its P10 and its P90, in this order."""
        return self.value, self.low, self.high

    def scaled(self, by: float) -> "Range":
        """Return the range with all three values multiplied by `by`."""
        return Range(value=self.value * by, low=self.low * by, high=self.high * by)


NO_DRAFTS: Final = Speculation(drafted_tokens=0, accepted_tokens=1.0)
_FEWEST_RUNNING: Final = 1 / 8
"""Smallest share of the requests in flight that must run at once. With a smaller share nearly all of the time is
waiting, and a figure would answer a question that was not asked."""


def carries(running: float, users: float) -> bool:
    """Return whether enough of the requests in flight run at once."""
    return running >= _FEWEST_RUNNING * users


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """One average engine step, with the seconds of each component."""

    parts_s: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """Return the seconds of the whole step."""
        return sum(self.parts_s.values())

    @property
    def bound_by(self) -> str:
        """Return the component that takes the largest part of the step."""
        return max(self.parts_s, key=lambda name: self.parts_s[name])


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Predicted performance of a replica under a closed loop of `concurrency` users."""

    deployment: Deployment
    measured_engine: str
    """The engine whose measurements are used. It can differ from `deployment.engine`, which determines the memory
    budget."""
    load: RequestedLoad
    running: float
    """Number of requests that run concurrently. It is below `concurrency` if the KV cache or the engine's batch is
    full, or if prompts fill the token budget of every step."""
    tpot_s: Range
    ttft_s: Range | None
    """Time to first token in seconds. None if the prediction is a roofline."""
    output_tokens_per_s: Range
    step: StepTime
    roofline_s: float
    """Seconds of the predicted step at the roofline."""
    roofline_parts_s: Mapping[str, float]
    """Seconds of each component of the step at the roofline: memory traffic, arithmetic and communication."""
    tier: Tier
    """Tier of the time per output token."""
    ttft_tier: Tier
    ttft_statistic: Statistic
    """Statistic over requests that `ttft_s` states. It is the same for all numbers of users."""
    novelty: Novelty
    borrowed_from: tuple[str, ...]
    seen: ObservedSetups
    """Measurements of exactly this setup."""
    software: Software | None
    memory: MemoryFit
    stack: Stack | None
    """Measured behaviour of the stack. It also applies to other loads of the same deployment. None if the prediction is
    a roofline."""
    speculation: Speculation | None = None

    @property
    def concurrency(self) -> float:
        """Return the number of users of the closed loop."""
        return self.load.users

    @property
    def serves(self) -> bool:
        """Return whether the model fits and enough of the requests run at once."""
        return self.memory.fits and carries(self.running, self.concurrency)

    @property
    def output_tokens_per_s_per_device(self) -> float:
        """Return the throughput divided by the number of devices of the replica."""
        return self.output_tokens_per_s.value / self.deployment.parallelism.devices

    @property
    def software_tax(self) -> float:
        """Return the part of the roofline that the stack does not deliver: one minus the delivered fraction."""
        return 1 - self.roofline_s / self.tpot_s.value


def _loop_of(load: RequestedLoad, running: float, deployment: Deployment, drafts: Speculation) -> LoopLoad:
    return LoopLoad(
        users=np.array([running]),
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        batched_tokens=deployment.batched_tokens,
        drafted_tokens=drafts.drafted_tokens,
    )


def predict(
    deployment: Deployment,
    measured_engine: str,
    *,
    input_tokens: float,
    output_tokens: float,
    concurrency: float,
    efficiencies: Efficiencies | None,
    speculation: Speculation | None = None,
) -> Prediction:
    """Predict the speed under a closed loop of users.

    Without `efficiencies` the result is the roofline, which is a bound and not an estimate.
    """
    memory = fit(deployment, max(1, round(input_tokens + output_tokens)))
    work = ReplicaWork(deployment)
    stack = None
    if efficiencies is not None:
        stack = stack_of(work, measured_engine, efficiencies, drafting=speculation is not None)
    load = RequestedLoad(concurrency, input_tokens, output_tokens)
    curve = None if stack is None else drafted_curve(stack, work, measured_engine, efficiencies, speculation)
    own = None if stack is None else (stack.curve if curve is None else curve).own
    drafts = speculation or NO_DRAFTS
    limit = engine_limit(deployment, memory, measured_engine, drafts)
    # The roofline is a bound, so prompts do not limit it.
    room = replace(limit, step_tokens=inf) if own is None else limit.with_proof(own, independent_rank(work)[1])
    running = room.running(load)
    roofline = drafts.roofline(work, _loop_of(load, running, deployment, drafts))
    bound_s = roofline_s(roofline)
    if stack is None or efficiencies is None:
        return _roofline_prediction(deployment, measured_engine, load, running, roofline, memory)
    served_load = RequestedLoad(running, input_tokens, output_tokens)
    at, first, drafts = _correct_times(stack, work, measured_engine, efficiencies, served_load, drafts, curve)
    taken = roofline * stack.slowdowns * float(np.exp(at.log_factor))
    step = StepTime(parts_s={name: float(value) for name, value in zip(COMPONENTS, taken, strict=True)})
    tpot = _around(step.seconds, at.spread, lower_bound=bound_s)
    served = _first_token(stack, work, measured_engine, served_load, drafts, first)
    busy = _request_seconds(served, tpot, output_tokens)
    throughput = _range(running * output_tokens / seconds for seconds in (busy.value, busy.high, busy.low))
    return Prediction(
        deployment=deployment,
        measured_engine=measured_engine,
        load=load,
        running=running,
        tpot_s=tpot,
        ttft_s=_after_waiting(served, busy, (concurrency - running) / running),
        output_tokens_per_s=throughput,
        step=step,
        roofline_s=bound_s,
        roofline_parts_s=_physical(roofline),
        tier=at.tier,
        ttft_tier=first.tier,
        ttft_statistic=first.sending.statistic,
        novelty=stack.novelty,
        seen=stack.seen,
        borrowed_from=stack.path,
        software=stack.software,
        memory=memory,
        stack=stack,
        speculation=None if speculation is None else drafts,
    )


def _correct_times(
    stack: Stack,
    work: ReplicaWork,
    measured_engine: str,
    efficiencies: Efficiencies,
    load: RequestedLoad,
    drafts: Speculation,
    curve: DraftedCurve | None,
) -> tuple[CorrectedTime, CorrectedTime, Speculation]:
    """Return the corrections of the time per token and of the time to first token, and the drafts at this load.

    `curve` has the measured runs with these drafts. None if there are none.
    """
    at = time_per_token_at(stack, work, measured_engine, efficiencies, load)
    first = first_token_at(stack, work, measured_engine, efficiencies, load)
    _, rank_load = per_rank(work, load)
    if curve is not None:
        at = curve.time_per_token_at(rank_load, at, efficiencies.repeats)
        first = curve.first_token_at(rank_load, first, efficiencies.first_repeats)
        return at, first, curve.with_factor_of(at, rank_load)
    if drafts is not NO_DRAFTS:
        at = replace(at, log_factor=drafts.log_factor, spread=drafts.widened(at.spread), tier=drafts.tier_on(stack))
    return at, first, drafts


def _first_token(
    stack: Stack,
    work: ReplicaWork,
    measured_engine: str,
    load: RequestedLoad,
    drafts: Speculation,
    first: CorrectedTime,
) -> Range:
    """Return the time from the admission of a request to its first token."""
    rank, rank_load = per_rank(work, load)
    queued = QueuedFirstToken(
        stack=stack,
        rank=rank,
        measured_engine=measured_engine,
        drafted_tokens=drafts.drafted_tokens,
        accepted_tokens=drafts.accepted_tokens,
    )
    return _around(queued.seconds(rank_load, first.sending) * float(np.exp(first.log_factor)), first.spread)


def _range(ends: Iterable[float]) -> Range:
    value, low, high = ends
    return Range(value=value, low=low, high=high)


def _request_seconds(served: Range, tpot: Range, output_tokens: float) -> Range:
    """Return the seconds that a request runs, from its admission to its last token."""
    return _range(first + output_tokens * each for first, each in zip(served.ends, tpot.ends, strict=True))


def _after_waiting(served: Range, busy: Range, waiting_per_running: float) -> Range:
    """Return the time to first token in a closed loop in which some requests wait for admission.

    By Little's law, the wait is the run time of a request times the waiting requests per running request.
    """
    return _range(first + waiting_per_running * run for first, run in zip(served.ends, busy.ends, strict=True))


def _around(seconds: float, spread: Logs, *, lower_bound: float = 0.0) -> Range:
    """Return the P10-P90 range of a time. The low end is never below `lower_bound`, which is the roofline."""
    low, high = (seconds * float(np.exp(end)) for end in spread)
    return Range(value=seconds, low=max(lower_bound, low), high=high)


def _roofline_prediction(
    deployment: Deployment,
    measured_engine: str,
    load: RequestedLoad,
    running: float,
    roofline: Array,
    memory: MemoryFit,
) -> Prediction:
    seconds = roofline_s(roofline)
    only = Range(value=seconds, low=seconds, high=seconds)
    rate = Range(value=running / seconds, low=running / seconds, high=running / seconds)
    return Prediction(
        deployment=deployment,
        measured_engine=measured_engine,
        load=load,
        running=running,
        tpot_s=only,
        ttft_s=None,
        output_tokens_per_s=rate,
        step=StepTime(parts_s=_physical(roofline)),
        roofline_s=seconds,
        roofline_parts_s=_physical(roofline),
        tier="roofline",
        ttft_tier="roofline",
        ttft_statistic=BENCHMARK.statistic,
        novelty="accelerator",
        borrowed_from=(),
        seen=ObservedSetups(),
        software=None,
        memory=memory,
        stack=None,
    )


def _physical(roofline: Array) -> dict[str, float]:
    return dict(zip(COMPONENTS[:PHYSICAL], (float(value) for value in roofline[:PHYSICAL]), strict=True))


__all__ = [
    "Efficiencies",
    "Novelty",
    "Prediction",
    "Range",
    "Stack",
    "StepTime",
    "Tier",
    "predict",
    "stack_of",
]
