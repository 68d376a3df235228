"""What does the simulator say about a pool? The rate its replicas sustain, and what a rate does to their requests."""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from penstock.planning.candidates.capacity import Option
from penstock.planning.candidates.screen import QueuelessScreen
from penstock.planning.proof.simulated import PoolLoad
from penstock.simulation.capacity import RateSearch, highest_rate, requests_for, trial
from penstock.simulation.placement import Placement, place_on
from penstock.simulation.replica import ReplicaPool
from penstock.workload import Empirical, Poisson, SloClass, Workload

_PAIRS, _LEAST_PAIRS = 10_000, 21
"""Requests that stand for a mix of lengths: shares to a hundredth of a percent."""
_SKETCH_REQUESTS, _SKETCH_SHARE, _SKETCH_TOLERANCE = 8_000, 3, 0.01
_SPREAD: Final = 0.1
"""Answers of one length differ by up to this much. Were they all alike, those that were prefilled together would end in
the same step, and a router that counts requests would send the next burst to that one replica: nobody's traffic is so
regular, and it halves what 32 replicas carry."""


@dataclass(slots=True)
class Simulator:
    """Lays pools out on the stacks the screen compiled, and runs them; the same question is asked once."""

    loop: QueuelessScreen
    seed: int = 0
    _placed: dict[tuple[object, ...], Placement] = field(default_factory=dict)
    _sustained: dict[tuple[object, ...], float] = field(default_factory=dict)

    def sustained(self, load: PoolLoad) -> float:
        """The highest rate the pool's replicas sustain together; the search begins at the rate of the load."""
        return self._highest(load, self._asked(load))

    def sketched(self, load: PoolLoad) -> float:
        """The same from fewer requests: up to 5% too high, and all candidates err alike, as they see the same ones."""
        pool, asked = self._pool(load), self._asked(load)
        if pool is None:
            return 0.0
        requests = max(_SKETCH_REQUESTS, requests_for([pool], asked, load.requests_per_s) // _SKETCH_SHARE)
        return self._highest(load, replace(asked, requests=requests, tolerance=_SKETCH_TOLERANCE))

    def _highest(self, load: PoolLoad, asked: RateSearch) -> float:
        pool = self._pool(load)
        if pool is None:
            return 0.0
        key = (id(pool.replica), load.replicas, load.mix, load.slo, asked.tolerance)
        if key not in self._sustained:
            best, _ = highest_rate([pool], asked, begin_per_s=load.requests_per_s)
            self._sustained[key] = 0.0 if best is None else best.rate_per_s
        return self._sustained[key]

    def attained(self, load: PoolLoad) -> float:
        """Share of the requests that keep their SLO at the rate of the load; 0 where the queue only grows."""
        pool = self._pool(load)
        if pool is None:
            return 0.0
        asked = self._asked(load)
        requests = requests_for([pool], asked, load.requests_per_s)
        found = trial([pool], asked, load.requests_per_s, requests=requests)
        return 0.0 if found.outcome.saturation is not None or found.outcome.refused else found.attained_fraction

    def _asked(self, load: PoolLoad) -> RateSearch:
        classes = (SloClass(name="all", share_fraction=1.0, slo=load.slo),)
        return RateSearch(workload=_workload(load, classes), classes=classes, seed=self.seed)

    def _pool(self, load: PoolLoad) -> ReplicaPool | None:
        placed = self._place(load.option, round(load.mean_tokens))
        if placed.replica is None:
            return None
        return ReplicaPool(name="pool", replica=placed.replica, replicas=load.replicas)

    def _place(self, option: Option, typical_tokens: int) -> Placement:
        compiled = self.loop.compiled(option)
        key = (id(compiled), typical_tokens)
        if key not in self._placed:
            self._placed[key] = place_on(compiled.work, compiled.stack, typical_tokens=typical_tokens)
        return self._placed[key]


def _workload(load: PoolLoad, classes: tuple[SloClass, ...]) -> Workload:
    """Poisson arrivals of a mix of lengths under one promise."""
    inputs, outputs = [], []
    for bucket, fraction in load.mix:
        count = max(_LEAST_PAIRS, round(_PAIRS * fraction))
        inputs.append(np.full(count, bucket.input_tokens))
        longest = max(1, bucket.output_tokens) * (1 + _SPREAD * np.linspace(-1, 1, count))
        outputs.append(np.maximum(1, np.round(longest)))
    lengths = Empirical(
        input_tokens=np.concatenate(inputs).astype(np.int32), output_tokens=np.concatenate(outputs).astype(np.int32)
    )
    return Workload(name="pool", arrivals=Poisson(), lengths=lengths, classes=classes)
