"""Simulates a deployment under a workload: one run, the same run at the P10 and P90 of step times, and a capacity."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp
from typing import Final

from penstock.errors import UsageError
from penstock.fleet.disaggregated_replica import Disaggregated
from penstock.performance.memory.budget import DoesNotFit
from penstock.performance.prediction.predict_deployment import Range
from penstock.simulation.capacity import SustainedRate, capacity, require_searchable
from penstock.simulation.outcome import Latency, Outcome
from penstock.simulation.placement import Placement, disaggregated_pools
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options, Policy, StageProgress
from penstock.workload import CountProgress, Diurnal, Fixed, Workload, vary_answers

_MIN_ROUNDS: Final = 2
"""Minimum requests per user with think time. The first request of each user is not compared with the SLO."""
_VARIED: Final = 10_000
"""Number of different requests in a search for capacity if all requests are stated to be equally long."""
_ALONE: Final = 20
"""Number of requests in the run that measures end-to-end time with one request at a time."""


@dataclass(frozen=True, kw_only=True)
class SimulationQuestion:
    """A simulation to run on each deployment."""

    workload: Workload
    requests: int
    rate_per_s: float | None = None
    replicas: int = 1
    route: Policy = "least-requests"
    prefill_replicas: int = 0
    """Replicas that only prefill. If this number is above 0, the other replicas only decode."""
    kv_bytes_per_s: float | None = None
    """KV bandwidth of one prefill replica in bytes/s.

    None uses the links of the machine or rack that holds all replicas.
    """
    capacity: bool = False
    seed: int = 0
    log_steps: int = 0

    def __post_init__(self) -> None:
        if self.capacity:
            require_searchable(self.workload, self.workload.classes)
        if self.workload.users is not None and self.workload.think_s:
            require_rounds(self.workload.users, self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoursOfDay:
    """The part of the daily load curve that a run covered, in hours."""

    first: float
    covered: float


def hours_covered(workload: Workload, arrival_span_s: float | None) -> HoursOfDay | None:
    """Return the hours between the first and last arrival, or None if the arrivals follow no daily curve."""
    if arrival_span_s is None or not isinstance(workload.arrivals, Diurnal):
        return None
    return HoursOfDay(first=workload.arrivals.first_hour, covered=arrival_span_s / 3600)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The result for one deployment."""

    question: SimulationQuestion
    placement: Placement
    """Placement of the replicas. If prefill is disaggregated, this is the placement of the decode replicas."""
    outcome: Outcome | None
    """The run at the predicted step times, or None if the model does not fit in memory."""
    fast: Outcome | None = None
    """The same run with step times scaled to the P10 of the held-out errors."""
    slow: Outcome | None = None
    """The same run with step times scaled to the P90 of the held-out errors."""
    capacity: SustainedRate | None = None
    capacity_range_per_s: Range | None = None
    prefill: Placement | None = None
    """Placement of the prefill-only replicas."""

    @property
    def good(self) -> bool:
        """Whether the deployment fits in memory and meets every SLO."""
        return self.outcome is not None and self.outcome.met

    @property
    def obstacle(self) -> DoesNotFit | None:
        """The reason why the deployment does not fit in memory, or None if it fits."""
        if self.prefill is None or self.prefill.memory.fits:
            return self.placement.memory.obstacle
        return self.prefill.memory.obstacle

    @property
    def hours_of_day(self) -> HoursOfDay | None:
        """The hours between the first and last arrival, or None if the arrivals follow no daily curve."""
        return hours_covered(self.question.workload, None if self.outcome is None else self.outcome.arrival_span_s)

    @property
    def usd_per_output_mtok_at_capacity(self) -> float | None:
        """Rent per million output tokens at the highest rate that meets the SLO. None if no rate does or is known."""
        if self.capacity is None or not self.capacity.rate_per_s:
            return None
        return self.capacity.outcome.usd_per_output_mtok

    def quantile_range(self, latency: Callable[[Outcome], Latency], fraction: float) -> Range | None:
        """Return a latency quantile with its P10 and P90, in seconds."""
        outcomes = (self.fast, self.outcome, self.slow)
        values = [None if one is None else latency(one).quantile_s(fraction) for one in outcomes]
        low, middle, high = values
        if low is None or middle is None or high is None:
            return None
        return Range(value=middle, low=min(low, middle), high=max(high, middle))

    def first_token(self, latency: Callable[[Outcome], Latency], fraction: float) -> Range | None:
        """Return a TTFT quantile in seconds.

        The range of the quantile covers the range of the simulated runs and the range of the stack's own TTFT error.
        """
        through = self.quantile_range(latency, fraction)
        if through is None:
            return None
        low, high = (exp(log) * through.value for log in self.placement.stack.first_spread)
        return Range(value=through.value, low=min(low, through.low), high=max(high, through.high))


def run_scenario(
    placement: Placement,
    question: SimulationQuestion,
    *,
    usd_per_hour: float | None,
    prefill: Placement | None = None,
    progress: StageProgress | None = None,
) -> Scenario:
    """Simulate one deployment.

    If `prefill` is given, the replicas of `placement` only decode, and `usd_per_hour` is the price of a decode replica.
    """
    if placement.replica is None or (prefill is not None and prefill.replica is None):
        return Scenario(question=question, placement=placement, outcome=None, prefill=prefill)
    name = placement.deployment.accelerator.id
    low, high = placement.stack.spread
    runs = [_pools(placement, prefill, question, at, usd_per_hour) for at in (0.0, low, high)]
    told = [_stage_progress(progress, f"{name}: {what}", question.requests) for what in ("run", "P10", "P90")]
    outcomes = [
        _run(pools, question, step, log_steps=question.log_steps if number == 0 else 0)
        for number, (pools, step) in enumerate(zip(runs, told, strict=True))
    ]
    found: SustainedRate | None = None
    spread: Range | None = None
    if question.capacity:
        varied = replace(question, workload=_with_varied_answers(question.workload, placement))
        found, *ends = (_capacity(pools, varied, progress, name) for pools in runs)
        rates = sorted([found.rate_per_s, *(end.rate_per_s for end in ends)])
        spread = Range(value=found.rate_per_s, low=rates[0], high=rates[-1])
    return Scenario(
        question=question,
        placement=placement,
        outcome=outcomes[0],
        fast=outcomes[1],
        slow=outcomes[2],
        capacity=found,
        capacity_range_per_s=spread,
        prefill=prefill,
    )


def _stage_progress(progress: StageProgress | None, what: str, total: int) -> CountProgress | None:
    return None if progress is None else lambda done: progress(what, done, total)


def _run(
    pools: list[ReplicaPool], question: SimulationQuestion, told: CountProgress | None, *, log_steps: int
) -> Outcome:
    workload = question.workload
    options = Options(
        route=question.route,
        users=workload.users,
        think_s=workload.think_s,
        seed=question.seed,
        log_steps=log_steps,
    )
    options = stagger_users(options, pools, workload)
    blocks = workload.blocks(seed=question.seed, requests=question.requests, rate_per_s=question.rate_per_s)
    return simulate(pools, blocks, classes=workload.classes, options=options, progress=told)


def require_rounds(users: int, requests: int) -> None:
    """Raise UsageError if a run is too short for users with think time."""
    if requests < _MIN_ROUNDS * users:
        raise UsageError(
            f"{requests:,} requests are too few for {users:,} users with think time: "
            f"the first request of each user is not compared with the SLO; "
            f"write --requests {_MIN_ROUNDS * users} or more"
        )


def stagger_users(options: Options, pools: Sequence[ReplicaPool], workload: Workload) -> Options:
    """Stagger the start of users with think time over one round.

    Requests are compared with the SLO from each user's second request on. A round is the think time plus the mean
    end-to-end time, which a shorter run measures. In the shorter run, users are staggered over the think time plus the
    end-to-end time of requests that are served one at a time.
    """
    users, think_s = options.users, options.think_s
    if users is None or not think_s:
        return options
    answer_s = 0.0
    for tried, requests in ((replace(options, users=1, think_s=0.0), _ALONE), (options, 2 * users)):
        warm_up = 0 if tried.users == 1 else users
        short = replace(tried, spread_s=think_s + answer_s, warm_up=warm_up, log_steps=0)
        blocks = workload.blocks(seed=options.seed, requests=requests)
        answer_s = _answer_s(simulate(pools, blocks, options=short)) or answer_s
    return replace(options, spread_s=think_s + answer_s, warm_up=users)


def _answer_s(outcome: Outcome) -> float | None:
    return outcome.classes[0].e2e.mean_s


def _capacity(
    pools: list[ReplicaPool], question: SimulationQuestion, progress: StageProgress | None, name: str
) -> SustainedRate:
    trials = 12
    told = None if progress is None else partial(_tell_trials, progress, f"{name}: capacity", trials)
    return capacity(
        pools,
        question.workload,
        classes=question.workload.classes,
        requests=None,
        seed=question.seed,
        options=Options(route=question.route),
        progress=told,
    )


def _with_varied_answers(workload: Workload, placement: Placement) -> Workload:
    """Return the workload whose capacity is searched. As in plans, answers of one length vary around this length."""
    lengths = workload.lengths
    if not isinstance(lengths, Fixed):
        return workload
    limit = placement.deployment.model.max_context_tokens
    varied = vary_answers(lengths.input_tokens, lengths.output_tokens, _VARIED, context_tokens=limit)
    return replace(workload, lengths=varied)


def _tell_trials(progress: StageProgress, what: str, total: int, done: int) -> None:
    progress(what, min(done, total), total)


def _pools(
    placement: Placement,
    prefill: Placement | None,
    question: SimulationQuestion,
    log_factor: float,
    usd_per_hour: float | None,
) -> list[ReplicaPool]:
    replica, name = placement.at(log_factor), placement.deployment.accelerator.id
    if replica is None:
        raise ValueError("the deployment does not fit in memory, so it cannot be simulated")
    if prefill is None:
        return [ReplicaPool(name=name, replica=replica, replicas=question.replicas, usd_per_hour=usd_per_hour)]
    ahead = prefill.at(log_factor)
    if ahead is None:
        raise ValueError("the deployment does not fit in memory, so it cannot be simulated")
    deployed = Disaggregated(
        prefill=prefill.deployment,
        prefill_replicas=question.prefill_replicas,
        decode=placement.deployment,
        decode_replicas=question.replicas,
        kv_bytes_per_s=question.kv_bytes_per_s,
    )
    return list(disaggregated_pools(deployed, ahead, replica, name=name, usd_per_hour=usd_per_hour))
