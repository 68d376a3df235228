"""Rules of other autoscalers, to compare with the cheapest set of `penstock.routing.autoscaler.scaler`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.routing.autoscaler.scaler import LoadReport, PoolReport, ScaledPool


class Scaler(Protocol):
    """A rule that decides the desired replicas of each pool."""

    def desired_replicas(self, report: LoadReport) -> tuple[int, ...]:
        """Return the desired number of replicas per pool, up or coming."""


@dataclass(slots=True)
class EvenScaling:
    """A rule that scales every pool by the same share, for the current load and the same margin as `CheapestSet`."""

    pools: Sequence[ScaledPool]
    spare_fraction: float = 0.1

    def desired_replicas(self, report: LoadReport) -> tuple[int, ...]:
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

    def desired_replicas(self, report: LoadReport) -> tuple[int, ...]:
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

    def desired_replicas(self, report: LoadReport) -> tuple[int, ...]:
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
