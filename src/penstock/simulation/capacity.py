"""Searches for a fleet's capacity: the highest request rate that meets its SLOs, to within half a percent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf, sqrt
from typing import Final

import numpy as np

from penstock.errors import UsageError
from penstock.simulation.judged_classes import JudgedClass, judge_classes, slowdown_limit
from penstock.simulation.outcome import Outcome
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options
from penstock.workload import Conversations, CountProgress, Gamma, Poisson, Requests, SloClass, Workload
from penstock.workload.randomness import NATIVE_BLOCK

_TOLERANCE: Final = 0.005
_TRIALS: Final = 24
MIN_SHARE: Final = 2.0**-12
"""Share of the saturated throughput at which the search stops, and reports that no rate meets the SLO."""
_ONE_REPLICA, _MIN_REQUESTS, _MAX_REQUESTS = 60_000, 16_000, 200_000
"""Requests per trial: the number for one replica, the minimum, and the maximum.

For one replica, this number of requests makes the capacities from two seeds differ by about 1%. Replicas behind one
router share their bursts, so a larger fleet needs fewer requests.
"""
_LIFETIMES: Final = 12
"""Minimum duration of a trial, as a multiple of the time that a request is in flight.

The warm-up is then a small part of the trial.
"""
WARM_UP: Final = 0.1
"""Share of a trial at its start whose requests are served but not compared with the SLO, because queues start empty."""
_ANSWERS: Final = 4000
"""Number of requests sampled to estimate how long a request is in flight."""
_ROUNDS: Final = 6
"""Requests per batch slot in a closed-loop run. With this many, the start and the end of the run have little weight."""
FIRST_STEP, _CLOSEST = 1.08, 0.15


@dataclass(frozen=True, kw_only=True)
class SustainedRate:
    """The highest rate that a fleet sustains."""

    rate_per_s: float
    """Requests per second; 0 if the SLO is missed even at the lowest rate tried."""
    saturated_rate_per_s: float
    """Throughput in requests per second if requests always wait in the queue and no SLO applies.

    No rate with an SLO is higher.
    """
    outcome: Outcome
    """Outcome of the run at `rate_per_s`, or at the lowest rate tried if no rate meets the SLO."""
    requests: int
    """Requests simulated per trial."""
    trials: int


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One simulated run at one request rate."""

    rate_per_s: float
    """Rate of the randomly drawn arrivals, which differs slightly from the target rate `asked_per_s`."""
    asked_per_s: float
    requests: int
    attained_fraction: float
    """Share of requests that met their SLO, in the class with the smallest margin to its target.

    Requests that arrive in the warm-up are not compared with their SLO. Refused, oversized and lost requests count as
    misses.
    """
    spare_fraction: float
    """Smallest margin of any class: its attained fraction minus its target fraction.

    Negative if the class misses its target.
    """
    slowdown_limit: float | None
    """Largest factor by which every step and the time between arrivals may grow so that every SLO is still met.

    None if the factor cannot be computed from this run (see `slowdown_limit`).
    """
    saturated: bool
    """Whether the queue kept growing."""
    oversized: int
    """Number of requests that no replica could hold."""
    outcome: Outcome | None
    """None in a trial that was kept without the times of its requests."""

    @property
    def met(self) -> bool:
        """Whether every SLO is met and the fleet keeps up with the arrivals.

        Refused, oversized and lost requests count as misses.
        """
        return self.spare_fraction >= 0 and not self.saturated


@dataclass(frozen=True, kw_only=True)
class RateSearch:
    """The inputs of a rate search: the workload, its SLO classes, and the run options."""

    workload: Workload
    classes: Sequence[SloClass]
    seed: int = 0
    requests: int | None = None
    """Requests per trial. If None, the search uses a number that makes the result accurate to about 1%."""
    options: Options = field(default_factory=Options)
    tolerance: float = _TOLERANCE
    """Maximum relative distance from the returned rate to a higher rate that misses an SLO."""


def capacity(
    pools: Sequence[ReplicaPool],
    workload: Workload,
    *,
    classes: Sequence[SloClass],
    requests: int | None = None,
    seed: int = 0,
    options: Options | None = None,
    progress: CountProgress | None = None,
) -> SustainedRate:
    """Find the highest rate that meets the SLOs.

    The search starts at the fleet's saturated throughput, to which no SLO applies.
    """
    require_searchable(workload, classes)
    asked = RateSearch(workload=workload, classes=classes, seed=seed, requests=requests, options=options or Options())
    ceiling = _saturated_rate(pools, asked)
    best, tried = highest_rate(pools, asked, begin_per_s=ceiling, progress=progress)
    outcome = (best or min(tried, key=lambda entry: entry.rate_per_s)).outcome
    if outcome is None:
        raise ValueError("a trial that was run has an outcome")
    return SustainedRate(
        rate_per_s=0.0 if best is None else best.rate_per_s,
        saturated_rate_per_s=ceiling if best is None else max(ceiling, best.rate_per_s),
        outcome=outcome,
        requests=tried[0].requests,
        trials=len(tried),
    )


def highest_rate(
    pools: Sequence[ReplicaPool],
    asked: RateSearch,
    *,
    begin_per_s: float,
    first_step: float = FIRST_STEP,
    known: Sequence[Trial] = (),
    run: Callable[[float], Trial] | None = None,
    progress: CountProgress | None = None,
) -> tuple[Trial | None, list[Trial]]:
    """Return the trial with the highest rate that meets the SLOs, or None, and all trials that were run.

    Trials in `known` are not repeated. `run` returns the trial at a rate; if it is None, the trial is simulated. All
    trials of all fleets have the same requests and differ only in the arrival rate, so differences between fleets are
    not due to chance. The search tries the rate `begin_per_s`, and then changes the rate by the factor `first_step`.
    Each further step squares the factor.
    """
    tried: list[Trial] = []
    requests = asked.requests or requests_for(pools, asked, begin_per_s)

    def attempt(rate_per_s: float) -> Trial:
        tried.append(trial(pools, asked, rate_per_s, requests=requests) if run is None else run(rate_per_s))
        if progress is not None:
            progress(len(tried))
        return tried[-1]

    return _search(attempt, begin_per_s, first_step, asked.tolerance, known), tried


def requests_for(pools: Sequence[ReplicaPool], asked: RateSearch, rate_per_s: float) -> int:
    """Return the requests per trial that make a capacity near `rate_per_s` accurate to about 1%."""
    replicas = sum(pool.replicas for pool in pools if pool.role != "prefill")
    lasting = _LIFETIMES * _lifetime_s(asked.workload, tuple(asked.classes), asked.seed) * rate_per_s
    return round(min(_MAX_REQUESTS, max(_MIN_REQUESTS, _ONE_REPLICA / sqrt(replicas), lasting)))


def arrivals_per_request(asked: RateSearch, requests: int) -> float:
    """Return the ratio of the randomly drawn to the target arrival rate, for a number of requests.

    The ratio is the same at every target rate.
    """
    if not isinstance(asked.workload.arrivals, Poisson | Gamma):
        return 1.0
    blocks = _drawn_at_one_per_s(asked.workload, asked.seed, requests)
    return (requests - 1) / float(blocks[-1].arrival_s[-1] - blocks[0].arrival_s[0])


def requests_at(asked: RateSearch, requests: int, rate_per_s: float) -> list[Requests]:
    """Return the requests of a trial, which are drawn once for all trials of a search.

    Only the arrival times depend on the rate, unless arrivals are recorded or users send several turns.
    """
    workload, seed = asked.workload, asked.seed
    if not isinstance(workload.arrivals, Poisson | Gamma) or isinstance(workload.sharing, Conversations):
        return list(workload.blocks(seed=seed, requests=requests, rate_per_s=rate_per_s))
    return [block.at(block.arrival_s / rate_per_s) for block in _drawn_at_one_per_s(workload, seed, requests)]


def _drawn_at_one_per_s(workload: Workload, seed: int, requests: int) -> list[Requests]:
    *whole, last = _native_blocks(workload, seed, -(-requests // NATIVE_BLOCK))
    return [*whole, last.rows(0, requests - NATIVE_BLOCK * len(whole))]


@lru_cache(maxsize=8)
def _native_blocks(workload: Workload, seed: int, count: int) -> tuple[Requests, ...]:
    return tuple(workload.blocks(seed=seed, requests=count * NATIVE_BLOCK, rate_per_s=1.0))


def trial(pools: Sequence[ReplicaPool], asked: RateSearch, rate_per_s: float, *, requests: int) -> Trial:
    """Run a workload at one rate, and compare the requests after the warm-up with their SLOs."""
    workload, classes = asked.workload, asked.classes
    blocks = requests_at(asked, requests, rate_per_s)
    outcome = simulate(pools, blocks, classes=classes, options=replace(asked.options, keep_requests=True))
    judged = judge_classes(outcome, blocks, classes, warm_up=WARM_UP)
    attained, spare = _worst_class(judged)
    span_s = outcome.arrival_span_s
    # Chance makes the same number of requests arrive faster or slower: the drawn rate is the sustained one.
    steady = isinstance(workload.arrivals, Poisson | Gamma) and span_s > 0 and outcome.saturation is None
    return Trial(
        rate_per_s=(requests - 1) / span_s if steady else rate_per_s,
        asked_per_s=rate_per_s,
        requests=requests,
        attained_fraction=attained,
        spare_fraction=spare,
        slowdown_limit=0.0 if judged is None else slowdown_limit(judged, pools, asked.options),
        saturated=outcome.saturation is not None,
        oversized=outcome.oversized,
        outcome=outcome,
    )


def require_searchable(workload: Workload, classes: Sequence[SloClass]) -> None:
    """Raise UsageError if the workload is a closed loop or no class has an SLO."""
    if workload.users is not None:
        raise UsageError(
            "the users of a closed loop decide its request rate, so no rate can be searched; "
            "use a workload with arrivals instead"
        )
    if not any(item.slo for item in classes):
        raise UsageError(
            "a capacity is the highest rate at which an SLO is met; give an SLO, such as ttft=1s,tpot=50ms"
        )


def _search(
    attempt: Callable[[float], Trial], begin: float, step: float, tolerance: float, known: Sequence[Trial] = ()
) -> Trial | None:
    """Try rates further and further away until one rate meets the SLOs and another misses them.

    Then narrow the range between these two rates.
    """
    held, missed = _ends(known)
    for _ in range(_TRIALS):
        low, high = 0.0 if held is None else held.asked_per_s, inf if missed is None else missed.asked_per_s
        if high < MIN_SHARE * begin or low >= (1 - tolerance) * high:
            break
        if held is not None and missed is not None:
            rate = low + (high - low) * _place_between(held, missed)
        elif low < begin < high:
            rate = begin
        else:
            rate = low * step if missed is None else high / step
            step **= 2
        found = attempt(rate)
        held, missed = (found, missed) if found.met else (held, found)
    return held


def _ends(known: Sequence[Trial]) -> tuple[Trial | None, Trial | None]:
    """Return the known trials with the highest rate that meets the SLOs and with the lowest rate that misses them.

    By chance, the rate that meets the SLOs may be above the rate that misses them. In this case, return None for both.
    """
    held = max((entry for entry in known if entry.met), key=lambda entry: entry.asked_per_s, default=None)
    missed = min((entry for entry in known if not entry.met), key=lambda entry: entry.asked_per_s, default=None)
    crossed = held is not None and missed is not None and held.asked_per_s >= missed.asked_per_s
    return (None, None) if crossed else (held, missed)


def _place_between(held: Trial, missed: Trial) -> float:
    """Estimate the rate at which attainment crosses its target, as a fraction of the distance from `held` to `missed`.

    Return 0.5 if the miss is due to a growing queue.
    """
    if missed.saturated or missed.spare_fraction >= 0:
        return 0.5
    return min(1 - _CLOSEST, max(_CLOSEST, held.spare_fraction / (held.spare_fraction - missed.spare_fraction)))


def _worst_class(judged: Sequence[JudgedClass] | None) -> tuple[float, float]:
    """Return the attainment of the class with the smallest margin to its target, and this margin."""
    if judged is None:
        return 0.0, -1.0
    found = [(each.attained_fraction, each.slo.attainment_fraction) for each in judged]
    return min(((attained, attained - target) for attained, target in found), key=lambda e: e[1], default=(1.0, inf))


@lru_cache(maxsize=64)
def _lifetime_s(workload: Workload, classes: tuple[SloClass, ...], seed: int) -> float:
    """Return the longest time, in seconds, that the SLOs allow a request to be in flight; 0 if no SLO limits this time.

    The answer length is averaged with the length itself as weight, because longer answers are in flight for longer.
    """
    block = next(workload.blocks(seed=seed, requests=_ANSWERS, rate_per_s=1.0))
    answers = block.output_tokens.astype(np.float64)
    under_way = float(np.dot(answers, answers) / answers.sum())
    limits = []
    for item in classes:
        slo = item.slo
        if slo is not None:
            by_token = inf if slo.tpot_s is None else (slo.ttft_s or 0.0) + slo.tpot_s * under_way
            limits.append(min(by_token, inf if slo.e2e_s is None else slo.e2e_s))
    return max((limit for limit in limits if limit < inf), default=0.0)


def _saturated_rate(pools: Sequence[ReplicaPool], asked: RateSearch) -> float:
    """Return the throughput of a closed-loop run. With twice as many users as batch slots, requests always wait."""
    seats = sum(pool.replica.max_sequences * pool.schedulers for pool in pools if pool.role != "prefill")
    requests = asked.requests or min(_MAX_REQUESTS, max(_MIN_REQUESTS, _ROUNDS * seats))
    blocks = asked.workload.blocks(seed=asked.seed, requests=requests, rate_per_s=1.0)
    options = replace(asked.options, users=min(2 * seats, requests), think_s=0.0)
    return simulate(pools, blocks, options=options).requests_per_s
