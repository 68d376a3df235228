"""What would this deployment do with that workload? One run, the same run at both ends of the error, and a capacity."""

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
from penstock.workload import CountProgress, Diurnal, Workload

_MIN_ROUNDS: Final = 2
"""Requests of each user who thinks: the first is not judged."""
_ALONE: Final = 20
"""Requests that show how long an answer takes when nobody else asks."""


@dataclass(frozen=True, kw_only=True)
class SimulationQuestion:
    """What is asked of each deployment."""

    workload: Workload
    requests: int
    rate_per_s: float | None = None
    replicas: int = 1
    route: Policy = "least-requests"
    prefill_replicas: int = 0
    """Replicas that only prefill, beside the others, which then only decode."""
    kv_bytes_per_s: float | None = None
    """What one of them sends KV at; None: as the links of the machine or rack that holds them all."""
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
    """Which part of a day's curve a run saw."""

    first: float
    covered: float


def hours_covered(workload: Workload, arrival_span_s: float | None) -> HoursOfDay | None:
    """From the first arrival to the last; None where they follow no day's curve."""
    if arrival_span_s is None or not isinstance(workload.arrivals, Diurnal):
        return None
    return HoursOfDay(first=workload.arrivals.first_hour, covered=arrival_span_s / 3600)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The answer for one deployment."""

    question: SimulationQuestion
    placement: Placement
    """Of the replicas, or where prompts are computed apart, of those that decode."""
    outcome: Outcome | None
    """None where it does not fit."""
    fast: Outcome | None = None
    """The same run on a stack as much faster as the P10 of held-out errors."""
    slow: Outcome | None = None
    """The same at the P90."""
    capacity: SustainedRate | None = None
    capacity_range_per_s: Range | None = None
    prefill: Placement | None = None
    """Of the replicas that only prefill."""

    @property
    def good(self) -> bool:
        """Whether it fits and every promise is kept."""
        return self.outcome is not None and self.outcome.met

    @property
    def obstacle(self) -> DoesNotFit | None:
        """Why it does not fit, where it does not."""
        if self.prefill is None or self.prefill.memory.fits:
            return self.placement.memory.obstacle
        return self.prefill.memory.obstacle

    @property
    def hours_of_day(self) -> HoursOfDay | None:
        """From the first arrival to the last; None where they follow no day's curve."""
        return hours_covered(self.question.workload, None if self.outcome is None else self.outcome.arrival_span_s)

    def ranged(self, latency: Callable[[Outcome], Latency], fraction: float) -> Range | None:
        """Return a quantile with its P10 and P90."""
        outcomes = (self.fast, self.outcome, self.slow)
        values = [None if one is None else latency(one).quantile_s(fraction) for one in outcomes]
        low, middle, high = values
        if low is None or middle is None or high is None:
            return None
        return Range(value=middle, low=min(low, middle), high=max(high, middle))

    def first_token(self, latency: Callable[[Outcome], Latency], fraction: float) -> Range | None:
        """Return a quantile of the time to first token: the wider of the queue's interval and its own."""
        through = self.ranged(latency, fraction)
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
    """Simulate one deployment; with `prefill` it only decodes, and the price is that of a decode replica."""
    if placement.replica is None or (prefill is not None and prefill.replica is None):
        return Scenario(question=question, placement=placement, outcome=None, prefill=prefill)
    name = placement.deployment.accelerator.id
    low, high = placement.stack.spread
    runs = [_pools(placement, prefill, question, at, usd_per_hour) for at in (0.0, low, high)]
    told = [_told(progress, f"{name}: {what}", question.requests) for what in ("run", "P10", "P90")]
    outcomes = [
        _run(pools, question, step, log_steps=question.log_steps if number == 0 else 0)
        for number, (pools, step) in enumerate(zip(runs, told, strict=True))
    ]
    found: SustainedRate | None = None
    spread: Range | None = None
    if question.capacity:
        found, *ends = (_capacity(pools, question, progress, name) for pools in runs)
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


def _told(progress: StageProgress | None, what: str, total: int) -> CountProgress | None:
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
    options = spread_out(options, pools, workload)
    blocks = workload.blocks(seed=question.seed, requests=question.requests, rate_per_s=question.rate_per_s)
    return simulate(pools, blocks, classes=workload.classes, options=options, progress=told)


def require_rounds(users: int, requests: int) -> None:
    """Refuse a run that would be over before it is what it is asked about."""
    if requests < _MIN_ROUNDS * users:
        raise UsageError(
            f"{requests:,} requests are too few for {users:,} users who think: the first of each is not judged; "
            f"write --requests {_MIN_ROUNDS * users} or more"
        )


def spread_out(options: Options, pools: Sequence[ReplicaPool], workload: Workload) -> Options:
    """Let users who think begin over one round, a pause and an answer, and judge them from the second one on.

    How long an answer takes is found by a shorter run, which begins with how long it takes alone.
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
        raise ValueError("only what fits is simulated")
    if prefill is None:
        return [ReplicaPool(name=name, replica=replica, replicas=question.replicas, usd_per_hour=usd_per_hour)]
    ahead = prefill.at(log_factor)
    if ahead is None:
        raise ValueError("only what fits is simulated")
    deployed = Disaggregated(
        prefill=prefill.deployment,
        prefill_replicas=question.prefill_replicas,
        decode=placement.deployment,
        decode_replicas=question.replicas,
        kv_bytes_per_s=question.kv_bytes_per_s,
    )
    return list(disaggregated_pools(deployed, ahead, replica, name=name, usd_per_hour=usd_per_hour))
