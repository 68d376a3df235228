"""What does the same fleet cost in another world? Its assignment kept, its nodes counted again; many worlds at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    contract_usd: Mapping[tuple[OfferKey, int, int], Array] = field(default_factory=dict)
    """Offer, number of the contract and the period it begins in to dollars of a node."""
    kept_usd: Mapping[tuple[OfferKey, int], Array] = field(default_factory=dict)
    vendor_usd: Mapping[tuple[str, int], Array] = field(default_factory=dict)
    """Vendor and period to what using it at all costs."""
    demand: Mapping[tuple[str, int], Array] = field(default_factory=dict)
    """Workload and period to a factor on its demand."""
    gain: Mapping[tuple[str, int], Array] = field(default_factory=dict)
    """Accelerator and period to a further factor on what every replica of it carries."""


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
        stated = costs[period] if costs else 0.0
        total += present * worlds.vendor_usd.get((vendor, period), stated)
    return total


def nodes_needed(mix: Mix, problem: Problem, worlds: Worlds) -> tuple[Array, npt.NDArray[np.bool_]]:
    """How many nodes the period with most of them takes in every world, and where those of the fleet are enough."""
    resizing = _Resizing(problem, worlds)
    whole: dict[int, Array] = {}
    enough = np.ones(worlds.count, np.bool_)
    for pool in mix.pools:
        nodes = resizing.nodes(pool)
        whole[pool.period] = whole.get(pool.period, 0.0) + nodes
        enough &= nodes <= pool.nodes
    return np.max(np.vstack(list(whole.values())), axis=0), enough


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
        factor = factor * self.worlds.gain.get((pool.offer.accelerator, pool.period), 1.0)
        devices = np.zeros(self.worlds.count)
        needed: dict[str, Array] = {}
        for (name, demand), share in pool.load.items():
            replica = self.replicas[name]
            alone = share * self.rates[demand][pool.period] / self.problem.rate_of(replica, demand[1], pool.period)
            more = self.worlds.demand.get((demand[0], pool.period), 1.0)
            needed[name] = needed.get(name, 0.0) + alone * more / factor / pool.carried.get(name, 1.0)
        for name, load in needed.items():
            replicas = np.ceil(load / self.problem.utilisation_fraction - _ROUNDING)
            devices += replicas * self.replicas[name].devices
        nodes: Array = np.ceil(devices / pool.offer.devices - _ROUNDING)
        return nodes + np.where(nodes > 0, self.problem.spare_nodes, 0)

    def usd(
        self, offer: Offer, pools: Sequence[PoolPeriod], nodes: Mapping[int, Array]
    ) -> tuple[Array, Mapping[int, Array]]:
        """Keep, buy and rent as the fleet did, in the same proportions; dollars, and nodes at the site by period."""
        stock = _Stock(count=self.worlds.count, periods=self.problem.periods, lot_nodes=offer.lot_nodes)
        held: dict[int, Array] = {}
        bought: dict[int, Array] = {}
        for pool in pools:
            if pool.period < offer.first_period and pool.nodes > pool.kept_nodes:
                return np.full(self.worlds.count, np.inf), nodes
            kept = stock.keep(offer, pool, nodes[pool.period])
            count = nodes[pool.period] - kept
            stock.usd += kept * self._kept(offer, pool.period) if kept.any() else 0.0
            others = max(1, pool.nodes - pool.kept_nodes)
            bought[pool.period] = stock.buy(np.ceil(count * pool.owned_nodes / others - _ROUNDING))
            for number, had in enumerate(pool.contract_nodes):
                wanted = np.ceil(count * had / others - _ROUNDING)
                added = stock.contract(offer, number, pool.period, wanted)
                stock.usd += added * self._contract(offer, number, pool.period) if added.any() else 0.0
            lacking = np.maximum(0.0, count - stock.owned - stock.on_contract(pool.period))
            if lacking.any():
                bought[pool.period] = bought[pool.period] + self._fill(offer, pool, stock, lacking)
            held[pool.period] = kept + stock.owned
        return (stock.usd + self._cheapest_level(offer, bought) if stock.owned.any() else stock.usd), held

    def _fill(self, offer: Offer, pool: PoolPeriod, stock: "_Stock", lacking: Array) -> Array:
        """Have what is lacking by the hour, else on the shortest contract, else bought; what of it is bought."""
        nothing = np.zeros(self.worlds.count)
        if offer.rent_usd is not None:
            stock.usd += lacking * self._rent(offer, pool.period)
            return nothing
        if offer.contracts:
            added = stock.contract(offer, 0, pool.period, lacking + stock.contracts.get((0, pool.period), nothing))
            stock.usd += added * self._contract(offer, 0, pool.period)
            return nothing
        if offer.tiers and pool.period >= max(offer.first_period, offer.first_bought):
            return stock.buy(stock.owned + lacking)
        stock.usd += np.where(lacking > 0, np.inf, 0.0)
        return nothing

    def _kept(self, offer: Offer, period: int) -> Array | float:
        if offer.kept is None or period >= len(offer.kept.node_usd):
            return np.inf
        return self.worlds.kept_usd.get((offer.key, period), offer.kept.node_usd[period])

    def _contract(self, offer: Offer, number: int, period: int) -> Array | float:
        if number >= len(offer.contracts):
            return np.inf
        stated = offer.contracts[number].node_usd[period]
        return self.worlds.contract_usd.get((offer.key, number, period), stated)

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
            lots = np.ceil(np.maximum(0.0, tier.min_devices - volume) / offer.devices / offer.lot_nodes)
            lacking = lots * offer.lot_nodes
            first = min(bought)
            usd = lacking * self._price(offer, level, first)
            for period, count in bought.items():
                usd = usd + count * self._price(offer, level, period)
            best = np.minimum(best, usd)
        return best

    def _price(self, offer: Offer, level: int, period: int) -> Array | float:
        return self.worlds.bought_usd.get((offer.key, level, period), offer.tiers[level].node_usd[period])


class _Stock:
    """The nodes of one offer as periods pass, in every world."""

    def __init__(self, *, count: int, periods: int, lot_nodes: int) -> None:
        self.usd, self.owned = np.zeros(count), np.zeros(count)
        self.most_kept = np.full(count, np.inf)
        self.contracts: dict[tuple[int, int], Array] = {}
        self.count, self.periods, self.lot_nodes = count, periods, lot_nodes

    def keep(self, offer: Offer, pool: PoolPeriod, needed: Array) -> Array:
        """Keep what was kept, or more of what is owned where more is needed; never more than before."""
        if offer.kept is None or not pool.kept_nodes:
            return np.zeros(self.count)
        # A fleet that uses other nodes as well keeps as many as it did: keeping more was not worth it.
        most = offer.kept.nodes if pool.nodes == pool.kept_nodes else pool.kept_nodes
        self.most_kept = np.minimum(np.minimum(needed, most), self.most_kept)
        return self.most_kept

    def buy(self, wanted: Array) -> Array:
        """Own at least so many, bought in whole lots; what is added."""
        added = np.ceil(np.maximum(0.0, wanted - self.owned) / self.lot_nodes) * self.lot_nodes
        self.owned = self.owned + added
        return added

    def contract(self, offer: Offer, number: int, period: int, wanted: Array) -> Array:
        """Have at least so many on a contract; what is begun."""
        added = np.maximum(0.0, wanted - self.contracts.get((number, period), 0.0))
        span = offer.contracts[number].spans[period] if number < len(offer.contracts) else 1
        for later in range(period, min(self.periods, period + span)):
            self.contracts[number, later] = self.contracts.get((number, later), np.zeros(self.count)) + added
        return added

    def on_contract(self, period: int) -> Array:
        """Nodes on any contract."""
        return sum((nodes for (_, at), nodes in self.contracts.items() if at == period), np.zeros(self.count))
