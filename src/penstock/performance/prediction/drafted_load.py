"""Predicts the times of a deployment with drafts at one load, with their tier and interval.

The step model gives a first value. Similar runs with drafts correct it. At loads at which exactly this setup was
measured with these drafts, the answer is the newest measurement, by the same rules as without drafts.
"""

from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property

import numpy as np

from penstock.performance.calibration.efficiencies import Efficiencies
from penstock.performance.calibration.error_summary import Logs
from penstock.performance.prediction.measured_load import (
    MAX_UNEXPLAINED,
    SAME_SOFTWARE,
    CorrectedTime,
    QueuedFirstToken,
    RequestedLoad,
    correct_first_token,
    measured_spread,
    newest_first_tokens,
)
from penstock.performance.prediction.serving_stack import Stack, independent_rank
from penstock.performance.prediction.speculation import Speculation
from penstock.performance.similarity.blas_threads import one_thread
from penstock.performance.similarity.cases import WORDS, Cases, LogLoad, hash_strings, labels_of_run
from penstock.performance.similarity.curve import DOUBLINGS
from penstock.performance.similarity.draft_evidence import DraftEvidence
from penstock.performance.similarity.own_measurements import OwnMeasurements, Rows, is_current, newest_of_each_load
from penstock.performance.similarity.posterior import last_measured
from penstock.performance.similarity.slowdowns import CENTRE, DIGITS, GRID, Loads
from penstock.performance.step.first_token import LoopLoad
from penstock.performance.step.step_work import Array, ReplicaWork

_CURVE = 3
"""Minimum number of measured loads between which a time is interpolated."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DraftedCurve:
    """Times of one deployment with drafts at every load."""

    evidence: DraftEvidence
    drafts: Speculation
    stack: Stack
    rank: ReplicaWork
    """One independent rank of the replica."""
    measured_engine: str

    def cases(self, loads: Loads) -> Cases:
        """Describe closed-loop runs with drafts in the same form as measured runs, with the last measured software."""
        asked = _drafted_cases(self.rank, self.measured_engine, self.drafts, loads)
        return last_measured(self.evidence.cases, asked)

    def log_seconds(self, asked: Cases) -> Array:
        """Return the log time per token of each run, before the setup's own measurements correct it."""
        return self._log_seconds(asked, acceptance_known=self._measurements_tell_acceptance)

    def _log_seconds(self, asked: Cases, *, acceptance_known: bool) -> Array:
        shift = self.evidence.shift(asked, acceptance_known=acceptance_known)
        return np.asarray(np.log(asked.roofline @ self.stack.slowdowns) + shift)

    @cached_property
    def rows(self) -> Rows:
        """Return the measured rows of exactly this setup with these drafts."""
        return self.evidence.rows_of(_drafted_cases(self.rank, self.measured_engine, self.drafts, (GRID[0],)))

    @cached_property
    def _as_measured(self) -> "DraftedCurve":
        """Return the curve of these drafts with the acceptance of measured runs."""
        return replace(self, drafts=self.drafts.as_expected) if self.drafts.acceptance_given else self

    @cached_property
    def _every(self) -> OwnMeasurements:
        """Return the measurements of this setup that newer software has not outdated, with any acceptance."""
        measured = self.evidence.measured
        day = float(measured.cases.day.max())
        newest = newest_of_each_load(measured.cases, measured.answer_s, self.rows, day)
        then, log_seconds = measured.cases.take(newest), np.log(measured.answer_s[newest])
        if not len(newest):
            return OwnMeasurements(loads=then.log_load, log_seconds=log_seconds, drift=log_seconds)
        drift = self.evidence.shift(then) - self.evidence.shift(self._as_measured.cases(_loads_of(then.log_load)))
        every = OwnMeasurements(loads=then.log_load, log_seconds=log_seconds, drift=np.asarray(drift))
        return every.take(is_current(every.drift, then.undated))

    @cached_property
    def _measurements_tell_acceptance(self) -> bool:
        """Return whether an acceptance between none and all of the drafts explains what was measured of this model.

        The acceptance of measured runs is not published. If it may explain their times, they say nothing about the
        time of a step, and the stated acceptance is the better one. What no acceptance explains is of the setup, with
        any acceptance. False if no acceptance is stated.
        """
        if not self.drafts.acceptance_given:
            return False
        known = len(self._every) > 0
        loads = _loads_of(self._every.loads) if known else tuple(GRID[number] for number in CENTRE)
        log_seconds = (
            self._every.log_seconds if known else self._as_measured.log_seconds(self._as_measured.cases(loads))
        )
        fastest, slowest = (
            self._log_seconds(
                replace(self, drafts=replace(self.drafts, accepted_tokens=tokens)).cases(loads), acceptance_known=True
            )
            for tokens in (self.drafts.drafted_tokens + 1.0, 1.0)
        )
        return bool(np.mean((fastest <= log_seconds) & (log_seconds <= slowest)) >= 0.5)

    @cached_property
    def _own(self) -> tuple[OwnMeasurements, Array]:
        """Return the measurements of this setup, and the difference of each from the prediction."""
        own = self._every
        if self._measurements_tell_acceptance:
            own = own.take(np.zeros(len(own), np.bool_))
        if not len(own):
            return own, own.log_seconds
        predicted = self.log_seconds(self._as_measured.cases(_loads_of(own.loads)))
        return own, np.asarray(own.log_seconds - predicted)

    @property
    def own(self) -> OwnMeasurements:
        """Return the measurements of exactly this setup with these drafts, one per load."""
        return self._own[0]

    def log_factors(self, loads: Loads) -> Array:
        """Return the logarithm of the predicted time over that of the step model, at each load."""
        asked = self.cases(loads)
        model = np.log(asked.roofline @ self.stack.slowdowns)
        return np.asarray(self.log_seconds(asked) - model + self.own.interpolate(asked.log_load, self._own[1]))

    def factors_by_users(self, input_tokens: float, output_tokens: float, log_factor: float) -> tuple[float, ...]:
        """Return the factor with 1, 2, 4 and more users, up to 16,384, divided by a factor for all loads.

        `log_factor` is the logarithm of the factor for all loads.
        """
        loads = tuple((float(users), input_tokens, output_tokens) for users in 2**DOUBLINGS)
        return tuple(np.round(np.exp(self.log_factors(loads) - log_factor), DIGITS).tolist())

    def spread(self, loads: Loads, *, near: bool) -> Logs:
        """Return P10 and P90 of the error of the gain from drafts, as logarithms, averaged over loads."""
        deviation = float(np.sqrt(np.mean(self.evidence.spread(self.cases(loads)) ** 2)))
        low, high = self.evidence.intervals["load" if near else "setup"]
        return low * deviation, high * deviation

    def time_per_token_at(self, load: RequestedLoad, plain: CorrectedTime, repeats: Logs) -> CorrectedTime:
        """Return the correction of the step model's time at a load of one rank.

        `plain` is the correction of the time without drafts. Its uncertainty counts where no measurement with drafts is
        near.
        """
        asked = ((load.users, load.input_tokens, load.output_tokens),)
        factor = float(self.log_factors(asked)[0])
        if load.is_among(self.own.loads) and not self.drafts.acceptance_given:
            day = float(self.evidence.cases.day.max())
            spread = measured_spread(self.evidence.measured, self.rows, load, day, repeats)
            return CorrectedTime(log_factor=factor, spread=spread, tier="measured")
        left = float(self.own.unexplained_share(load.logs)[0])
        near = len(self.own) >= _CURVE and left <= MAX_UNEXPLAINED
        gain = self.spread(asked, near=near)
        low, high = (float(np.hypot(a * np.sqrt(left), b)) for a, b in zip(plain.spread, gain, strict=True))
        spread = min(-low, repeats[0]), max(high, repeats[1])
        tier = "interpolated" if near else self.drafts.tier_on(self.stack)
        return CorrectedTime(log_factor=factor, spread=spread, tier=tier)

    def with_factor_of(self, at: CorrectedTime, load: RequestedLoad) -> Speculation:
        """Return the speculative decoding with the factor and the uncertainty of its steps at a load."""
        asked = ((load.users, load.input_tokens, load.output_tokens),)
        spread = self.spread(asked, near=at.tier in {"measured", "interpolated"})
        return replace(self.drafts, log_factor=at.log_factor, spread=spread)

    @one_thread()
    def at_typical_loads(self) -> Speculation:
        """Return the speculative decoding with the factor and the uncertainty of its steps at typical loads."""
        loads = tuple(GRID[number] for number in CENTRE)
        spread = self.spread(loads, near=len(self.own) >= _CURVE)
        return replace(self.drafts, log_factor=float(np.mean(self.log_factors(loads))), spread=spread)

    def first_token_at(self, load: RequestedLoad, plain: CorrectedTime, repeats: Logs) -> CorrectedTime:
        """Return the correction of the time to first token at a load of one rank.

        Accepted tokens change it little, so that a stated acceptance leaves the correction as it is.
        """
        if self.drafts.acceptance_given:
            usual = self._as_measured.first_token_at(load, plain, repeats)
            return replace(usual, tier="interpolated") if usual.tier == "measured" else usual
        measured = self.evidence.measured
        known = self.rows[np.isfinite(measured.first_s[self.rows])]
        then = measured.cases.take(known)
        if len(known):
            loads = tuple(zip(then.users, then.input_tokens, then.output_tokens, strict=True))
            asked = self.cases(loads)
            now = self.log_seconds(asked) + self.own.interpolate(asked.log_load, self._own[1])
            known = known[np.abs(np.log(measured.seconds[known]) - now) <= SAME_SOFTWARE]
        newest = newest_first_tokens(measured, known)
        times = QueuedFirstToken(
            stack=self.stack,
            rank=self.rank,
            measured_engine=self.measured_engine,
            drafted_tokens=self.drafts.drafted_tokens,
            accepted_tokens=self.drafts.accepted_tokens,
        )
        return correct_first_token(times, measured, newest, load, plain, repeats)


def drafted_curve(
    stack: Stack,
    work: ReplicaWork,
    measured_engine: str,
    efficiencies: Efficiencies | None,
    drafts: Speculation | None,
) -> DraftedCurve | None:
    """Return the times of a deployment with drafts. None if measured runs with drafts say nothing about these drafts.

    That is the case if the drafter is not the one of the measured runs.
    """
    if drafts is None or not drafts.label or efficiencies is None or efficiencies.drafted is None:
        return None
    return DraftedCurve(
        evidence=efficiencies.drafted,
        drafts=drafts,
        stack=stack,
        rank=independent_rank(work)[0],
        measured_engine=measured_engine,
    )


def _loads_of(logs: LogLoad) -> Loads:
    return tuple(zip(*(np.exp2(each).tolist() for each in logs), strict=True))


def _drafted_cases(rank: ReplicaWork, engine: str, drafts: Speculation, loads: Loads) -> Cases:
    words = labels_of_run(rank.deployment, engine, drafts.label)
    users, inputs, outputs = (np.array(values, np.float64) for values in zip(*loads, strict=True))
    loops = (
        LoopLoad(
            users=np.array([each[0]]),
            input_tokens=each[1],
            output_tokens=each[2],
            batched_tokens=rank.deployment.batched_tokens,
            drafted_tokens=drafts.drafted_tokens,
        )
        for each in loads
    )
    return Cases(
        roofline=np.array([drafts.roofline(rank, loop) for loop in loops]),
        words={word: np.repeat(hash_strings([words[word]]), len(users)) for word in WORDS},
        users=users,
        input_tokens=inputs,
        output_tokens=outputs,
        day=np.full(len(users), float(date.max.toordinal())),
        undated=np.zeros(len(users), np.bool_),
        source_noise=np.zeros(len(users)),
    )
