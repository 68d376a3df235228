"""Predicts the speed of one deployment under one load, with its bottleneck, its uncertainty and its evidence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.errors import DeploymentError
from penstock.fleet.deployment import Deployment
from penstock.performance.calibration.efficiencies import Efficiencies, Novelty, ObservedSetups
from penstock.performance.calibration.error_summary import Logs
from penstock.performance.calibration.first_token_regression import Software
from penstock.performance.memory.budget import MemoryFit, fit
from penstock.performance.prediction.measured_load import (
    RequestedLoad,
    first_token_at,
    has_room,
    time_per_token_at,
)
from penstock.performance.prediction.serving_stack import Stack, Tier, stack_of
from penstock.performance.step.drafting_step import drafting_step
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Speculative decoding: the tokens drafted per step, and the tokens that a step yields."""

    drafted_tokens: int
    accepted_tokens: float
    """Tokens that a step yields per request, including the model's own token: from 1 to `drafted_tokens` + 1."""
    own_layers: bool = False
    """Whether the checkpoint's own multi-token-prediction layers draft. If so, the time of these layers is counted. The
    time of a separate drafter is not counted."""
    log_factor: float = 0.0
    """Natural logarithm of the ratio of the time of a drafting step to the time that its work predicts."""
    spread: Logs = (0.0, 0.0)
    """P10 and P90 of the error of the gain from drafts, as logarithms. They widen the spread of the time without
    drafts."""
    tier: Tier = "calibrated"
    grounds: str = "as given"

    def __post_init__(self) -> None:
        if not 0 <= self.drafted_tokens <= 64 or not 1 <= self.accepted_tokens <= self.drafted_tokens + 1:
            raise DeploymentError(
                f"a step that drafts {self.drafted_tokens} tokens yields 1 to {self.drafted_tokens + 1}, "
                f"not {self.accepted_tokens:g}"
            )

    def widened(self, spread: Logs) -> Logs:
        """Return the spread of a time without drafts, widened by the uncertainty of the gain from drafts.

        The two uncertainties are treated as independent.
        """
        low, high = (float(np.hypot(plain, more)) for plain, more in zip(spread, self.spread, strict=True))
        return (min(spread[0], -low), max(spread[1], high)) if any(self.spread) else spread

    def tier_on(self, stack: Stack) -> Tier:
        """Return the lower of two tiers: the tier of the stack without drafts, and the tier of the drafts."""
        return "transferred" if "transferred" in {stack.tier, self.tier} else "calibrated"

    def roofline(self, work: ReplicaWork, loop: LoopLoad) -> Array:
        """Return the work of an average step, divided by the tokens that the step yields per request."""
        step = drafting_step if self.own_layers else _verifying_step
        return np.asarray(step(work, loop, self.accepted_tokens)[0] / self.accepted_tokens)


_NO_DRAFTS: Final = Speculation(drafted_tokens=0, accepted_tokens=1.0)


def _verifying_step(work: ReplicaWork, loop: LoopLoad, accepted_tokens: float) -> Array:
    return work.roofline(loop.average(accepted_tokens))


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
    full."""
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
    def output_tokens_per_s_per_device(self) -> float:
        """Return the throughput divided by the number of devices of the replica."""
        return self.output_tokens_per_s.value / self.deployment.parallelism.devices

    @property
    def software_tax(self) -> float:
        """Return the part of the roofline that the stack does not deliver: one minus the delivered fraction."""
        return 1 - self.roofline_s / self.tpot_s.value


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
    stack = None if efficiencies is None else stack_of(work, measured_engine, efficiencies)
    load = RequestedLoad(concurrency, input_tokens, output_tokens)
    running = concurrency if stack is not None and has_room(stack, work, load) else _running(memory, concurrency)
    drafts = speculation or _NO_DRAFTS
    loop = LoopLoad(
        users=np.array([running]),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        batched_tokens=deployment.batched_tokens,
        drafted_tokens=drafts.drafted_tokens,
    )
    roofline = drafts.roofline(work, loop)
    bound_s = roofline_s(roofline)
    if stack is None or efficiencies is None:
        return _roofline_prediction(deployment, measured_engine, load, running, roofline, memory)
    served_load = RequestedLoad(running, input_tokens, output_tokens)
    at = time_per_token_at(stack, work, measured_engine, efficiencies, served_load)
    # The factor of drafting steps was fitted without the correction.
    log_factor = at.log_factor if speculation is None else drafts.log_factor
    taken = roofline * stack.slowdowns * float(np.exp(log_factor))
    step = StepTime(parts_s={name: float(value) for name, value in zip(COMPONENTS, taken, strict=True)})
    tpot = _around(step.seconds, drafts.widened(at.spread), lower_bound=bound_s)
    first = first_token_at(stack, work, measured_engine, efficiencies, served_load)
    served = _around(float(stack.first_token_s(work, loop)[0] * np.exp(first.log_factor)), first.spread)
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
        tier=at.tier if speculation is None else drafts.tier_on(stack),
        ttft_tier=first.tier,
        novelty=stack.novelty,
        seen=stack.seen,
        borrowed_from=stack.path,
        software=stack.software,
        memory=memory,
        stack=stack,
        speculation=speculation,
    )


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


def _running(memory: MemoryFit, concurrency: float) -> float:
    """Return the number of concurrent requests, limited by the users, the KV cache and the engine's batch."""
    limit = memory.capacity.concurrent_requests if memory.capacity is not None else None
    return max(1.0, min(concurrency, limit)) if limit else concurrency


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
    "Speculation",
    "Stack",
    "StepTime",
    "Tier",
    "predict",
    "stack_of",
]
