"""Computes, for many draws at once, the fewest devices that carry a pool's load if its replicas may be exchanged."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from math import inf, lcm
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.planning.optimizer.problem import DemandKey, OfferKey, PoolPeriod, Problem, ReplicaKind

Array = npt.NDArray[np.float64]
ROUNDING: Final = 1e-6
"""Tolerance, as a fraction of a replica, a node or a watt; smaller amounts count as zero."""
_COMBINED: Final = 0.85
"""Assumed relative capacity of a kind of replica that is combined with another kind without having been simulated.

The capacity is relative to the capacity of a pool with only this kind. Rates are estimated for pools of up to eight
replicas, over which bursts spread. One replica alone carried only 0.91 of its estimated rate (Llama 3.1 70B on an
H200).
"""


_AS_PREDICTED: Final[Mapping[str, Array]] = {}
"""No kind of replica is faster or slower than predicted."""


def times_at(times: Array, speed: Array | None) -> Array:
    """Return the demand relative to the capacity of replicas at this speed; infinite at speed 0."""
    if speed is None:
        return times
    with np.errstate(divide="ignore"):
        return np.asarray(np.divide(times, speed))


def whole(amount: Array) -> Array:
    """Round amounts up to whole numbers of at least 0."""
    counted: Array = np.ceil(np.maximum(0.0, amount) - ROUNDING)
    return counted


class Filling:
    """The kinds of replicas that a fleet has on each offer, and how many replicas of each kind a load needs."""

    def __init__(self, problem: Problem, pools: Sequence[PoolPeriod]) -> None:
        self.problem = problem
        self.kinds: Mapping[str, ReplicaKind] = {replica.id: replica for replica in problem.replicas}
        self.rates = {demand.key: demand.requests_per_s for demand in problem.demands}
        self._relative_capacities = _relative_capacities(pools)
        self._serving = {(pool.offer.key, name) for pool in pools for name in _loaded_kinds(pool)}

    def workloads(self, pool: PoolPeriod) -> Mapping[str, tuple[str, ...]]:
        """Map each workload to the kinds of replicas that the fleet has on the pool's offer in any period."""
        return self._by_workload(self._relative_capacities[pool.offer.key])

    def _by_workload(self, names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for name in names:
            workload = self.kinds[name].workload
            found[workload] = (*found.get(workload, ()), name)
        return found

    def replicas(self, pool: PoolPeriod, name: str, demand: DemandKey) -> float:
        """Return how many replicas of a kind carry a whole demand; infinite if this kind cannot serve its length."""
        kind, carried = self.kinds[name], self._relative_capacity(pool, name)
        allowed = self.problem.allowed_utilisation(name, pool.period)
        if carried <= 0 or allowed <= 0 or kind.requests_per_s.get(demand[1], 0.0) <= 0:
            return inf
        each = self.problem.rate_of(kind, demand[1], pool.period) * carried * allowed
        return self.rates[demand][pool.period] / each

    def _relative_capacity(self, pool: PoolPeriod, name: str) -> float:
        """Return the capacity of a kind of replica in a pool, relative to its estimated rates."""
        if name in _loaded_kinds(pool):
            return pool.carried.get(name, 1.0)
        return pool.instead[name] if name in pool.instead else self._relative_capacities[pool.offer.key][name]

    def nodes(self, pool: PoolPeriod, times: Mapping[str, Array], speed: Mapping[str, Array] = _AS_PREDICTED) -> Array:
        """Return the whole nodes that carry `times` the planned load of each workload, without spare nodes."""
        return whole(self.min_devices(pool, times, speed) / pool.offer.devices)

    def min_devices(
        self, pool: PoolPeriod, times: Mapping[str, Array], speed: Mapping[str, Array] = _AS_PREDICTED
    ) -> Array:
        """Return the fewest devices that carry `times` the planned load of each workload; infinite if none do.

        `times` is a workload's demand factor divided by the capacity factor of its accelerator, and `speed` maps kinds
        of replicas to a further factor on their capacity. The replicas on a node can
        be exchanged after the node is bought. For every workload, the best of three ways is taken: the planned kinds
        with their planned shares of the load, one kind alone, or two kinds in the best proportion, both with the same
        mix of lengths. Other proportions of three or more kinds, and different mixes of lengths for two kinds, are not
        tried.
        """
        devices = np.zeros(1)
        instead = self._by_workload(name for name in pool.instead if name in self.kinds)
        for workload, names in self.workloads(pool).items():
            each = {name: times_at(times[workload], speed.get(name)) for name in (*names, *instead.get(workload, ()))}
            fillings = list(self._fillings(pool, names, instead.get(workload, ()), each))
            devices = devices + np.min(np.vstack(fillings), axis=0)
        return devices

    def _fillings(
        self, pool: PoolPeriod, names: tuple[str, ...], instead: tuple[str, ...], times: Mapping[str, Array]
    ) -> Iterator[Array]:
        """Yield the number of devices that each way to fill the nodes needs for one workload.

        `times` maps each kind of replica to the demand relative to the kind's capacity.
        """
        own, alone = dict.fromkeys(names, 0.0), dict.fromkeys((*names, *instead), 0.0)
        for (name, demand), share in pool.load.items():
            if name in own:
                own[name] += share * self.replicas(pool, name, demand)
                for other in alone:
                    alone[other] += share * self.replicas(pool, other, demand)
        size = {name: self.kinds[name].devices for name in alone}
        used = [name for name in names if own[name] > 0]
        yield sum((whole(own[name] * times[name]) * size[name] for name in used), np.zeros_like(times[names[0]]))
        for name, needed in alone.items():
            if 0 < needed < inf:
                yield whole(needed * times[name]) * size[name]
        beside = {name: needed / self._when_combined(pool, name) for name, needed in alone.items() if 0 < needed < inf}
        for first, rest in permutations(beside, 2):
            # A count whose devices could hold whole replicas of the other kind is not tried, because one kind alone is
            # then better.
            counts = np.arange(1, lcm(size[first], size[rest]) // size[first])[:, np.newaxis]
            if len(counts):
                unserved = np.maximum(0.0, 1 - counts / (beside[first] * times[first]))
                with np.errstate(invalid="ignore"):
                    left = np.where(unserved > 0, unserved * beside[rest] * times[rest], 0.0)
                yield np.min(counts * size[first] + whole(left) * size[rest], axis=0)

    def _when_combined(self, pool: PoolPeriod, name: str) -> float:
        """Return the capacity of a kind of replica when combined with another kind, relative to its capacity alone."""
        return 1.0 if (pool.offer.key, name) in self._serving else _COMBINED


def _relative_capacities(pools: Sequence[PoolPeriod]) -> Mapping[OfferKey, Mapping[str, float]]:
    """Map offer and kind of replica to the kind's lowest capacity over the periods in which it serves on the offer.

    Capacity is relative to the estimated rates. The lowest capacity is used for periods in which the kind of replica
    serves nothing. A kind of replica that serves in no period was not simulated on the offer and is assumed to carry
    its estimated rates.
    """
    found: dict[OfferKey, dict[str, float]] = {}
    for pool in pools:
        here = found.setdefault(pool.offer.key, {})
        for name in dict.fromkeys((*pool.replicas, *_loaded_kinds(pool))):
            factor = pool.carried.get(name, 1.0) if name in _loaded_kinds(pool) else inf
            here[name] = min(here.get(name, inf), factor)
    return {
        key: {name: 1.0 if factor == inf else factor for name, factor in here.items()} for key, here in found.items()
    }


def _loaded_kinds(pool: PoolPeriod) -> frozenset[str]:
    """Return the kinds of replicas that serve any load in a pool."""
    return frozenset(name for name, _ in pool.load)
