"""What does the same fleet cost in another world? Its assignment kept, its nodes counted again; many worlds at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.planning.optimum.problem import Mix, Offer, PoolPeriod, Problem, ReplicaKind

Array = npt.NDArray[np.float64]
_ROUNDING: Final = 1e-6

OfferKey = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Worlds:
    """Draws of what is uncertain: one entry per draw everywhere."""

    count: int
    capacity: Mapping[str, Array]
    """Factor on what every replica of an accelerator carries; 1 where it is not named."""
    bought_usd: Mapping[tuple[OfferKey, int, int], Array]
    """Offer, price level and period to dollars of a node; the problem's own where it is not named."""
    rented_usd: Mapping[tuple[OfferKey, int], Array]


def one_world(capacity: Mapping[str, float] | None = None) -> Worlds:
    """The problem as it stands, or with other capacities."""
    factors = {name: np.array([factor]) for name, factor in (capacity or {}).items()}
    return Worlds(count=1, capacity=factors, bought_usd={}, rented_usd={})


def resized_usd(mix: Mix, problem: Problem, worlds: Worlds) -> Array:
    """Cost of a fleet that keeps its assignment of lengths to pools and has as many nodes as that then takes.

    Never less than the cheapest fleet of that world: what it gives is a fleet that works, not the best one. Infinite
    where a site's power, or the number of nodes that can be had, does not allow it.
    """
    resizing = _Resizing(problem, worlds)
    total = np.zeros(worlds.count)
    drawn: dict[tuple[str, int], Array] = {}
    serving: dict[tuple[str, int], Array] = {}
    for key in dict.fromkeys(pool.offer.key for pool in mix.pools):
        pools = sorted((pool for pool in mix.pools if pool.offer.key == key), key=lambda pool: pool.period)
        offer = resizing.offer(key)
        if offer is None:
            return np.full(worlds.count, np.inf)
        nodes = {pool.period: resizing.nodes(pool) for pool in pools}
        usd, owned = resizing.usd(offer, pools, nodes)
        total += usd
        limit = problem.max_nodes.get(offer.accelerator)
        for period, count in nodes.items():
            total += np.where(count > limit, np.inf, 0.0) if limit is not None else 0.0
            drawn[offer.site, period] = drawn.get((offer.site, period), 0.0) + owned[period] * offer.node_watts
            serving[offer.vendor, period] = np.maximum(serving.get((offer.vendor, period), 0.0), count > 0)
    for (site, _), watts in drawn.items():
        total += np.where(watts > problem.site_watts.get(site, np.inf) * (1 + _ROUNDING), np.inf, 0.0)
    for (vendor, period), present in serving.items():
        costs = problem.vendor_usd.get(vendor)
        total += present * (costs[period] if costs else 0.0)
    return total


class _Resizing:
    """One problem and its worlds, indexed."""

    def __init__(self, problem: Problem, worlds: Worlds) -> None:
        self.problem, self.worlds = problem, worlds
        self.replicas: Mapping[str, ReplicaKind] = {replica.id: replica for replica in problem.replicas}
        self.rates = {demand.key: demand.requests_per_s for demand in problem.demands}
        self.offers = {offer.key: offer for offer in problem.offers}

    def offer(self, key: OfferKey) -> Offer | None:
        return self.offers.get(key)

    def nodes(self, pool: PoolPeriod) -> Array:
        """Whole nodes that whole replicas take, spares included."""
        factor = self.worlds.capacity.get(pool.offer.accelerator, np.ones(self.worlds.count))
        devices = np.zeros(self.worlds.count)
        needed: dict[str, Array] = {}
        for (name, demand), share in pool.load.items():
            replica = self.replicas[name]
            alone = share * self.rates[demand][pool.period] / replica.requests_per_s[demand[1]]
            needed[name] = needed.get(name, 0.0) + alone / factor / pool.carried.get(name, 1.0)
        for name, load in needed.items():
            replicas = np.ceil(load / self.problem.utilisation_fraction - _ROUNDING)
            devices += replicas * self.replicas[name].devices
        nodes: Array = np.ceil(devices / pool.offer.devices - _ROUNDING)
        return nodes + np.where(nodes > 0, self.problem.spare_nodes, 0)

    def usd(
        self, offer: Offer, pools: Sequence[PoolPeriod], nodes: Mapping[int, Array]
    ) -> tuple[Array, Mapping[int, Array]]:
        """Buy what was bought and rent what was rented, in the same proportions; dollars, and nodes owned by period."""
        owned, total = np.zeros(self.worlds.count), np.zeros(self.worlds.count)
        held: dict[int, Array] = {}
        bought: dict[int, Array] = {}
        for pool in pools:
            if pool.period < offer.first_period:
                return np.full(self.worlds.count, np.inf), nodes
            count = nodes[pool.period]
            wanted = np.ceil(count * pool.owned_nodes / max(1, pool.nodes) - _ROUNDING)
            bought[pool.period] = np.maximum(0.0, wanted - owned)
            owned = np.maximum(owned, wanted)
            held[pool.period] = owned
            rented = np.maximum(0.0, count - owned)
            if rented.any():
                total += rented * self._rent(offer, pool.period)
        return (total + self._cheapest_level(offer, bought) if owned.any() else total), held

    def _rent(self, offer: Offer, period: int) -> Array | float:
        if offer.rent_usd is None:
            return np.inf
        return self.worlds.rented_usd.get((offer.key, period), offer.rent_usd[period])

    def _cheapest_level(self, offer: Offer, bought: Mapping[int, Array]) -> Array:
        """Take the best price level, buying up to its least volume where that is cheaper."""
        volume = np.zeros(self.worlds.count)
        for count in bought.values():
            volume = volume + count * offer.devices
        best = np.full(self.worlds.count, np.inf)
        for level, tier in enumerate(offer.tiers):
            lacking = np.ceil(np.maximum(0.0, tier.min_devices - volume) / offer.devices)
            first = min(bought)
            usd = lacking * self._price(offer, level, first)
            for period, count in bought.items():
                usd = usd + count * self._price(offer, level, period)
            best = np.minimum(best, usd)
        return best

    def _price(self, offer: Offer, level: int, period: int) -> Array | float:
        return self.worlds.bought_usd.get((offer.key, level, period), offer.tiers[level].node_usd[period])
