"""Splits the nodes that a fleet needs in each draw into kept, bought, contracted and hourly nodes, as in the plan."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from penstock.planning.optimizer.problem import Offer, PoolPeriod
from penstock.planning.optimizer.refill_nodes import Array, whole


@dataclass(frozen=True, kw_only=True)
class Acquired:
    """Number of nodes kept, put on contract or rented by the hour in one period, with one entry per draw."""

    way: Literal["kept", "contract", "hour"]
    period: int
    nodes: Array
    number: int = 0
    """Index of the contract among the offer's contracts; 0 if the nodes are not on contract."""


@dataclass(kw_only=True)
class AcquiredNodes:
    """The nodes acquired from one offer in each period; every array has one entry per draw."""

    offer: Offer
    count: int
    """Number of draws."""
    acquired: list[Acquired] = field(default_factory=list)
    """All acquisitions except purchases, in order of time; entries that are zero in every draw are left out."""
    bought: dict[int, Array] = field(default_factory=dict)
    """Maps period to the number of nodes bought in that period."""
    at_site: dict[int, Array] = field(default_factory=dict)
    """Maps period to the number of kept and bought nodes, which draw the site's power."""
    lacking: Array = field(init=False)
    """Number of needed nodes that cannot be acquired in any way, summed over the periods."""
    owned: Array = field(init=False)
    """Number of nodes bought so far."""
    _max_kept: Array = field(init=False)
    _on_contract: dict[tuple[int, int], Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lacking, self.owned = np.zeros(self.count), np.zeros(self.count)
        self._max_kept = np.full(self.count, np.inf)

    def add(self, pool: PoolPeriod, needed: Array, kept_later: Array) -> None:
        """Acquire the nodes of one period in the planned proportions; then rent, contract or buy any missing nodes.

        At least `kept_later` owned nodes are kept, because a node that is sold cannot serve in a later period.
        """
        kept = self._keep(pool, np.maximum(needed, kept_later))
        count = np.maximum(0.0, needed - kept)
        others = max(1, pool.nodes - pool.kept_nodes)
        self.bought[pool.period] = self._buy(whole(count * pool.owned_nodes / others))
        for number, nodes in enumerate(pool.contract_nodes):
            self._sign(number, pool.period, whole(count * nodes / others))
        signed = (nodes for (_, period), nodes in self._on_contract.items() if period == pool.period)
        lacking = np.maximum(0.0, count - self.owned - sum(signed, np.zeros(self.count)))
        if lacking.any():
            self._fill(pool.period, lacking)
        self.at_site[pool.period] = kept + self.owned

    def nodes_to_reach_levels(self) -> Iterator[Array]:
        """Yield, for each price level of the offer, the extra nodes that must be bought to reach its minimum."""
        offer, volume = self.offer, np.zeros(self.count)
        for count in self.bought.values():
            volume = volume + count * offer.devices
        for tier in offer.tiers:
            lots = np.ceil(np.maximum(0.0, tier.min_devices - volume) / offer.devices / offer.lot_nodes)
            yield lots * offer.lot_nodes

    def _keep(self, pool: PoolPeriod, needed: Array) -> Array:
        """Keep the owned nodes that are needed and return their number, which never increases from period to period."""
        if self.offer.kept is None or not pool.kept_nodes:
            return np.zeros(self.count)
        self._max_kept = np.minimum(np.minimum(needed, _keepable(self.offer, pool)), self._max_kept)
        if self._max_kept.any():
            self.acquired.append(Acquired(way="kept", period=pool.period, nodes=self._max_kept))
        return self._max_kept

    def _buy(self, wanted: Array) -> Array:
        """Buy whole lots until at least `wanted` nodes have been bought; return the number of nodes added."""
        lot = self.offer.lot_nodes
        added: Array = np.ceil(np.maximum(0.0, wanted - self.owned) / lot) * lot
        self.owned = self.owned + added
        return added

    def _sign(self, number: int, period: int, wanted: Array) -> None:
        """Put more nodes on contract `number`, so that at least `wanted` nodes are on this contract in the period."""
        added = np.maximum(0.0, wanted - self._on_contract.get((number, period), 0.0))
        contracts = self.offer.contracts
        span = contracts[number].spans[period] if number < len(contracts) else 1
        for later in range(period, period + span):
            self._on_contract[number, later] = self._on_contract.get((number, later), np.zeros(self.count)) + added
        if added.any():
            self.acquired.append(Acquired(way="contract", number=number, period=period, nodes=added))

    def _fill(self, period: int, lacking: Array) -> None:
        """Rent missing nodes by the hour if possible, else on the shortest contract, else buy them."""
        offer = self.offer
        shortest = next((number for number, contract in enumerate(offer.contracts) if contract.signable), None)
        if offer.rent_usd is not None:
            self.acquired.append(Acquired(way="hour", period=period, nodes=lacking))
        elif shortest is not None:
            self._sign(shortest, period, lacking + self._on_contract.get((shortest, period), 0.0))
        elif offer.tiers and period >= max(offer.first_period, offer.first_bought):
            self.bought[period] = self.bought[period] + self._buy(self.owned + lacking)
        else:
            self.lacking = self.lacking + lacking


def _keepable(offer: Offer, pool: PoolPeriod) -> int:
    """Return how many owned nodes may be kept: the planned number, or all if the pool has only owned nodes.

    A fleet that also uses new nodes keeps at most as many as planned, because keeping more was not worth it.
    """
    if offer.kept is None or not pool.kept_nodes:
        return 0
    return offer.kept.nodes if pool.nodes == pool.kept_nodes else pool.kept_nodes


def acquire_nodes(offer: Offer, pools: Sequence[PoolPeriod], needed: Mapping[int, Array], worlds: int) -> AcquiredNodes:
    """Acquire the nodes that an offer's pools need in each period, for every draw."""
    nodes = AcquiredNodes(offer=offer, count=worlds)
    in_time = sorted(pools, key=lambda pool: pool.period)
    later = [np.zeros(worlds)]
    for pool in reversed(in_time):
        later.append(np.maximum(later[-1], np.minimum(needed[pool.period], _keepable(offer, pool))))
    for pool, kept_later in zip(in_time, reversed(later[:-1]), strict=True):
        nodes.add(pool, needed[pool.period], kept_later)
    return nodes
