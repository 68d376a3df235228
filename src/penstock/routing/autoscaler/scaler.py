"""Chooses the number of replicas per pool: the cheapest set that meets the SLO in the coming minutes.

A new replica needs minutes until it serves, so a decision is made for the load expected at that later time. Scaling
down is delayed, because a load that fell may rise again. All functions are pure: the gateway publishes the result, and
KEDA or an HPA acts on it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final

from penstock.errors import UsageError
from penstock.routing.autoscaler.forecast import ObservedRate, expected_requests_per_s

_MAX_SETS: Final = 100_000
"""Maximum number of replica sets to compare, which takes a tenth of a second.

If there are more sets, pools are filled in order of price.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledPool:
    """Pool of equal replicas, with the values that the autoscaler needs."""

    name: str
    requests_per_s: float
    """Requests per second that one replica of a running fleet serves within the SLO, at the present request mix."""
    usd_per_hour: float
    max_replicas: int
    floor: int = 0
    load_s: float = 300.0
    """Seconds from the request for a new replica until the replica serves."""

    def __post_init__(self) -> None:
        if not (0 < self.requests_per_s < math.inf and self.usd_per_hour >= 0 and 0 <= self.floor <= self.max_replicas):
            raise UsageError(
                f"pool '{self.name}' is invalid; give a rate above 0, a price of 0 or more, "
                f"and a floor of 0 to {self.max_replicas} replicas"
            )
        if not 0 <= self.load_s < math.inf:
            raise UsageError(f"pool '{self.name}': a load time of {self.load_s} s is invalid; write 0 or more seconds")


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


def cheapest(pools: Sequence[ScaledPool], requests_per_s: float) -> tuple[int, ...]:
    """Return the cheapest set of replicas that can serve a request rate, or all replicas if no set is large enough."""
    if not math.isfinite(requests_per_s):
        raise UsageError(f"no set of replicas serves {requests_per_s} requests/s; write a finite rate")
    choices = [pool.max_replicas - pool.floor + 1 for pool in pools]
    tried = math.prod(choices) / max(choices)
    return _fill_by_price(pools, requests_per_s) if tried > _MAX_SETS else _best_of_all(pools, requests_per_s)


def _fill_by_price(pools: Sequence[ScaledPool], requests_per_s: float) -> tuple[int, ...]:
    """Fill pools in order of dollars per request.

    The last replica is the cheapest one that serves the remaining rate.
    """
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
    """Penstock's scaling rule: the cheapest set for the load expected by the time a replica requested now would be up.

    After a start or a gap in reports, the earlier load is unknown, and no replica that is up is removed.
    """

    pools: Sequence[ScaledPool]
    spare_fraction: float = 0.1
    """Margin above the expected load, as a fraction, for bursts and for errors in the rate that a replica serves."""
    hold_s: float = 600.0
    """Replicas are removed only after a smaller set has been enough for this many seconds."""
    settle_s: float = 60.0
    """Seconds over which the load is measured.

    A rise in load that lasts less than half of `settle_s` adds no replicas.
    """
    gap_s: float = 300.0
    """Maximum seconds between two reports. After a longer gap, the history of the load is discarded."""
    to_zero: bool = False
    """Whether the last replica may be removed. The next request would then wait until a new replica has loaded."""
    _seen: list[ObservedRate] = field(default_factory=list)
    _expected: list[ObservedRate] = field(default_factory=list)
    _begun_s: float = math.inf
    _held: tuple[int, ...] = ()
    """Minimum replicas per pool until the load has been known for `hold_s` seconds."""
    _answer: tuple[int, ...] = ()

    def desired_replicas(self, report: LoadReport) -> tuple[int, ...]:
        """Return the cheapest set for the highest recent forecast.

        A replica is removed only after its replacement is up.
        """
        if not self._seen or not 0 < report.now_s - self._seen[-1].now_s <= self.gap_s:
            self._begin(report)
        known_s = report.now_s - self._begun_s
        rate = self._highest_expected(report, known_s) * (1.0 + self.spare_fraction)
        both = zip(report.pools, self.pools, strict=True)
        present = tuple(min(one.up + one.coming, pool.max_replicas) for one, pool in both)
        if known_s < self.hold_s:
            self._held = _each_max(self._held, present)
            answer = self._cheapest(rate, self._held)
        else:
            answer = self._cheapest(rate, tuple(pool.floor for pool in self.pools))
            if not all(one.up >= want for one, want in zip(report.pools, answer, strict=True)):
                answer = _each_max(present, answer)
        self._answer = answer
        return answer

    def _begin(self, report: LoadReport) -> None:
        """Discard the history of the load, and take the last desired replicas as the minimum.

        If there is no last decision and no replica is up, the minimum is all replicas, because the fleet may be
        starting.
        """
        self._seen, self._expected, self._begun_s = [], [], report.now_s
        up = any(one.up + one.coming for one in report.pools)
        starting = not (up or self.to_zero or self._answer)
        self._held = tuple(pool.max_replicas if starting else pool.floor for pool in self.pools)
        self._held = _each_max(self._held, self._answer or self._held)

    def _highest_expected(self, report: LoadReport, known_s: float) -> float:
        """Return the highest load forecast of the last `hold_s` seconds.

        Return 0 until the load has been known for `settle_s` seconds.
        """
        ahead_s = max(pool.load_s for pool in self.pools)
        now = ObservedRate(report.now_s, report.requests_per_s)
        self._seen = [*(one for one in self._seen if one.now_s >= now.now_s - max(ahead_s, self.settle_s)), now]
        self._expected = [one for one in self._expected if one.now_s >= now.now_s - self.hold_s]
        if known_s >= self.settle_s:
            # A slope over less than one loading time does not predict the next loading time.
            expected = expected_requests_per_s(self._seen, ahead_s if known_s >= ahead_s else 0.0, self.settle_s)
            self._expected.append(ObservedRate(now.now_s, expected))
        return max((one.requests_per_s for one in self._expected), default=0.0)

    def _cheapest(self, requests_per_s: float, floors: Sequence[int]) -> tuple[int, ...]:
        """Return the cheapest set with at least `floors` replicas per pool.

        The set may be empty only if `to_zero` is set.
        """
        least = 0.0 if self.to_zero else min(pool.requests_per_s for pool in self.pools)
        staying = [replace(pool, floor=floor) for pool, floor in zip(self.pools, floors, strict=True)]
        return cheapest(staying, max(requests_per_s, least))


def _each_max(some: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(pair) for pair in zip(some, others, strict=True))
