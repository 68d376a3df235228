"""Estimates the capacity of many deployments quickly, before simulation, by the rate of a replica without queueing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot, inf, log2
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.fleet.deployment import Deployment
from penstock.performance.calibration.efficiencies import Efficiencies
from penstock.performance.calibration.error_summary import Logs
from penstock.performance.memory.budget import DeviceRoom, MemoryFit, batch_limit
from penstock.performance.memory.running_requests import running_requests
from penstock.performance.prediction.drafted_load import DraftedCurve, drafted_curve
from penstock.performance.prediction.predict_deployment import Range
from penstock.performance.prediction.serving_stack import Stack, stack_of
from penstock.performance.prediction.speculation import Speculation
from penstock.performance.similarity.cases import shape_of
from penstock.performance.step.drafting_step import drafting_step
from penstock.performance.step.first_token import LoopLoad
from penstock.performance.step.step_work import COMPONENTS, Array, ReplicaWork
from penstock.planning.candidates.replica_capacity import Capacity, Option, RateCurve, cannot
from penstock.planning.spec.plan_types import Bucket, WorkloadPlan
from penstock.workload.slo import Slo

_MOST: Final = 4096
_PER_DOUBLING: Final = 0.2
"""P90 of the logarithm of the error for each doubling of requests at once beyond the measured ones.

Assumed: gpt-oss-120b on H200 was predicted at least 1.5 times too fast three doublings beyond its runs."""
_PER_OCTAVE: Final = 16
"""Number of concurrency levels tried per doubling of concurrency, which gives steps of 4%."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledSteps:
    """A deployment's work, and the fitted stack that predicts the seconds per unit of work."""

    work: ReplicaWork
    stack: Stack
    speculation: Speculation | None
    drafted: DraftedCurve | None = None
    """Measured runs with these drafts."""
    measured_users: float | None = None
    """Most requests at once, per device, with which a model of this shape was measured on the accelerator with any
    engine and split, times the devices; None if none was."""

    def beyond(self, spread: Logs, together: float) -> Logs:
        """Return P10 and P90 of the error of a step with more requests at once than were measured.

        The error grows with each doubling, and is independent of that of the measured loads.
        """
        if self.measured_users is None or together <= self.measured_users:
            return spread
        farther = _PER_DOUBLING * log2(together / self.measured_users)
        return -hypot(min(spread[0], 0.0), farther), hypot(max(spread[1], 0.0), farther)

    def _loop(self, together: Array, bucket: Bucket) -> LoopLoad:
        return LoopLoad(
            users=together,
            input_tokens=bucket.input_tokens,
            output_tokens=bucket.output_tokens,
            batched_tokens=self.work.deployment.batched_tokens,
            drafted_tokens=0 if self.speculation is None else self.speculation.drafted_tokens,
        )

    def parts_s(self, together: float, bucket: Bucket) -> Mapping[str, tuple[float, float]]:
        """Return the seconds per token of each component of a step: at the roofline, and as predicted."""
        (light,) = self._step(self._loop(np.array([float(together)]), bucket))
        predicted = light * self.stack.slowdowns
        return {name: (float(light[at]), float(predicted[at])) for at, name in enumerate(COMPONENTS)}

    def times(self, together: Array, bucket: Bucket) -> tuple[Array, Array, Array]:
        """Return, per concurrency: seconds per token, seconds to the first token, prefill's share of step time."""
        loop = self._loop(together, bucket)
        light, prompts = self._step(loop), COMPONENTS.index("prefill")
        token_s = light @ self.stack.slowdowns
        prefill = light[:, prompts] * self.stack.slowdowns[prompts] / token_s
        return token_s, self.stack.unqueued_first_token_s(self.work, loop), prefill

    def rates_around(self, rate: float, bucket: Bucket, together: float) -> RateCurve:
        """Return the curve of a rate, with some requests at once, over the prediction error of the steps."""
        spread, drafts = self.stack.at_lengths(bucket.input_tokens, bucket.output_tokens).spread, self.speculation
        spread = self.beyond(spread, together)
        fast, slow = spread if drafts is None else drafts.widened(spread)
        return RateCurve.through(Range(value=rate, low=rate / exp(slow), high=rate / exp(fast)))

    def _step(self, loop: LoopLoad) -> Array:
        """Return the work of one step, divided by the output tokens that each request gets in the step."""
        drafts = self.speculation
        if drafts is None:
            return self.work.roofline(loop.average())
        step = drafting_step(self.work, loop, drafts.accepted_tokens)
        return np.asarray(step / drafts.accepted_tokens * exp(drafts.log_factor))


class QueuelessScreen:
    """Estimates a replica's capacity as the largest closed-loop load at which mean times meet the SLO.

    The estimate ignores queueing, so it is optimistic near saturation; reports must say that the estimate is
    optimistic. Results are cached: a deployment is compiled once for all its lengths and for all engines with the same
    settings.
    """

    def __init__(self, efficiencies: Efficiencies) -> None:
        self.efficiencies = efficiencies
        self._works: dict[tuple[object, ...], ReplicaWork] = {}
        self._stacks: dict[tuple[object, ...], Stack] = {}
        self._compiled: dict[tuple[object, ...], CompiledSteps] = {}
        self._rooms: dict[tuple[object, ...], DeviceRoom] = {}
        self._fits: dict[tuple[object, ...], MemoryFit] = {}
        self._users: dict[tuple[str, str], float | None] = {}

    def __call__(self, option: Option, workload: WorkloadPlan) -> tuple[Capacity, ...]:
        """Return, for each length, the rate of the largest closed-loop load that meets the SLO."""
        return tuple(self.alone(option, share.bucket, workload.slo) for share in workload.shares)

    def medians(self, option: Option, workload: WorkloadPlan) -> tuple[Capacity, ...]:
        """Return the same rates without their uncertainty, which takes longer to compute than the rates."""
        return tuple(self.alone(option, share.bucket, workload.slo, uncertain=False) for share in workload.shares)

    def alone(self, option: Option, bucket: Bucket, slo: Slo, *, uncertain: bool = True) -> Capacity:
        """Return the capacity of an option for one length."""
        longest = self.memory(option.deployment, bucket.longest_tokens)
        if not longest.fits:
            return cannot(longest.obstacle.reason if longest.obstacle else "does not fit")
        found = self.highest_load(option, bucket, slo)
        if found is None:
            return cannot("misses the SLO with one request alone")
        compiled, (together, tpot_s, prefill) = self.compiled(option), found
        stack, rate = compiled.stack, together / tpot_s / bucket.output_tokens
        drafts = compiled.speculation
        return Capacity(
            curve=compiled.rates_around(rate, bucket, together)
            if uncertain
            else RateCurve(errors=(0.0,), requests_per_s=(rate,)),
            tier=stack.tier if drafts is None else drafts.tier_on(stack),
            grounds=f"{option.measured_engine}, from {' > '.join(stack.path)}; "
            + ("" if drafts is None else f"{drafts.grounds}; ")
            + f"closed loop of {together:,.0f}, no queue",
            prefill_fraction=prefill,
            measured_engine=option.measured_engine,
            software=stack.software,
        )

    def highest_load(self, option: Option, bucket: Bucket, slo: Slo) -> tuple[float, float, float] | None:
        """Return the largest closed-loop load within the SLO; None if one request alone misses it.

        The load is the number of requests; its seconds per token and prefill's share of step time follow.
        """
        together = _concurrencies(int(max(1, min(self.most_together(option, bucket), _MOST))))
        tpot_s, ttft_s, prefill = self.compiled(option).times(together, bucket)
        kept = np.flatnonzero(_within(tpot_s, ttft_s, bucket, slo))
        if not kept.size:
            return None
        best = int(kept[-1])
        return float(together[best]), float(tpot_s[best]), float(prefill[best])

    def spread_of(self, option: Option, mix: Sequence[tuple[Bucket, float]], slo: Slo, spread: Logs) -> Logs:
        """Return P10 and P90 of the error of a pool's steps, wider beyond the most requests at once ever measured."""
        loads = [(share, self.highest_load(option, bucket, slo)) for bucket, share in mix]
        together = sum(share * found[0] for share, found in loads if found is not None)
        return self.compiled(option).beyond(spread, together)

    def most_together(self, option: Option, bucket: Bucket) -> float:
        """Return how many requests of one length a replica holds at once, by its memory and the engine's limit."""
        memory = self.memory(option.deployment, bucket.context_tokens)
        cached = 0 if memory.capacity is None else memory.capacity.tokens
        return running_requests(
            cached or inf, bucket.input_tokens, bucket.output_tokens, max_requests=batch_limit(option.deployment)
        )

    def memory(self, deployment: Deployment, context_tokens: int) -> MemoryFit:
        """Return whether a replica holds the model and a request of this length."""
        key = (*_layout(deployment), context_tokens)
        if key not in self._fits:
            self._fits[key] = self._room(deployment).at(context_tokens)
        return self._fits[key]

    def _room(self, deployment: Deployment) -> DeviceRoom:
        placed = _layout(deployment)
        if placed not in self._rooms:
            self._rooms[placed] = DeviceRoom(deployment)
        return self._rooms[placed]

    def compiled(self, option: Option) -> CompiledSteps:
        """Return an option's work and the fitted stack that predicts its speed."""
        return self.compiled_on(option.deployment, option.measured_engine, option.speculation)

    def compiled_on(self, deployment: Deployment, engine: str, speculation: Speculation | None = None) -> CompiledSteps:
        """Return a deployment's work and the fitted stack that predicts its speed on an engine."""
        placed = _layout(deployment)
        if placed not in self._works:
            self._works[placed] = ReplicaWork(deployment)
        key = (*placed, engine)
        if key not in self._compiled:
            work = self._works[placed]
            stack = self._stack(key, work, drafting=speculation is not None)
            curve = drafted_curve(stack, work, engine, self.efficiencies, speculation)
            drafts = speculation if curve is None else curve.at_typical_loads()
            self._compiled[key] = CompiledSteps(
                work=work,
                stack=stack,
                speculation=drafts,
                drafted=curve,
                measured_users=self._most_users(deployment),
            )
        return self._compiled[key]

    def _most_users(self, deployment: Deployment) -> float | None:
        """Return the most requests at once that were measured, per device, times the devices of a deployment."""
        key = deployment.accelerator.id, shape_of(deployment.model)
        if key not in self._users:
            texts, users = self.efficiencies.evidence.measured.texts, self.efficiencies.evidence.cases.users
            rows = zip(texts["part"], texts["family"], texts["devices"], users, strict=True)
            each = [float(most) / float(devices) for part, family, devices, most in rows if (part, family) == key]
            self._users[key] = max(each, default=None)
        known = self._users[key]
        return None if known is None else known * deployment.parallelism.devices

    def _stack(self, key: tuple[object, ...], work: ReplicaWork, *, drafting: bool) -> Stack:
        """Return the fitted stack of a deployment; results are cached.

        Deployments with and without drafts share a fitted stack, because stacks are fitted to steps without drafts.
        They differ only if the user's own runs correct the deployment without drafts.
        """
        *plain, _, engine = key
        known = (*plain, engine, drafting and bool(self.efficiencies.corrections))
        if known not in self._stacks:
            self._stacks[known] = stack_of(work, str(engine), self.efficiencies, drafting=drafting)
        return self._stacks[known]


def _layout(deployment: Deployment) -> tuple[object, ...]:
    """Return a key that is equal for deployments with equal settings; its last entry tells whether drafts are used."""
    accelerator, model, engine = deployment.accelerator, deployment.model, deployment.engine
    plain = (model.name, model.quantisation, accelerator.id, deployment.parallelism, deployment.cache_dtype, engine)
    return (*plain, deployment.speculative)


def _concurrencies(most: int) -> Array:
    octaves = np.log2(max(1, most))
    return np.unique(np.round(2 ** np.linspace(0, octaves, max(1, int(octaves * _PER_OCTAVE)) + 1)))


def _within(tpot_s: Array, ttft_s: Array, bucket: Bucket, slo: Slo) -> NDArray[np.bool_]:
    after = bucket.output_tokens - 1
    between_s = tpot_s if after else np.full_like(tpot_s, np.nan)
    kept = slo.met(ttft_s=ttft_s, tpot_s=between_s, e2e_s=ttft_s + tpot_s * after)
    # More requests never make a step shorter: every load after the first miss misses too.
    return np.logical_and.accumulate(kept)
