"""Prices a fleet for many draws of the inputs at once, by refilling its pools and recounting its nodes.

When an input changes (a demand, price, capacity or rule), a fleet is evaluated again in one of two ways.

*Resized*: the fleet keeps its accelerators and their shares of the load. No integer program is solved, so thousands of
draws are priced at once. The steps are `refill_nodes` (how many devices the load of a pool needs), `reassign_load`
(whether the planned pools carry the load together), `acquire_nodes` (how the nodes are acquired) and this module (what
the nodes cost). For the interactive controls of the report, `uncertainty/rebill` refills and acquires nodes in the same
way, but counts units of billing instead of dollars.

*Solved again*: the integer program may choose other accelerators. `uncertainty/solve_again` solves again with simulated
capacities, for flips, rules and demand scenarios. `uncertainty/monte_carlo` solves again for a few draws.

`load_balance` neither resizes nor solves again: it spreads the load of a chosen fleet at the plan's own inputs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from penstock.planning.optimizer.acquire_nodes import Acquired, AcquiredNodes, acquire_nodes
from penstock.planning.optimizer.problem import Mix, Offer, OfferKey, PoolPeriod, Problem
from penstock.planning.optimizer.reassign_load import PoolDemand, reassign_overflow
from penstock.planning.optimizer.refill_nodes import ROUNDING, Array, Filling


@dataclass(frozen=True, kw_only=True)
class Worlds:
    """Draws of the uncertain inputs; every array has one entry per draw."""

    count: int
    capacity: Mapping[str, Array]
    """Maps accelerator to a factor on the capacity of its replicas; 1 if not listed."""
    bought_usd: Mapping[tuple[OfferKey, int, int], Array]
    """Maps offer, price level and period to dollars per bought node; the price in the problem applies if not listed."""
    rented_usd: Mapping[tuple[OfferKey, int], Array]
    contract_usd: Mapping[tuple[OfferKey, int, int], Array] = field(default_factory=dict)
    """Maps offer, index of the contract and first period of the contract to dollars per node."""
    kept_usd: Mapping[tuple[OfferKey, int], Array] = field(default_factory=dict)
    vendor_usd: Mapping[tuple[str, int], Array] = field(default_factory=dict)
    """Maps vendor and period to the cost of the extra engineers that are needed if the vendor is used at all."""
    demand: Mapping[tuple[str, int], Array] = field(default_factory=dict)
    """Maps workload and period to a factor on the workload's demand."""
    gain: Mapping[tuple[str, int], Array] = field(default_factory=dict)
    """Maps accelerator and period to a further factor on the capacity of the accelerator's replicas."""
    speed: Mapping[str, Array] = field(default_factory=dict)
    """Maps replica id to a further factor on the capacity of these replicas; 1 if not listed.

    The factor is 0 in draws in which the replica is so slow that it misses its SLO at any rate.
    """


def one_world(capacity: Mapping[str, float] | None = None) -> Worlds:
    """Return a single draw, with the problem's own prices and demand and with the given capacity factors."""
    factors = {name: np.array([factor]) for name, factor in (capacity or {}).items()}
    return Worlds(count=1, capacity=factors, bought_usd={}, rented_usd={})


HeldNodes = Mapping[OfferKey, tuple[Mapping[int, Array], AcquiredNodes]]
"""Maps offer to its nodes by period, and to the ways in which they are acquired."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _ResizedNodes:
    """The nodes of each pool that a fleet needs in each draw. They depend on load and capacity, not on prices."""

    served: npt.NDArray[np.bool_]
    """Whether any number of nodes meets the SLO."""
    resized: HeldNodes
    as_planned: HeldNodes | None
    """The planned nodes in draws in which all pools together carry the load; None if there is no such draw."""


def resized_usd(mix: Mix, problem: Problem, worlds: Worlds, *, signed: bool = False) -> Array:
    """Return, for each draw, the cost of a fleet that is resized to the nodes that its load needs in that draw.

    If `signed` is true, the planned nodes are kept in every draw, and the nodes that are missing in a draw are added.

    Each offer keeps its share of each length bucket, and its nodes are refilled with replicas. The fleet may stay as
    planned if it carries all load with a different distribution of requests over its pools. The cost may be
    overestimated, never underestimated: the resized fleet is feasible, but not always the cheapest. The cost is
    infinite if a site's power cap or a limit on nodes forbids the fleet, or if its replicas miss the SLO at any rate.
    """
    resizing = _Resizing(mix, problem, worlds)
    if any(pool.offer.key not in resizing.offers for pool in mix.pools):
        return np.full(worlds.count, np.inf)
    found = _resize_nodes(resizing, signed=signed)
    usd = np.where(found.served, resizing.fleet_usd(found.resized), np.inf)
    return usd if found.as_planned is None else np.minimum(usd, resizing.fleet_usd(found.as_planned))


def signed_usd(mix: Mix, others: Sequence[Mix], problem: Problem, worlds: Worlds) -> Array:
    """Return, for each draw, the cost of a planned fleet and of the nodes that the draw needs beyond it.

    If a fleet's own accelerators are too few in a draw and cannot be added to, because they are owned or limited, the
    planned nodes are kept and the cheapest of `others` serves with them. The cost may be overestimated, because the
    other fleet carries its share of the load without the help of planned nodes of other accelerators.
    """
    usd = resized_usd(mix, problem, worlds, signed=True)
    lost = ~np.isfinite(usd)
    if lost.any():
        joined = [_joined_usd(mix, other, problem, worlds) for other in others if other.identity != mix.identity]
        usd = np.where(lost, np.min(np.vstack([usd, *joined]), axis=0), usd)
    return usd


def _joined_usd(mix: Mix, other: Mix, problem: Problem, worlds: Worlds) -> Array:
    """Return, for each draw, the cost of the nodes that another fleet needs and of the planned nodes of a fleet."""
    planned = {_at(pool): pool for pool in mix.pools}
    both = replace(mix, pools=(*mix.pools, *(pool for pool in other.pools if _at(pool) not in planned)))
    serving, resizing = _Resizing(other, problem, worlds), _Resizing(both, problem, worlds)
    if any(pool.offer.key not in resizing.offers for pool in both.pools):
        return np.full(worlds.count, np.inf)
    needed = {_at(pool): serving.nodes(pool) for pool in other.pools}
    served = np.all([np.isfinite(count) for count in needed.values()], axis=0)
    nodes = {}
    for pool in both.pools:
        signed = planned[_at(pool)].nodes if _at(pool) in planned else 0
        nodes[_at(pool)] = np.maximum(np.where(served, needed.get(_at(pool), 0.0), 0.0), signed)
    return np.where(served, resizing.fleet_usd(resizing.acquire(nodes)), np.inf)


def priced_ways(mix: Mix, problem: Problem, world: Worlds) -> Iterator[HeldNodes]:
    """Yield the allowed ways to acquire a fleet in a single draw. `resized_usd` computes the cost of each.

    Every offer of the fleet must be in the problem.
    """
    resizing = _Resizing(mix, problem, world)
    found = _resize_nodes(resizing, signed=False)
    ways = (found.resized if found.served[0] else None, found.as_planned)
    yield from (held for held in ways if held is not None and np.isfinite(resizing.fleet_usd(held)[0]))


def _resize_nodes(resizing: "_Resizing", *, signed: bool) -> _ResizedNodes:
    """Count the nodes that a fleet needs in each draw."""
    mix = resizing.mix
    nodes = {_at(pool): resizing.nodes(pool) for pool in mix.pools}
    served = np.all([np.isfinite(count) for count in nodes.values()], axis=0)
    nodes = {_at(pool): np.where(served, nodes[_at(pool)], pool.nodes) for pool in mix.pools}
    if signed:
        nodes = {_at(pool): np.maximum(nodes[_at(pool)], pool.nodes) for pool in mix.pools}
    together = {period: resizing.together(period) for period in resizing.shared_periods}
    if not any(found.any() for found in together.values()):
        return _ResizedNodes(served=served, resized=resizing.acquire(nodes), as_planned=None)
    as_planned = {
        _at(pool): np.where(together.get(pool.period, False), pool.nodes, nodes[_at(pool)]) for pool in mix.pools
    }
    return _ResizedNodes(served=served, resized=resizing.acquire(nodes), as_planned=resizing.acquire(as_planned))


def nodes_needed(mix: Mix, problem: Problem, worlds: Worlds) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return, for each draw, the nodes needed in the largest period, and whether the planned nodes are enough.

    The planned nodes are enough if every refilled pool carries its own load, or if all planned pools together carry the
    load.
    """
    resizing = _Resizing(mix, problem, worlds)
    most = np.zeros(worlds.count)
    enough = np.ones(worlds.count, np.bool_)
    for period in {pool.period for pool in mix.pools}:
        pools = [pool for pool in mix.pools if pool.period == period]
        needed = [resizing.nodes(pool) for pool in pools]
        alone = np.all([nodes <= pool.nodes for nodes, pool in zip(needed, pools, strict=True)], axis=0)
        planned, taken = sum(pool.nodes for pool in pools), np.sum(needed, axis=0)
        together = resizing.together(period) if period in resizing.shared_periods else alone
        most = np.maximum(most, np.where(together, np.minimum(taken, planned), taken))
        enough &= alone | together
    return most, enough


def exceeds(amount: Array, limit: float | None) -> npt.NDArray[np.bool_]:
    """Return whether each amount exceeds a limit by more than the tolerance; never if there is no limit."""
    most = np.inf if limit is None else limit * (1 + ROUNDING)
    return np.asarray(amount > most)


_PoolAt = tuple[OfferKey, int]


def _at(pool: PoolPeriod) -> _PoolAt:
    return pool.offer.key, pool.period


class _Resizing:
    """A fleet, its problem and the draws, indexed for quick lookup."""

    def __init__(self, mix: Mix, problem: Problem, worlds: Worlds) -> None:
        self.mix, self.problem, self.worlds = mix, problem.for_fleet(mix), worlds
        self.offers = {offer.key: offer for offer in problem.offers}

    @cached_property
    def filling(self) -> Filling:
        """Return the kinds of replicas on each offer."""
        return Filling(self.problem, self.mix.pools)

    @property
    def shared_periods(self) -> frozenset[int]:
        """Return the periods in which several pools serve."""
        periods = [pool.period for pool in self.mix.pools]
        return frozenset(period for period in periods if periods.count(period) > 1)

    def together(self, period: int) -> npt.NDArray[np.bool_]:
        """Return, for each draw, whether a period's planned pools carry all load if requests may go to any pool."""
        asked = [
            PoolDemand(pool=pool, times=self.times(pool), demand=self.demand(pool), speed=self.worlds.speed)
            for pool in self.mix.pools
            if pool.period == period
        ]
        return np.broadcast_to(reassign_overflow(asked, self.filling), self.worlds.count)

    def acquire(self, nodes: Mapping[_PoolAt, Array]) -> HeldNodes:
        """Return how the nodes of each offer are acquired in every draw."""
        found: dict[OfferKey, tuple[dict[int, Array], AcquiredNodes]] = {}
        for key in dict.fromkeys(pool.offer.key for pool in self.mix.pools):
            pools = self.pools_of(key)
            counts = {pool.period: nodes[_at(pool)] for pool in pools}
            offer = self.offers.get(key, pools[0].offer)
            found[key] = counts, acquire_nodes(offer, pools, counts, self.worlds.count)
        return found

    def pools_of(self, key: OfferKey) -> list[PoolPeriod]:
        """Return the pools of an offer, sorted by period."""
        return sorted((pool for pool in self.mix.pools if pool.offer.key == key), key=lambda pool: pool.period)

    def fleet_usd(self, held: HeldNodes) -> Array:
        """Return, for each draw, the cost of a fleet with these nodes per pool, including engineers.

        The cost is infinite in draws where limits forbid the fleet.
        """
        total = np.zeros(self.worlds.count)
        drawn: dict[tuple[str, int], Array] = {}
        serving: dict[tuple[str, int], Array] = {}
        used: dict[tuple[str, int], Array] = {}
        for key, (counts, acquired) in held.items():
            offer = self.offers[key]
            usd, owned = self.usd(offer, counts, acquired)
            total += usd
            for period, count in counts.items():
                at = (offer.accelerator, period)
                used[at] = used.get(at, 0.0) + count * offer.nodes_per_unit
                drawn[offer.site, period] = drawn.get((offer.site, period), 0.0) + owned[period] * offer.node_watts
                serving[offer.vendor, period] = np.maximum(serving.get((offer.vendor, period), 0.0), count > 0)
        for (site, _), watts in drawn.items():
            total += np.where(exceeds(watts, self.problem.site_watts.get(site)), np.inf, 0.0)
        for (accelerator, _), count in used.items():
            total += np.where(exceeds(count, self.problem.max_nodes.get(accelerator)), np.inf, 0.0)
        for (vendor, period), present in serving.items():
            costs = self.problem.vendor_usd.get(vendor)
            stated = costs[period] if costs else 0.0
            total += present * self.worlds.vendor_usd.get((vendor, period), stated)
        return total

    def nodes(self, pool: PoolPeriod) -> Array:
        """Return the number of whole nodes that a pool needs in each draw, including spare nodes."""
        nodes = self.filling.nodes(pool, self.times(pool), self.worlds.speed)
        return np.zeros(self.worlds.count) + nodes + np.where(nodes > 0, self.problem.spare_nodes, 0)

    def times(self, pool: PoolPeriod) -> Mapping[str, Array]:
        """Return each workload's demand factor divided by the capacity factor of the pool's replicas."""
        carried = self.worlds.capacity.get(pool.offer.accelerator, np.ones(self.worlds.count))
        carried = carried * self.worlds.gain.get((pool.offer.accelerator, pool.period), 1.0)
        return {workload: factor / carried for workload, factor in self.demand(pool).items()}

    def demand(self, pool: PoolPeriod) -> Mapping[str, Array]:
        """Return the factor on the requests of each workload of a pool."""
        stated = np.ones(self.worlds.count)
        return {
            workload: self.worlds.demand.get((workload, pool.period), stated)
            for workload in self.filling.workloads(pool)
        }

    def usd(self, offer: Offer, nodes: Mapping[int, Array], held: AcquiredNodes) -> tuple[Array, Mapping[int, Array]]:
        """Return the cost of an offer's nodes, and the nodes per period that draw the site's power."""
        early = (pool for pool in self.mix.pools if pool.offer.key == offer.key and pool.period < offer.first_period)
        if any(pool.nodes > pool.kept_nodes for pool in early):
            return np.full(self.worlds.count, np.inf), nodes
        usd = np.zeros(self.worlds.count)
        for entry in held.acquired:
            usd += entry.nodes * self._node_usd(offer, entry)
        usd += np.where(held.lacking > 0, np.inf, 0.0)
        return (usd + self._cheapest_level(offer, held) if held.owned.any() else usd), held.at_site

    def _node_usd(self, offer: Offer, entry: Acquired) -> Array | float:
        if entry.way == "kept":
            return self._kept_usd(offer, entry.period)
        return self._rent(offer, entry.period) if entry.way == "hour" else self._contract(offer, entry)

    def _kept_usd(self, offer: Offer, period: int) -> Array | float:
        if offer.kept is None or period >= len(offer.kept.node_usd):
            return np.inf
        return self.worlds.kept_usd.get((offer.key, period), offer.kept.node_usd[period])

    def _contract(self, offer: Offer, entry: Acquired) -> Array | float:
        if entry.number >= len(offer.contracts):
            return np.inf
        stated = offer.contracts[entry.number].node_usd[entry.period]
        return self.worlds.contract_usd.get((offer.key, entry.number, entry.period), stated)

    def _rent(self, offer: Offer, period: int) -> Array | float:
        if offer.rent_usd is None:
            return np.inf
        return self.worlds.rented_usd.get((offer.key, period), offer.rent_usd[period])

    def _cheapest_level(self, offer: Offer, held: AcquiredNodes) -> Array:
        """Return the cost at the cheapest price level, including extra nodes bought to reach the level's minimum."""
        best, first = np.full(self.worlds.count, np.inf), min(held.bought)
        for level, lacking in enumerate(held.nodes_to_reach_levels()):
            usd = lacking * self._price(offer, level, first)
            for period, count in held.bought.items():
                usd = usd + count * self._price(offer, level, period)
            best = np.minimum(best, usd)
        return best

    def _price(self, offer: Offer, level: int, period: int) -> Array | float:
        return self.worlds.bought_usd.get((offer.key, level, period), offer.tiers[level].node_usd[period])
