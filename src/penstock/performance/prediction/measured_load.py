"""Corrects the prediction of one load by the measurements of exactly this setup, and determines its tier and interval.

At a measured load the corrected prediction equals the newest measurement. Between measured loads the correction is
interpolated. Far from them it vanishes, and the interval is as wide as for a load that was never measured.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.performance.calibration.benchmark_harness import (
    BENCHMARK,
    Sending,
    Statistic,
    prompts_first,
    schedules_ahead,
    sending_of,
)
from penstock.performance.calibration.efficiencies import Efficiencies
from penstock.performance.calibration.error_summary import Logs
from penstock.performance.prediction.serving_stack import Stack, Tier, independent_rank
from penstock.performance.similarity.blas_threads import one_thread
from penstock.performance.similarity.cases import LogLoad
from penstock.performance.similarity.curve import uncertainty_at
from penstock.performance.similarity.own_measurements import (
    FIRST_TOKEN,
    OwnMeasurements,
    Rows,
    newest_of_each_load,
)
from penstock.performance.similarity.posterior import Measured
from penstock.performance.step.drafting_step import drafting_cost
from penstock.performance.step.prompt_queue import PromptLoop
from penstock.performance.step.step_cost import step_cost
from penstock.performance.step.step_work import ReplicaWork

SAME_LENGTHS: Final = np.log2([0.89, 1.02])
"""Ratios of measured to requested token lengths that count as the same load, as base-2 logarithms. InferenceX draws its
token lengths at random, with means of 0.9 of the nominal lengths."""
_MAX_OWN_LOADS: Final = 6
"""Maximum number of measured loads whose times to first token correct the time at a load. They are the nearest ones."""
_RECENT_DAYS: Final = 92
SAME_SOFTWARE: Final = 0.15
"""Maximum difference of the log time per token of a row from the curve, for its time to first token to be used."""
MAX_UNEXPLAINED: Final = 0.5
"""Maximum share of the variance that measurements of the setup leave at a load for the tier `interpolated`."""


@dataclass(frozen=True, slots=True)
class RequestedLoad:
    """Closed loop of users with fixed token lengths."""

    users: float
    input_tokens: float
    output_tokens: float

    @property
    def logs(self) -> LogLoad:
        """Return the base-2 logarithms of users, input tokens and output tokens, as arrays with one entry."""
        users, inputs, outputs = (np.log2([value]) for value in (self.users, self.input_tokens, self.output_tokens))
        return users, inputs, outputs

    def matches(self, loads: LogLoad) -> npt.NDArray[np.bool_]:
        """Return, for each measured load, whether it is this load."""
        users, inputs, outputs = (each - asked for each, asked in zip(loads, self.logs, strict=True))
        shortest, longest = SAME_LENGTHS
        lengths = (shortest <= inputs) & (inputs <= longest) & (shortest <= outputs) & (outputs <= longest)
        return np.asarray(lengths & (np.abs(users) < 1e-6))

    def is_among(self, loads: LogLoad) -> bool:
        """Return whether one of the measured loads is this load."""
        return bool(np.any(self.matches(loads)))


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedTime:
    """Correction of a predicted time at one load, with the interval of the corrected time."""

    log_factor: float
    spread: Logs
    """P10 and P90 of measured over predicted time, as logarithms."""
    tier: Tier
    sending: Sending = BENCHMARK
    """Benchmark for which a time to first token is predicted. It states the statistic of the setup's measurements."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueuedFirstToken:
    """Time to first token of one rank in a closed loop, before measurements of its setup correct it."""

    stack: Stack
    rank: ReplicaWork
    measured_engine: str
    drafted_tokens: int = 0
    accepted_tokens: float = 1.0

    def seconds(self, load: RequestedLoad, sending: Sending) -> float:
        """Return the time to first token at a load of the rank, in a benchmark that sends its requests as given."""
        slowdowns, cost = self.stack.slowdowns, step_cost(self.rank, self.stack.slowdowns)
        if self.drafted_tokens:
            cost = drafting_cost(self.rank, slowdowns, self.drafted_tokens, self.accepted_tokens)
        loop = PromptLoop(
            users=max(1, round(load.users)),
            input_tokens=load.input_tokens,
            output_tokens=load.output_tokens,
            batched_tokens=self.rank.deployment.batched_tokens / self.accepted_tokens,
            prompts_first=prompts_first(self.measured_engine),
            schedules_ahead=schedules_ahead(self.measured_engine),
        )
        return self.stack.first_token_s(cost, loop, sending)


def time_per_token_at(
    stack: Stack, work: ReplicaWork, measured_engine: str, efficiencies: Efficiencies, load: RequestedLoad
) -> CorrectedTime:
    """Return the correction of the time per output token at a load."""
    rank, load = per_rank(work, load)
    own = stack.curve.own
    factor = float(stack.curve.correction(load.logs)[0])
    if stack.correction is not None:
        return CorrectedTime(log_factor=factor, spread=stack.correction.errors.spread(load.logs), tier=stack.tier)
    if load.is_among(own.loads):
        rows = efficiencies.rows_of(rank, measured_engine)
        day = float(efficiencies.evidence.newest.toordinal())
        spread = measured_spread(efficiencies.evidence.measured, rows, load, day, efficiencies.repeats)
        return CorrectedTime(log_factor=factor, spread=spread, tier="measured")
    asked = (load.users, load.input_tokens, load.output_tokens)
    with one_thread():
        uncertainty = uncertainty_at(efficiencies.evidence, rank, measured_engine, asked, own)
    near = stack.novelty == "shape" and float(own.unexplained_share(load.logs)[0]) <= MAX_UNEXPLAINED
    low, high = efficiencies.interval("load" if near else stack.novelty, work.deployment.accelerator.id, uncertainty)
    spread = min(low, efficiencies.repeats[0]), max(high, efficiencies.repeats[1])
    return CorrectedTime(log_factor=factor, spread=spread, tier="interpolated" if near else stack.tier)


def measured_spread(measured: Measured, rows: Rows, load: RequestedLoad, day: float, repeats: Logs) -> Logs:
    """Return the interval of a measured load: that of repetitions, widened to include other measurements of this load.

    `rows` are the measurements of the setup. The other measurements are of the same software or a little older: within
    three months, or medians over months.
    """
    cases, seconds = measured.cases, measured.answer_s
    rows = rows[load.matches(cases.take(rows).log_load)]
    newest = cases.day[rows[~cases.undated[rows]]].max(initial=0.0)
    rows = rows[cases.undated[rows] | (cases.day[rows] >= newest - _RECENT_DAYS)]
    answer = newest_of_each_load(cases, seconds, rows, day)
    others = np.log(np.concatenate([seconds[rows], measured.seconds[rows]]) / seconds[answer[0]])
    low, high = repeats
    return min(low, float(others.min())), max(high, float(others.max()))


def first_token_at(
    stack: Stack, work: ReplicaWork, measured_engine: str, efficiencies: Efficiencies, load: RequestedLoad
) -> CorrectedTime:
    """Return the correction of the time to first token at a load."""
    far = CorrectedTime(log_factor=0.0, spread=stack.first_spread, tier=stack.tier)
    if stack.correction is not None:
        return far
    rank, load = per_rank(work, load)
    evidence = efficiencies.evidence
    known = efficiencies.rows_of(rank, measured_engine)
    known = known[np.isfinite(evidence.measured.first_s[known])]
    same = np.abs(np.log(evidence.measured.seconds[known]) - stack.curve.log_seconds(evidence.cases.take(known)))
    rows = newest_first_tokens(evidence.measured, known[same <= SAME_SOFTWARE])
    times = QueuedFirstToken(stack=stack, rank=rank, measured_engine=measured_engine)
    return correct_first_token(times, evidence.measured, rows, load, far, efficiencies.first_repeats)


def newest_first_tokens(measured: Measured, rows: Rows) -> Rows:
    """Return one of `rows` per load: the newest time to first token, as a mean or as a median for all loads.

    The two statistics of one run differ by up to ten times, because a mean includes the start of the run. So rows of
    the statistic that covers more loads are used, and medians if both cover as many. Nights of slow starts happen, so
    the median over three months is taken.
    """
    users, inputs, outputs = measured.cases.take(rows).log_load
    statistics = np.array([_statistic(measured, row) for row in rows.tolist()])
    loads = np.round(np.column_stack([users, inputs, outputs]), 2)
    covered = {name: len(np.unique(loads[statistics == name], axis=0)) for name in ("median", "mean")}
    kept = rows[statistics == max(covered, key=lambda name: covered[name])]
    today = float(measured.cases.day.max(initial=0.0))
    return newest_of_each_load(measured.cases, measured.first_s, kept, today, _RECENT_DAYS)


def correct_first_token(
    times: QueuedFirstToken,
    measured: Measured,
    rows: Rows,
    load: RequestedLoad,
    far: CorrectedTime,
    repeats: Logs,
) -> CorrectedTime:
    """Correct the time to first token at a load by the measurements of the setup, `rows`.

    `far` is the correction where no measurement is near. All numbers of users are predicted for one benchmark, so the
    corrected time is continuous in the load. At lengths that were measured, or nearly so, it states the statistic of
    the measurements.
    """
    if not len(rows):
        return far
    measured_sending = replace(BENCHMARK, statistic=_statistic(measured, int(rows[0])))
    sending = measured_sending if _has_lengths(measured, rows, load) else far.sending
    apart = [each - wanted for each, wanted in zip(measured.cases.take(rows).log_load, load.logs, strict=True)]
    rows = rows[np.argsort(np.sum(np.square(apart), axis=0), kind="stable")[:_MAX_OWN_LOADS]]
    cases = measured.cases.take(rows)
    loads = [RequestedLoad(*each) for each in zip(cases.users, cases.input_tokens, cases.output_tokens, strict=True)]
    predicted = [times.seconds(each, measured_sending) for each in loads]
    own = _first_tokens(measured, rows)
    differences = own.log_seconds - np.log(np.array(predicted)) - far.log_factor
    factor = far.log_factor + float(own.interpolate(load.logs, differences)[0])
    left = float(own.unexplained_share(load.logs)[0])
    if load.is_among(own.loads):
        return CorrectedTime(log_factor=factor, spread=repeats, tier="measured", sending=sending)
    low, high = (
        float(np.sign(each) * np.hypot(each * np.sqrt(left), repeated))
        for each, repeated in zip(far.spread, repeats, strict=True)
    )
    return CorrectedTime(
        log_factor=factor,
        spread=(low, high),
        tier="interpolated" if left <= MAX_UNEXPLAINED else far.tier,
        sending=sending,
    )


def _first_tokens(measured: Measured, rows: Rows) -> OwnMeasurements:
    return OwnMeasurements(
        loads=measured.cases.take(rows).log_load,
        log_seconds=np.log(measured.first_s[rows]),
        drift=np.zeros(len(rows)),
        spread=FIRST_TOKEN,
    )


def _has_lengths(measured: Measured, rows: Rows, load: RequestedLoad) -> bool:
    """Return whether measurements say most about requests of these lengths, at any number of users."""
    own, (_, inputs, outputs) = _first_tokens(measured, rows), load.logs
    same_users = own.loads[0], np.full(len(rows), inputs[0]), np.full(len(rows), outputs[0])
    return bool(own.unexplained_share(same_users).min() <= MAX_UNEXPLAINED)


def _statistic(measured: Measured, row: int) -> Statistic:
    """Return the statistic over requests that a row's time to first token states."""
    return sending_of(measured.texts["source"][row], measured.cases.input_tokens[row]).statistic


def per_rank(work: ReplicaWork, load: RequestedLoad) -> tuple[ReplicaWork, RequestedLoad]:
    """Return the work and the load of one independent rank of a replica."""
    rank, ranks = independent_rank(work)
    return rank, RequestedLoad(load.users / ranks, load.input_tokens, load.output_tokens)
