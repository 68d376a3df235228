"""Determines the slowdowns and the first-token overhead that apply to one deployment today, with their evidence."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, cached_property, lru_cache, partial
from typing import Literal

from penstock.fleet.deployment import Deployment
from penstock.performance.calibration.benchmark_harness import Sending
from penstock.performance.calibration.efficiencies import Efficiencies, Novelty, ObservedSetups
from penstock.performance.calibration.error_summary import Logs
from penstock.performance.calibration.first_token_regression import FittedLevel, Software
from penstock.performance.calibration.first_token_waits import FIRST, configuration_of, stack_path
from penstock.performance.calibration.own_correction import OwnCorrection
from penstock.performance.similarity.blas_threads import one_thread
from penstock.performance.similarity.cases import family_of
from penstock.performance.similarity.curve import Curve, curve_of, uncertainty_of
from penstock.performance.similarity.posterior import DATED_BY, software_day
from penstock.performance.similarity.slowdowns import GRID, closed_loop_case
from penstock.performance.step.first_token import LoopLoad, first_token_work
from penstock.performance.step.prompt_queue import PromptLoop, run_prompt_loop
from penstock.performance.step.step_cost import StepCost
from penstock.performance.step.step_work import Array, ReplicaWork

Tier = Literal["measured", "interpolated", "calibrated", "transferred", "roofline"]
"""Kind of evidence behind a predicted time. `measured`: exactly this setup and load was measured. `interpolated`: other
loads of this setup were measured. `calibrated`: this model was measured on this accelerator and engine. `transferred`:
only other models, engines or accelerators were measured. `roofline`: a bound from the data sheet."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """Measured behaviour of one accelerator, engine and model together. It converts work at the roofline to time."""

    curve: Curve
    """Slowdowns, and corrections at the loads at which exactly this setup was measured."""
    request_s: float
    """Seconds of a request outside the engine's steps, before its first token."""
    first_ratio: float
    """Factor on the seconds in the queue of prompts and in the steps of the prompt. The time to first token is
    `request_s + first_ratio * seconds`."""
    spread_of: Callable[[], Logs]
    """Function that returns `spread`. It is called on first use, because few stacks of a plan need their spread."""
    first_spread: Logs
    """P10 and P90 of the ratio of measured to predicted time to first token, as logarithms."""
    tier: Tier
    novelty: Novelty
    software: Software
    """Software for which the prediction is made: the newest that was measured on the most similar setups."""
    path: tuple[str, ...]
    """Labels of the most similar measured setups, from the vendor to the most specific label."""
    seen: ObservedSetups
    """Measurements of exactly this setup."""
    correction: OwnCorrection | None = None
    """Correction by the user's own runs, which the other fields include; None if the user has not measured it."""

    @cached_property
    def spread(self) -> Logs:
        """Return P10 and P90 of the ratio of measured to predicted time per output token, as logarithms."""
        return self.spread_of()

    @property
    def slowdowns(self) -> Array:
        """Return the factor for each component of a step. `step_cost(work, slowdowns)` gives the time of a step."""
        return self.curve.slowdowns

    def with_correction(self, correction: OwnCorrection) -> "Stack":
        """Return the stack corrected by the user's own runs."""
        return replace(
            self,
            curve=self.curve.with_own_runs(correction.errors).with_slower_prompts(correction.prompt_log),
            spread_of=correction.typical_spread,
            first_spread=correction.first_spread,
            tier="calibrated",
            correction=correction,
        )

    def at_lengths(self, input_tokens: float, output_tokens: float) -> "Stack":
        """Return the stack with the spread of requests of these lengths, if the user's own runs correct the stack."""
        if self.correction is None:
            return self
        return replace(self, spread_of=partial(self.correction.typical_spread, (input_tokens, output_tokens)))

    def unqueued_first_token_s(self, work: ReplicaWork, loop: LoopLoad) -> Array:
        """Return the time to first token of a prompt that waits for no other prompt, for each number of users."""
        return self.request_s + self.first_ratio * (first_token_work(work, loop) @ self.slowdowns)

    def first_token_s(self, cost: StepCost, loop: PromptLoop, sending: Sending) -> float:
        """Return the time to first token of a closed loop in which prompts wait for prompts, in seconds."""
        sent = replace(loop, requests_per_user=sending.requests_per_user, length_spread=sending.length_spread)
        return self.request_s + self.first_ratio * _loop_first_token_s(cost, sent, sending)


@lru_cache(maxsize=4096)
def _loop_first_token_s(cost: StepCost, loop: PromptLoop, sending: Sending) -> float:
    """Return the published time to first token of a run. Predictions at several loads share the measured loads."""
    return sending.first_token_s(run_prompt_loop(cost, loop))


@one_thread()
def stack_of(work: ReplicaWork, measured_engine: str, efficiencies: Efficiencies, *, drafting: bool = False) -> Stack:
    """Look up a deployment's slowdowns in the evidence, and the first-token overhead of the nearest measured setup.

    The user's own runs correct it, except if it drafts tokens, because runs are measured without drafts.
    """
    work, _ = independent_rank(work)
    deployment = work.deployment
    seen = efficiencies.measurements_of(work, measured_engine)
    novelty = efficiencies.novelty(work, measured_engine, seen)
    wanted_path = stack_path(deployment, measured_engine)
    first_path, first = efficiencies.first.nearest(wanted_path)
    beyond = dict(zip(FIRST, first.slowdowns * _first_factor(deployment, first), strict=True))
    software = _software(work, measured_engine, efficiencies)
    curve = curve_of(efficiencies.evidence, work, measured_engine, software.date)

    @cache
    @one_thread()
    def spread() -> Logs:
        uncertainty = uncertainty_of(efficiencies.evidence, work, measured_engine, curve.own)
        return efficiencies.interval(novelty, deployment.accelerator.id, uncertainty)

    found = Stack(
        curve=curve,
        request_s=float(beyond["request_s"]),
        first_ratio=float(beyond["ratio"]),
        spread_of=spread,
        first_spread=efficiencies.first_spreads[_first_novelty(deployment, wanted_path, first_path, first)],
        tier="calibrated" if novelty in {"shape", "configuration"} else "transferred",
        novelty=novelty,
        software=software,
        path=_grounds(work, measured_engine, efficiencies),
        seen=seen,
    )
    correction = None if drafting else efficiencies.correction_of(deployment, measured_engine)
    return found if correction is None else found.with_correction(correction)


def independent_rank(work: ReplicaWork) -> tuple[ReplicaWork, int]:
    """Return the work of one independent rank of a replica, and the number of these ranks.

    The data-parallel ranks of a dense model share nothing, so each rank is looked up as a separate replica.
    """
    deployment, split = work.deployment, work.deployment.parallelism
    if split.dp == 1 or deployment.model.experts is not None:
        return work, 1
    return ReplicaWork(replace(deployment, parallelism=replace(split, dp=1))), split.dp


def _software(work: ReplicaWork, measured_engine: str, efficiencies: Efficiencies) -> Software:
    """Return the software with which a deployment is predicted. Its release is empty if it was measured on no day."""
    evidence = efficiencies.evidence
    day = date.fromordinal(
        int(software_day(evidence.cases, closed_loop_case(work, measured_engine, GRID[:1], evidence.newest)))
    )
    found = (efficiencies.measurements_of(work, measured_engine, label).software for label in DATED_BY)
    same_day = (software for software in found if software is not None and software.date == day)
    return next(same_day, Software("online", "", day))


def _grounds(work: ReplicaWork, measured_engine: str, efficiencies: Efficiencies) -> tuple[str, ...]:
    """Return the labels of the most similar measured setups, from the vendor to the most specific label.

    The result is empty if no similar setup was measured.
    """
    accelerator = work.deployment.accelerator
    for label, path in (
        ("stack", (str(accelerator.vendor), accelerator.id, measured_engine)),
        ("part", (str(accelerator.vendor), accelerator.id)),
        ("vendor", (str(accelerator.vendor),)),
    ):
        if efficiencies.measurements_of(work, measured_engine, label).rows:
            return path
    return ()


def _first_novelty(
    deployment: Deployment, wanted_path: tuple[str, ...], path: tuple[str, ...], fitted: FittedLevel
) -> Novelty:
    if len(path) < len(wanted_path):
        return "accelerator"
    if configuration_of(deployment) in fitted.factors.configuration:
        return "shape"
    return "configuration" if family_of(deployment.model) in fitted.factors.family else "model"


def _first_factor(deployment: Deployment, fitted: FittedLevel) -> float:
    """Return the first-token factor of a deployment.

    It covers the deployment's model, its exact configuration and the newest measured software.
    """
    newest = max(fitted.factors.software, key=lambda software: software.date, default=None)
    return fitted.factors.times(family_of(deployment.model), newest, configuration_of(deployment))
