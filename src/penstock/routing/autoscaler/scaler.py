"""Chooses the replicas to run: the cheapest set that meets the SLO for the coming minutes, and the rules of peers.

A replica takes minutes to load, so a decision is for the load at the time it is up. Scaling down waits, because a load
that fell may rise again. All functions are pure: the gateway publishes the result, and KEDA or an HPA acts on it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final, Protocol

from penstock.errors import UsageError
from penstock.routing.autoscaler.forecast import ObservedRate, expected_requests_per_s

_MAX_SETS: Final = 100_000
"""Maximum number of sets to try exhaustively, in a tenth of a second; above it, pools are filled in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledPool:
    """A pool of equal replicas as the autoscaler sees it."""

    name: str
    requests_per_s: float
    """Requests per second that one replica serves within the SLO, next to the others, for the current load."""
    usd_per_hour: float
    max_replicas: int
    floor: int = 0
    load_s: float = 300.0
    """Seconds from requesting a replica until it serves."""

    def __post_init__(self) -> None:
        if not (0 < self.requests_per_s < math.inf and self.usd_per_hour >= 0 and 0 <= self.floor <= self.max_replicas):
            raise UsageError(
                f"pool '{self.name}' needs a rate above 0, a price, and a floor of at most {self.max_replicas}"
            )
        if not 0 <= self.load_s < math.inf:
            raise UsageError(f"pool '{self.name}' cannot load in {self.load_s} s; write seconds, 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport:
    """Metrics of a pool's replicas over the last interval."""

    up: int
    coming: int
    """Replicas requested and not yet serving."""
    waiting: float
    """Mean requests in the queue of a replica."""
    running: float
    kv_used_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """Load of the fleet and metrics of its pools over the last interval."""

    now_s: float
    requests_per_s: float
    pools: tuple[PoolReport, ...]


class Scaler(Protocol):
    """A rule that decides the desired replicas of each pool."""

    def wanted(self, report: LoadReport) -> tuple[int, ...]:
        """Return the desired number of replicas per pool, up or coming."""


def cheapest(pools: Sequence[ScaledPool], requests_per_s: float) -> tuple[int, ...]:
    """Return the cheapest set of replicas that serves a rate; all replicas if none is enough."""
    if not math.isfinite(requests_per_s):
        raise UsageError(
            f"no set serves {requests_per_s} requests/s; write a finite rate, as a report's count over its time"
        )
    choices = [pool.max_replicas - pool.floor + 1 for pool in pools]
    tried = math.prod(choices) / max(choices)
    return _filled(pools, requests_per_s) if tried > _MAX_SETS else _best_of_all(pools, requests_per_s)


def _filled(pools: Sequence[ScaledPool], requests_per_s: float) -> tuple[int, ...]:
    """Fill pools in order of dollars per request; the last replica is the cheapest one that is enough."""
    counts = [pool.floor for pool in pools]
    lacking = requests_per_s - sum(pool.floor * pool.requests_per_s for pool in pools)
    order = sorted(range(len(pools)), key=lambda place: pools[place].usd_per_hour / pools[place].requests_per_s)
    for place in order:
        pool = pools[place]
        whole = max(0, min(pool.max_replicas - counts[place], math.floor(lacking / pool.requests_per_s + 1e-9)))
        counts[place] += whole
        lacking -= whole * pool.requests_per_s
        if lacking <= 0:
            break
        ends = [
            other
            for other in order
            if counts[other] < pools[other].max_replicas and pools[other].requests_per_s >= lacking - 1e-9
        ]
        if ends and counts[place] < pool.max_replicas:
            counts[min(ends, key=lambda other: pools[other].usd_per_hour)] += 1
            break
    return tuple(counts)


def _best_of_all(pools: Sequence[ScaledPool], requests_per_s: float) -> tuple[int, ...]:
    best, least = tuple(pool.max_replicas for pool in pools), math.inf
    *rest, last = sorted(range(len(pools)), key=lambda place: pools[place].max_replicas)
    for counts in product(*(range(pools[place].floor, pools[place].max_replicas + 1) for place in rest)):
        served = sum(count * pools[place].requests_per_s for count, place in zip(counts, rest, strict=True))
        lacking = (requests_per_s - served) / pools[last].requests_per_s
        filling = max(pools[last].floor, math.ceil(lacking - 1e-9))
        if filling > pools[last].max_replicas:
            continue
        numbers = dict(zip([*rest, last], [*counts, filling], strict=True))
        usd = sum(numbers[place] * pool.usd_per_hour for place, pool in enumerate(pools))
        if usd < least:
            best, least = tuple(numbers[place] for place in range(len(pools))), usd
    return best


@dataclass(slots=True)
class CheapestSet:
    """Penstock's rule: the cheapest set for the load expected when a replica requested now is up.

    After a start, or a gap in reports, the earlier load is unknown: replicas that are up stay.
    """

    pools: Sequence[ScaledPool]
    spare_fraction: float = 0.1
    """Margin above the expected load, for bursts and errors of the rates."""
    hold_s: float = 600.0
    """Seconds for which a smaller set must have been enough before replicas are removed."""
    settle_s: float = 60.0
    """Seconds over which the load is measured. A change that lasts less than half of it adds no replicas."""
    gap_s: float = 300.0
    """Maximum seconds between two reports; after a longer gap the history is discarded."""
    to_zero: bool = False
    """Whether the last replica may be removed; the next request would then wait until one has loaded."""
    _seen: list[ObservedRate] = field(default_factory=list)
    _expected: list[ObservedRate] = field(default_factory=list)
    _begun_s: float = math.inf
    _held: tuple[int, ...] = ()
    """Minimum replicas per pool until the load has been known for `hold_s`."""
    _answer: tuple[int, ...] = ()

    def wanted(self, report: LoadReport) -> tuple[int, ...]:
        """Return the cheapest set for the highest recent forecast. Nothing is removed before its replacement is up."""
        if not self._seen or not 0 < report.now_s - self._seen[-1].now_s <= self.gap_s:
            self._begin(report)
        known_s = report.now_s - self._begun_s
        rate = self._highest_expected(report, known_s) * (1.0 + self.spare_fraction)
        both = zip(report.pools, self.pools, strict=True)
        present = tuple(min(one.up + one.coming, pool.max_replicas) for one, pool in both)
        if known_s < self.hold_s:
            self._held = _each_most(self._held, present)
            answer = self._cheapest(rate, self._held)
        else:
            answer = self._cheapest(rate, tuple(pool.floor for pool in self.pools))
            if not all(one.up >= want for one, want in zip(report.pools, answer, strict=True)):
                answer = _each_most(present, answer)
        self._answer = answer
        return answer

    def _begin(self, report: LoadReport) -> None:
        """Start with the last answer as the minimum.

        If there is none and nothing is up, the minimum is all replicas: the fleet may be starting.
        """
        self._seen, self._expected, self._begun_s = [], [], report.now_s
        up = any(one.up + one.coming for one in report.pools)
        starting = not (up or self.to_zero or self._answer)
        self._held = tuple(pool.max_replicas if starting else pool.floor for pool in self.pools)
        self._held = _each_most(self._held, self._answer or self._held)

    def _highest_expected(self, report: LoadReport, known_s: float) -> float:
        """Return the highest load expected over the holding time; 0 before the load could settle."""
        ahead_s = max(pool.load_s for pool in self.pools)
        now = ObservedRate(report.now_s, report.requests_per_s)
        self._seen = [*(one for one in self._seen if one.now_s >= now.now_s - max(ahead_s, self.settle_s)), now]
        self._expected = [one for one in self._expected if one.now_s >= now.now_s - self.hold_s]
        if known_s >= self.settle_s:
            # A slope over less than a loading time does not predict the next one.
            expected = expected_requests_per_s(self._seen, ahead_s if known_s >= ahead_s else 0.0, self.settle_s)
            self._expected.append(ObservedRate(now.now_s, expected))
        return max((one.requests_per_s for one in self._expected), default=0.0)

    def _cheapest(self, requests_per_s: float, floors: Sequence[int]) -> tuple[int, ...]:
        """Return the cheapest set with at least `floors`, and at least one replica unless `to_zero` is set."""
        least = 0.0 if self.to_zero else min(pool.requests_per_s for pool in self.pools)
        staying = [replace(pool, floor=floor) for pool, floor in zip(self.pools, floors, strict=True)]
        return cheapest(staying, max(requests_per_s, least))


def _each_most(some: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(pair) for pair in zip(some, others, strict=True))


@dataclass(slots=True)
class EvenScaling:
    """A rule that scales every pool by the same share, for the current load and the same margin as `CheapestSet`."""

    pools: Sequence[ScaledPool]
    spare_fraction: float = 0.1

    def wanted(self, report: LoadReport) -> tuple[int, ...]:
        """Return the smallest even share that serves the load."""
        whole = sum(pool.max_replicas * pool.requests_per_s for pool in self.pools)
        share = min(1.0, report.requests_per_s * (1.0 + self.spare_fraction) / whole)
        return tuple(max(pool.floor, math.ceil(share * pool.max_replicas)) for pool in self.pools)


_TOLERANCE: Final = 0.1
_STABILISATION_S: Final = 300.0


@dataclass(slots=True)
class HorizontalPodAutoscaler:
    """Kubernetes' HPA on requests per replica, one for each pool (kubernetes.io, "Algorithm details", v1.34).

    desired = ceil(current * metric / target). There is no change within 10%. Scaling down uses the highest of the last
    300 s.
    """

    pools: Sequence[ScaledPool]
    target: float = 5.0
    """Target of waiting and running requests per replica."""
    _advised: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)

    def wanted(self, report: LoadReport) -> tuple[int, ...]:
        """Return the desired replicas of each pool's own HPA."""
        advice = tuple(self._one(pool, one) for pool, one in zip(self.pools, report.pools, strict=True))
        history = [*self._advised, (report.now_s, advice)]
        self._advised = [entry for entry in history if entry[0] >= report.now_s - _STABILISATION_S]
        highest = [max(entry[1][place] for entry in self._advised) for place in range(len(self.pools))]
        return tuple(
            max(want, min(high, one.up + one.coming)) if want < one.up + one.coming else want
            for want, high, one in zip(advice, highest, report.pools, strict=True)
        )

    def _one(self, pool: ScaledPool, one: PoolReport) -> int:
        current = max(1, one.up)
        ratio = (one.waiting + one.running) / self.target
        if abs(ratio - 1.0) <= _TOLERANCE:
            return one.up + one.coming
        return min(pool.max_replicas, max(pool.floor, 1, math.ceil(current * ratio)))


@dataclass(slots=True)
class VariantAutoscaler:
    """llm-d's workload variant autoscaler, percentage analyser (v0.7.0, `saturation-scaling-config.md`).

    A replica is saturated at 80% of its KV or 5 waiting requests. If the mean spare is below 10% or 3 requests, add one
    replica of the cheapest pool, unless one is coming. If the spare would be enough with one replica less, remove one
    of the most expensive pool.
    """

    pools: Sequence[ScaledPool]
    kv_threshold: float = 0.80
    queue_threshold: float = 5.0
    kv_spare: float = 0.1
    queue_spare: float = 3.0

    def wanted(self, report: LoadReport) -> tuple[int, ...]:
        """Change the total by at most one replica."""
        counts = [one.up + one.coming for one in report.pools]
        up = sum(one.up for one in report.pools)
        kv = sum(one.up * one.kv_used_fraction for one in report.pools) / max(1, up)
        queue = sum(one.up * one.waiting for one in report.pools) / max(1, up)
        by_price = sorted(range(len(counts)), key=lambda place: self.pools[place].usd_per_hour)
        if self.kv_threshold - kv < self.kv_spare or self.queue_threshold - queue < self.queue_spare:
            if not any(one.coming for one in report.pools):
                _step(counts, by_price, self.pools, 1)
        elif up > 1:
            kv, queue = kv * up / (up - 1), queue * up / (up - 1)
            if self.kv_threshold - kv >= self.kv_spare and self.queue_threshold - queue >= self.queue_spare:
                _step(counts, by_price[::-1], self.pools, -1)
        return tuple(counts)


def _step(counts: list[int], order: Sequence[int], pools: Sequence[ScaledPool], by: int) -> None:
    """Add or remove one replica of the first pool that allows it."""
    for place in order:
        if pools[place].floor <= counts[place] + by <= pools[place].max_replicas:
            counts[place] += by
            return
