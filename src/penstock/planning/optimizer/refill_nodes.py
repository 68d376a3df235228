"""How few devices carry what a pool is given? Its kinds of replicas in other numbers; many worlds at once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from math import inf, lcm
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.planning.optimizer.problem import DemandKey, PoolPeriod, Problem, ReplicaKind

Array = npt.NDArray[np.float64]
ROUNDING: Final = 1e-6
"""Of a replica, a node or a watt: less than this is none."""
_BESIDE: Final = 0.85
"""Of its rates, what a kind carries that was not simulated where it stands and is put beside another: those are of up
to eight replicas, which share bursts; one alone carried 0.91 of that (Llama 3.1 70B on an H200)."""

_OfferKey = tuple[str, str]


def whole(amount: Array) -> Array:
    """So many whole ones."""
    counted: Array = np.ceil(np.maximum(0.0, amount) - ROUNDING)
    return counted


class Filling:
    """The kinds of replicas a fleet has on each offer, by what load takes of them."""

    def __init__(self, problem: Problem, pools: Sequence[PoolPeriod]) -> None:
        self.problem = problem
        self.kinds: Mapping[str, ReplicaKind] = {replica.id: replica for replica in problem.replicas}
        self.rates = {demand.key: demand.requests_per_s for demand in problem.demands}
        self._seen = _seen(pools)
        self._serving = {(pool.offer.key, name) for pool in pools for name in _loaded(pool)}

    def workloads(self, pool: PoolPeriod) -> Mapping[str, tuple[str, ...]]:
        """The kinds of replicas of each workload that the fleet has on the offer of a pool, in any period."""
        return self._by_workload(self._seen[pool.offer.key])

    def _by_workload(self, names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for name in names:
            workload = self.kinds[name].workload
            found[workload] = (*found.get(workload, ()), name)
        return found

    def replicas(self, pool: PoolPeriod, name: str, demand: DemandKey) -> float:
        """How many of a kind all of a demand takes, as planned; infinite where it cannot serve that length."""
        kind, carried = self.kinds[name], self._carried(pool, name)
        if carried <= 0 or kind.requests_per_s.get(demand[1], 0.0) <= 0:
            return inf
        each = self.problem.rate_of(kind, demand[1], pool.period) * carried * self.problem.utilisation_fraction
        return self.rates[demand][pool.period] / each

    def _carried(self, pool: PoolPeriod, name: str) -> float:
        """What a kind carries in a pool beside its rates."""
        if name in _loaded(pool):
            return pool.carried.get(name, 1.0)
        return pool.instead[name] if name in pool.instead else self._seen[pool.offer.key][name]

    def nodes(self, pool: PoolPeriod, times: Mapping[str, Array]) -> Array:
        """Whole nodes that the replicas for so many times the load of each workload stand on, spares left out."""
        return whole(self.least_devices(pool, times) / pool.offer.devices)

    def least_devices(self, pool: PoolPeriod, times: Mapping[str, Array]) -> Array:
        """Devices that carry so many times the load of each workload, beside what its replicas carry.

        Nodes are bought; what runs on them can be changed. Every workload takes the least of its replicas as they
        share its load now, one kind alone, and two kinds in the numbers that fit best, each with a share of every
        length. Three kinds in other numbers are not tried, nor two that share lengths by what each is good at.
        """
        devices = np.zeros(1)
        instead = self._by_workload(name for name in pool.instead if name in self.kinds)
        for workload, names in self.workloads(pool).items():
            fillings = list(self._fillings(pool, names, instead.get(workload, ()), times[workload]))
            devices = devices + np.min(np.vstack(fillings), axis=0)
        return devices

    def _fillings(
        self, pool: PoolPeriod, names: tuple[str, ...], instead: tuple[str, ...], times: Array
    ) -> Iterator[Array]:
        """What each way to fill takes in devices."""
        own, alone = dict.fromkeys(names, 0.0), dict.fromkeys((*names, *instead), 0.0)
        for (name, demand), share in pool.load.items():
            if name in own:
                own[name] += share * self.replicas(pool, name, demand)
                for other in alone:
                    alone[other] += share * self.replicas(pool, other, demand)
        size = {name: self.kinds[name].devices for name in alone}
        yield sum((whole(own[name] * times) * size[name] for name in names), np.zeros_like(times))
        for name, needed in alone.items():
            if 0 < needed < inf:
                yield whole(needed * times) * size[name]
        beside = {name: needed / self._few(pool, name) for name, needed in alone.items() if 0 < needed < inf}
        for first, rest in permutations(beside, 2):
            # As many of one kind as fill the same devices as whole ones of the other are better all of one kind.
            counts = np.arange(1, lcm(size[first], size[rest]) // size[first])[:, np.newaxis]
            left = beside[rest] * times - counts * beside[rest] / beside[first]
            if len(counts):
                yield np.min(counts * size[first] + whole(left) * size[rest], axis=0)

    def _few(self, pool: PoolPeriod, name: str) -> float:
        """What a kind carries beside another one, of what it carries alone."""
        return 1.0 if (pool.offer.key, name) in self._serving else _BESIDE


def _seen(pools: Sequence[PoolPeriod]) -> Mapping[_OfferKey, Mapping[str, float]]:
    """By offer, what each kind carries beside its rates where it serves nothing: the least it does in other periods.

    One that serves in no period was not simulated here and carries what its rates say.
    """
    found: dict[_OfferKey, dict[str, float]] = {}
    for pool in pools:
        here = found.setdefault(pool.offer.key, {})
        for name in dict.fromkeys((*pool.replicas, *_loaded(pool))):
            factor = pool.carried.get(name, 1.0) if name in _loaded(pool) else inf
            here[name] = min(here.get(name, inf), factor)
    return {
        key: {name: 1.0 if factor == inf else factor for name, factor in here.items()} for key, here in found.items()
    }


def _loaded(pool: PoolPeriod) -> frozenset[str]:
    """The kinds that serve something."""
    return frozenset(name for name, _ in pool.load)
