"""Which replicas should be up? The cheapest set that keeps the promise for the next minutes' load, and peers' rules.

A replica takes minutes to load, so what is decided now is for the load at the time it is up; what is taken down waits a
while, because a load that fell may come back. All of it is pure: the gateway publishes the answer, KEDA or an HPA acts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final, Protocol

from penstock.errors import UsageError

_MOST_SETS: Final = 100_000
"""Sets of replicas that are tried one by one, in a tenth of a second; beyond, pools are filled in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledPool:
    """Replicas of one kind, as far as scaling is concerned."""

    name: str
    requests_per_s: float
    """What one replica serves within the promise, beside the others, for the load as it is."""
    usd_per_hour: float
    most: int
    floor: int = 0
    load_s: float = 300.0
    """From asking for a replica until it serves."""

    def __post_init__(self) -> None:
        if not (self.requests_per_s > 0 and self.usd_per_hour >= 0 and 0 <= self.floor <= self.most):
            raise UsageError(f"pool '{self.name}' needs a rate above 0, a price, and a floor of at most {self.most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport:
    """What a pool's replicas did over the last interval, as their metrics say."""

    up: int
    coming: int
    """Asked for, and not serving yet."""
    waiting: float
    """Requests in the queue of a replica, on average."""
    running: float
    kv_used_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What came to the fleet over the last interval, and what its pools did."""

    now_s: float
    requests_per_s: float
    pools: tuple[PoolReport, ...]


class Scaler(Protocol):
    """Whoever decides how many replicas of each pool are wanted."""

    def wanted(self, report: LoadReport) -> tuple[int, ...]:
        """Return how many replicas of each pool should be up or coming."""


def cheapest(pools: Sequence[ScaledPool], requests_per_s: float) -> tuple[int, ...]:
    """Return the set of replicas that serves a rate for the fewest dollars; all of them where none is enough."""
    tried = math.prod(pool.most - pool.floor + 1 for pool in pools) / max(pool.most - pool.floor + 1 for pool in pools)
    return _filled(pools, requests_per_s) if tried > _MOST_SETS else _best_of_all(pools, requests_per_s)


def _filled(pools: Sequence[ScaledPool], requests_per_s: float) -> tuple[int, ...]:
    """Of too many sets to try: by dollars per request, the last replica being the cheapest that is enough."""
    counts = [pool.floor for pool in pools]
    lacking = requests_per_s - sum(pool.floor * pool.requests_per_s for pool in pools)
    order = sorted(range(len(pools)), key=lambda place: pools[place].usd_per_hour / pools[place].requests_per_s)
    for place in order:
        pool = pools[place]
        whole = max(0, min(pool.most - counts[place], math.floor(lacking / pool.requests_per_s + 1e-9)))
        counts[place] += whole
        lacking -= whole * pool.requests_per_s
        if lacking <= 0:
            break
        ends = [
            other
            for other in order
            if counts[other] < pools[other].most and pools[other].requests_per_s >= lacking - 1e-9
        ]
        if ends and counts[place] < pool.most:
            counts[min(ends, key=lambda other: pools[other].usd_per_hour)] += 1
            break
    return tuple(counts)


def _best_of_all(pools: Sequence[ScaledPool], requests_per_s: float) -> tuple[int, ...]:
    best, least = tuple(pool.most for pool in pools), math.inf
    *rest, last = sorted(range(len(pools)), key=lambda place: pools[place].most)
    for counts in product(*(range(pools[place].floor, pools[place].most + 1) for place in rest)):
        served = sum(count * pools[place].requests_per_s for count, place in zip(counts, rest, strict=True))
        lacking = (requests_per_s - served) / pools[last].requests_per_s
        filling = max(pools[last].floor, math.ceil(lacking - 1e-9))
        if filling > pools[last].most:
            continue
        numbers = dict(zip([*rest, last], [*counts, filling], strict=True))
        usd = sum(numbers[place] * pool.usd_per_hour for place, pool in enumerate(pools))
        if usd < least:
            best, least = tuple(numbers[place] for place in range(len(pools))), usd
    return best


@dataclass(slots=True)
class CheapestSet:
    """Ours: the cheapest set for the load expected when a replica asked for now is up."""

    pools: Sequence[ScaledPool]
    spare_fraction: float = 0.1
    """Kept above the expected load, for bursts and errors of the rates."""
    hold_s: float = 600.0
    """How long a smaller set must have been enough before replicas go."""
    _seen: list[tuple[float, float]] = field(default_factory=list)
    _expected: list[tuple[float, float]] = field(default_factory=list)

    def wanted(self, report: LoadReport) -> tuple[int, ...]:
        """Take the cheapest set for the highest load expected of late; nothing goes before what replaces it is up."""
        ahead_s = max(pool.load_s for pool in self.pools)
        self._seen = _since(self._seen, report.now_s - ahead_s, (report.now_s, report.requests_per_s))
        then_s, then = self._seen[0]
        slope = (report.requests_per_s - then) / (report.now_s - then_s) if report.now_s > then_s else 0.0
        expected = report.requests_per_s + max(0.0, slope) * ahead_s
        self._expected = _since(self._expected, report.now_s - self.hold_s, (report.now_s, expected))
        most = max(rate for _, rate in self._expected)
        target = cheapest(self.pools, most * (1.0 + self.spare_fraction))
        if all(one.up >= want for one, want in zip(report.pools, target, strict=True)):
            return target
        return tuple(max(one.up + one.coming, want) for one, want in zip(report.pools, target, strict=True))


def _since(seen: list[tuple[float, float]], begin_s: float, newest: tuple[float, float]) -> list[tuple[float, float]]:
    return [entry for entry in [*seen, newest] if entry[0] >= begin_s]


@dataclass(slots=True)
class EvenScaling:
    """Every pool by the same share of its replicas, for the load there is and as much to spare as ours keeps."""

    pools: Sequence[ScaledPool]
    spare_fraction: float = 0.1

    def wanted(self, report: LoadReport) -> tuple[int, ...]:
        """Return the smallest even share that serves the load."""
        whole = sum(pool.most * pool.requests_per_s for pool in self.pools)
        share = min(1.0, report.requests_per_s * (1.0 + self.spare_fraction) / whole)
        return tuple(max(pool.floor, math.ceil(share * pool.most)) for pool in self.pools)


_TOLERANCE: Final = 0.1
_STABILISATION_S: Final = 300.0


@dataclass(slots=True)
class HorizontalPodAutoscaler:
    """Kubernetes' HPA on requests per replica, one for each pool (kubernetes.io, "Algorithm details", v1.34).

    wanted = ceil(current * metric / target), nothing within 10%, downwards the highest of the last 300 s.
    """

    pools: Sequence[ScaledPool]
    target: float = 5.0
    """Requests waiting and running per replica that are aimed at."""
    _advised: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)

    def wanted(self, report: LoadReport) -> tuple[int, ...]:
        """Ask each pool's own HPA."""
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
        return min(pool.most, max(pool.floor, 1, math.ceil(current * ratio)))


@dataclass(slots=True)
class VariantAutoscaler:
    """llm-d's workload variant autoscaler, percentage analyser (v0.7.0, `saturation-scaling-config.md`).

    A replica is saturated from 80% of its KV or 5 waiting. Less than 10% or 3 to spare on average: one more of the
    cheapest pool, unless one is coming. Enough to spare with one replica less: one less of the dearest.
    """

    pools: Sequence[ScaledPool]
    kv_threshold: float = 0.80
    queue_threshold: float = 5.0
    kv_spare: float = 0.1
    queue_spare: float = 3.0

    def wanted(self, report: LoadReport) -> tuple[int, ...]:
        """Move by one replica at most."""
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
        if pools[place].floor <= counts[place] + by <= pools[place].most:
            counts[place] += by
            return
