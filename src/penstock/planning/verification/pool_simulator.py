"""Simulates a pool, to find the rate that its replicas sustain, or the SLO attainment at a given rate."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import log
from typing import Final

import numpy as np

from penstock.performance.disaggregated.phase_factors import PHASES, Phase
from penstock.planning.candidates.disaggregated_screen import UnitScreen
from penstock.planning.candidates.queueless_screen import QueuelessScreen
from penstock.planning.candidates.replica_capacity import Option, RateCurve
from penstock.planning.spec.plan_types import Bucket
from penstock.planning.verification.rate_over_errors import StepSlowdowns, curve_over_errors
from penstock.planning.verification.simulated_capacity import PoolLoad
from penstock.planning.verification.trial_cache import TrialCache, trial_key
from penstock.simulation.capacity import (
    FIRST_STEP,
    RateSearch,
    Trial,
    arrivals_per_request,
    highest_rate,
    requests_for,
    trial,
)
from penstock.simulation.placement import Placement, disaggregated_pools, place_on
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run_options import Options, Policy
from penstock.simulation.slower_steps import SlowerSteps
from penstock.workload import Empirical, Poisson, SloClass, Workload, vary_answers

_PAIRS, _MIN_PAIRS = 10_000, 21
"""Total number of requests that represent a mix of lengths, and minimum number per length.

The share of each length is exact to 0.01% of the requests.
"""
_COUNT_STEP: Final = 1.25
_SAME: Final = 1e-9
"""Relative difference up to which two rates count as equal."""
_SKETCH_REQUESTS, _SKETCH_SHARE, _SKETCH_TOLERANCE = 8_000, 3, 0.01
_BESIDE_OTHERS: Final = 1.02
"""First step, as a factor, of a rate search that starts from the result for a pool of another size with the same kind
of replica."""


@dataclass(slots=True)
class Simulator:
    """Simulates pools with the step times that `QueuelessScreen` compiled; each distinct simulation runs only once."""

    loop: QueuelessScreen
    seed: int = 0
    units: UnitScreen | None = None
    """Source of prefill-only and decode-only engines; None if no disaggregated units are planned."""
    route: Policy = "least-requests"
    """Policy of the router in front of a pool."""
    cache: TrialCache | None = None
    """Trials of earlier processes; None if trials are not kept."""
    _placed: dict[tuple[object, ...], Placement] = field(default_factory=dict)
    _runs: dict[tuple[object, ...], "_Runs"] = field(default_factory=dict)
    _searches: dict[tuple[object, ...], RateSearch] = field(default_factory=dict)
    """Maps mix of lengths, SLO and longest context to the search whose requests all pools of this kind serve."""
    _each: dict[tuple[object, ...], float] = field(default_factory=dict)
    """Maps kind of replica, mix of lengths and SLO to the rate per replica that the last search found."""

    def sustained(self, load: PoolLoad) -> float:
        """Return the highest rate that the pool sustains within the SLO.

        The search starts from the rate per replica that the last search found for the same kind, mix and SLO.
        """
        return self._highest(load, self._rate_search(load))

    def sketched(self, load: PoolLoad) -> float:
        """Estimate the sustained rate quickly, with fewer requests.

        The estimate is up to 5% too high. The error is about equal for all candidates, because all candidates serve the
        same requests.
        """
        pools = self.pools(load)
        return self._highest(load, self._sketch(load, pools)) if pools else 0.0

    def sketch_carries(self, load: PoolLoad, share: float) -> bool:
        """Return whether the pool sustains a share of the load's rate, by one simulation with fewer requests.

        A later search does not use this simulation, so that its result does not depend on it.
        """
        pools = self.pools(load)
        if not pools:
            return False
        runs = self._runs_of(load, pools, self._sketch(load, pools))
        return _holds(runs.simulate(load.requests_per_s * share / runs.came))

    def _sketch(self, load: PoolLoad, pools: Sequence[ReplicaPool]) -> RateSearch:
        asked = self._rate_search(load)
        requests = max(_SKETCH_REQUESTS, requests_for(pools, asked, load.requests_per_s) // _SKETCH_SHARE)
        return replace(asked, requests=requests, tolerance=_SKETCH_TOLERANCE)

    def _highest(self, load: PoolLoad, asked: RateSearch) -> float:
        pools = self.pools(load)
        if not pools:
            return 0.0
        kind = (*(id(pool.replica) for pool in pools), load.mix, load.slo)
        each = self._each.get(kind)
        runs = self._runs_of(load, pools, asked)
        begin, step = (load.requests_per_s, FIRST_STEP) if each is None else (each * load.replicas, _BESIDE_OTHERS)
        found = runs.highest_per_s(begin, step)
        if found > 0:
            self._each[kind] = found / load.replicas
        return found

    def curve(self, load: PoolLoad) -> RateCurve:
        """Return the sustained rate of the pool over the prediction error of its step times.

        The rate at the predicted step times is that of `sustained`. How it changes with the error is sketched.
        """
        middle, pools = self.sustained(load), self.pools(load)
        if not middle:
            return RateCurve(errors=(0.0,), requests_per_s=(0.0,))
        asked = self._sketch(load, pools)
        runs, begin = self._runs_of(load, pools, asked), self._highest(load, asked)
        if load.option.disaggregated is None:
            steps: StepSlowdowns = SlowerSteps(runs.run, begin / runs.came, list(runs.trials.values()))
        else:
            steps = _ScaledUnits(self, load, asked, begin)
        spread = self.placed_replica(load).stack.spread
        if load.option.disaggregated is None:
            spread = self.loop.spread_of(load.option, load.mix, load.slo, spread)
        curve = curve_over_errors(steps, spread)
        sketched = float(curve.at(np.zeros(1))[0])
        return curve.scaled(middle / sketched) if sketched else RateCurve(errors=(0.0,), requests_per_s=(0.0,))

    def placed_replica(self, load: PoolLoad) -> Placement:
        """Return the replica whose prediction error is the error of the pool: the one that decodes."""
        if load.option.disaggregated is not None:
            return self.placed_disaggregated(load.option, "decode", load.mean_lengths)
        return self.place(load.option, load.mean_lengths)

    def attained(self, load: PoolLoad) -> float:
        """Return the share of requests that meet the SLO at the load's rate; 0 if the queue keeps growing."""
        pools = self.pools(load)
        return self._runs_of(load, pools, self._rate_search(load)).at(load.requests_per_s) if pools else 0.0

    def attained_at(self, load: PoolLoad, log_slowdown: float) -> float:
        """Return the share of requests that meet the SLO if steps take exp(`log_slowdown`) times as long."""
        pools, asked = self.pools(load, log_slowdown=log_slowdown), self._rate_search(load)
        requests = _round_requests(requests_for(pools, asked, load.requests_per_s))
        return _share(trial(pools, asked, load.requests_per_s, requests=requests)) if pools else 0.0

    def bounded(self, load: PoolLoad) -> float:
        """Return the attainment at the load's rate, or at another rate that decides whether the load meets the SLO."""
        pools = self.pools(load)
        if not pools:
            return 0.0
        runs = self._runs_of(load, pools, self._rate_search(load))
        known = runs.bound(load.requests_per_s)
        return runs.at(load.requests_per_s) if known is None else known

    def _runs_of(self, load: PoolLoad, pools: Sequence[ReplicaPool], asked: RateSearch) -> "_Runs":
        """Return the trials of a pool.

        Calls share trials, because a replanned fleet keeps most pools at similar loads.
        """
        requests = asked.requests or _round_requests(requests_for(pools, asked, load.requests_per_s))
        key = (_identity(pools), load.mix, load.slo, requests, asked.tolerance)
        if key not in self._runs:
            asked = replace(asked, requests=requests)
            self._runs[key] = _Runs(pools=pools, asked=asked, requests=requests, cache=self.cache)
        return self._runs[key]

    def _rate_search(self, load: PoolLoad) -> RateSearch:
        key = (load.mix, load.slo, load.option.deployment.model.max_context_tokens)
        if key not in self._searches:
            classes = (SloClass(name="all", share_fraction=1.0, slo=load.slo),)
            options = Options(route=self.route)
            self._searches[key] = RateSearch(
                workload=_workload(load, classes), classes=classes, seed=self.seed, options=options
            )
        return self._searches[key]

    def pools(self, load: PoolLoad, *, log_slowdown: float = 0.0) -> tuple[ReplicaPool, ...]:
        """Return the pools to simulate: one, or two for disaggregated units; none if a replica does not fit.

        Steps take exp(`log_slowdown`) times as long as predicted.
        """
        lengths, unit = load.mean_lengths, load.option.disaggregated
        if unit is not None:
            both = (self.placed_disaggregated(load.option, phase, lengths) for phase in PHASES)
            ahead, after = (each.at(log_slowdown) if log_slowdown else each.replica for each in both)
            if ahead is None or after is None:
                return ()
            return disaggregated_pools(unit, ahead, after, name="pool", units=load.replicas)
        placed = self.place(load.option, lengths)
        replica = placed.at(log_slowdown) if log_slowdown else placed.replica
        return () if replica is None else (ReplicaPool(name="pool", replica=replica, replicas=load.replicas),)

    def placed_disaggregated(self, option: Option, phase: Phase, typical_lengths: tuple[int, int]) -> Placement:
        """Return one replica of a disaggregated unit, ready to simulate; cached by engine and length."""
        if self.units is None or option.disaggregated is None:
            raise ValueError("some engines only prefill or only decode; pass `units` to the simulator to simulate them")
        deployment = option.disaggregated.prefill if phase == "prefill" else option.disaggregated.decode
        engine = self.units.engine(deployment, option.measured_engine, phase)
        key = (id(engine), typical_lengths)
        if key not in self._placed:
            self._placed[key] = place_on(
                engine.work, engine.stack, typical_lengths=typical_lengths, measured_engine=option.measured_engine
            )
        return self._placed[key]

    def place(self, option: Option, typical_lengths: tuple[int, int]) -> Placement:
        """Return a replica ready to simulate; cached by deployment and length."""
        compiled = self.loop.compiled(option)
        key = (id(compiled), typical_lengths)
        if key not in self._placed:
            self._placed[key] = place_on(
                compiled.work,
                compiled.stack,
                typical_lengths=typical_lengths,
                measured_engine=option.measured_engine,
                speculation=compiled.speculation,
                drafted=compiled.drafted,
            )
        return self._placed[key]


@dataclass(slots=True)
class _Runs:
    """Trials of one pool with one mix of lengths.

    Each rate is simulated at most once. A rate is not simulated if a trial at another rate decides whether the SLO is
    met.
    """

    pools: Sequence[ReplicaPool]
    asked: RateSearch
    requests: int
    trials: dict[float, Trial] = field(default_factory=dict)
    """Maps request rate to the trial at that rate."""
    highest: Trial | None = None
    searched: bool = False
    cache: TrialCache | None = None
    came: float = field(init=False)
    key: str = field(init=False, default="")
    cached: dict[float, Trial] = field(init=False, default_factory=dict)
    """Trials of this process and of earlier processes. A search sees only those that it asks for, so that the cache
    changes no result."""

    def __post_init__(self) -> None:
        self.came = arrivals_per_request(self.asked, self.requests)
        if self.cache is not None:
            self.key = trial_key(self.pools, self.asked, self.requests)
            self.cached = self.cache.read(self.key)

    def at(self, rate_per_s: float) -> float:
        """Return the attainment at a rate."""
        return _share(self.run(float(f"{rate_per_s / self.came:.9g}")))

    def run(self, asked_per_s: float) -> Trial:
        """Return the trial at a target rate, without its requests, to save memory."""
        if asked_per_s not in self.trials:
            self.trials[asked_per_s] = self.simulate(asked_per_s)
        return self.trials[asked_per_s]

    def simulate(self, asked_per_s: float) -> Trial:
        """Return the trial at a target rate, as `run` does, but do not show it to later searches."""
        found = self.cached.get(asked_per_s)
        if found is None:
            found = trial(self.pools, self.asked, asked_per_s, requests=self.requests)
            self.cached[asked_per_s] = found = replace(found, outcome=None)
            if self.cache is not None:
                self.cache.write(self.key, self.cached)
        return found

    def bound(self, rate_per_s: float) -> float | None:
        """Return the attainment at the nearest simulated rate that decides whether this rate meets the SLO.

        A rate meets the SLO if a higher rate meets it, and misses the SLO if a lower rate misses it. Return None if
        there is no such rate, or if two such rates disagree by chance.
        """
        asked_per_s = rate_per_s / self.came
        trials = self.trials.values()
        held = [entry for entry in trials if _holds(entry) and entry.asked_per_s >= asked_per_s * (1 - _SAME)]
        missed = [entry for entry in trials if not _holds(entry) and entry.asked_per_s <= asked_per_s * (1 + _SAME)]
        if bool(held) == bool(missed):
            return None
        near = min(held, key=_rate) if held else max(missed, key=_rate)
        return _share(near)

    def highest_per_s(self, begin_per_s: float, first_step: float) -> float:
        """Return the highest rate that meets the SLO; later calls return the result of the first search."""
        if not self.searched:
            self.highest, _ = highest_rate(
                self.pools,
                self.asked,
                begin_per_s=begin_per_s / self.came,
                first_step=first_step,
                known=tuple(self.trials.values()),
                run=self.run,
            )
            self.searched = True
        return 0.0 if self.highest is None or not _holds(self.highest) else self.highest.asked_per_s * self.came


@dataclass(slots=True)
class _ScaledUnits:
    """Simulates disaggregated units with slower steps, because the times of their KV transfers stay the same."""

    simulator: Simulator
    load: PoolLoad
    asked: RateSearch
    begin_per_s: float

    def feasible(self, slowdown: float) -> bool:
        return self.sustained_per_s(slowdown) > 0

    def sustained_per_s(self, slowdown: float) -> float:
        pools = self.simulator.pools(self.load, log_slowdown=log(slowdown))
        requests, cache = self.asked.requests or 0, self.simulator.cache
        runs = _Runs(pools=pools, asked=self.asked, requests=requests, cache=cache)
        return runs.highest_per_s(self.begin_per_s / slowdown, FIRST_STEP)


def _rate(entry: Trial) -> float:
    return entry.asked_per_s


def _holds(found: Trial) -> bool:
    """Return whether the SLO is met and no request is oversized, because a fleet must serve every request."""
    return found.met and not found.oversized


def _share(found: Trial) -> float:
    """Return the share of requests that met their SLO; 0 if the queue keeps growing or any request is oversized."""
    return 0.0 if found.saturated or found.oversized else found.attained_fraction


def _round_requests(requests: int) -> int:
    """Round a number of requests to one of a few values, so that similar rates are simulated with the same requests."""
    return round(_COUNT_STEP ** round(log(requests, _COUNT_STEP)))


def _identity(pools: Sequence[ReplicaPool]) -> tuple[tuple[int, int], ...]:
    return tuple((id(pool.replica), pool.replicas) for pool in pools)


def _workload(load: PoolLoad, classes: tuple[SloClass, ...]) -> Workload:
    """Build Poisson arrivals of a mix of lengths under one SLO."""
    limit = load.option.deployment.model.max_context_tokens
    drawn = [_lengths(bucket, max(_MIN_PAIRS, round(_PAIRS * fraction)), limit) for bucket, fraction in load.mix]
    lengths = Empirical(
        input_tokens=np.concatenate([each.input_tokens for each in drawn]),
        output_tokens=np.concatenate([each.output_tokens for each in drawn]),
    )
    return Workload(name="pool", arrivals=Poisson(), lengths=lengths, classes=classes)


def _lengths(bucket: Bucket, count: int, limit: int | None) -> Empirical:
    """Return `count` requests of a bucket: trace rows sampled evenly in order of length, or varied around the mean."""
    if bucket.rows:
        rows = bucket.pairs[np.arange(count) * len(bucket.pairs) // count].astype(np.int32)
        return Empirical(input_tokens=rows[:, 0], output_tokens=rows[:, 1])
    return vary_answers(bucket.input_tokens, bucket.output_tokens, count, context_tokens=limit)
