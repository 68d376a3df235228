"""What exactly is optimised? Nodes that may be had, replicas they may hold, demand to serve, and the rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from penstock.planning.spec.plan_types import ShareOf

MIN_VENDOR_SHARE: Final = 0.1
"""A vendor counts towards "at least two vendors" when it carries this much of the load; a plan may ask for more."""

DemandKey = tuple[str, int]
"""Workload and number of the length bucket."""
PoolKey = tuple[tuple[str, str], str, int]
"""Offer, replica and period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Requests of one length of one workload, at the peak of each period."""

    key: DemandKey
    requests_per_s: tuple[float, ...]
    tokens: int
    """Input and output of one request: its weight in shares of load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A price level: from so many devices of an accelerator on, every node bought costs this."""

    min_devices: int
    node_usd: tuple[float, ...]
    """All-in today's dollars of one node, by the period it is bought in, kept to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """A rent for a term, renewed as often as one period takes."""

    months: int
    node_usd: tuple[float, ...]
    """All-in today's dollars of one node to the end of its term, by the period it begins in."""
    spans: tuple[int, ...]
    """Periods it serves, by the period it begins in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Nodes owned already: kept from the first period on, for as long as they pay."""

    nodes: int
    node_usd: tuple[float, ...]
    """All-in today's dollars of one node for each period it may serve; shorter than the horizon where its use ends."""
    sale_usd: float = 0.0
    """What one is sold for today. Keeping one counts that as a cost, so a fleet that sells it is billed nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One accelerator at one site."""

    accelerator: str
    vendor: str
    site: str
    devices: int
    """In a node."""
    node_watts: float
    tiers: tuple[Tier, ...] = ()
    """Empty where it cannot be bought."""
    rent_usd: tuple[float, ...] | None = None
    """All-in today's dollars of one node for each period; None where it cannot be rented."""
    contracts: tuple[Contract, ...] = ()
    kept: Kept | None = None
    first_period: int = 0
    """When the first node can serve; one that is owned serves at once."""
    first_bought: int = 0
    """When the first node that is bought can serve: orders take time."""
    lot_nodes: int = 1
    """Nodes are bought so many at a time: a rack whose links span it is sold whole. Rents are of single nodes."""

    @property
    def key(self) -> tuple[str, str]:
        """Accelerator and site."""
        return self.accelerator, self.site


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaKind:
    """One way to run a workload's model on an accelerator, and what it carries."""

    id: str
    accelerator: str
    workload: str
    devices: int
    """What it takes from its nodes: a divisor of a node's devices or whole nodes, so that devices add up exactly."""
    requests_per_s: Mapping[int, float]
    """By length bucket, within the SLO; a bucket it cannot serve is not here."""
    apart: bool = False
    """Whether it is a unit of replicas that only prefill and replicas that only decode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Everything the solver sees."""

    periods: int
    offers: tuple[Offer, ...]
    replicas: tuple[ReplicaKind, ...]
    demands: tuple[Demand, ...]
    vendor_usd: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """What using a vendor at all costs in each period: engineers."""
    site_watts: Mapping[str, float] = field(default_factory=dict)
    """Power caps; a site not named has none."""
    max_nodes: Mapping[str, int] = field(default_factory=dict)
    """By accelerator, over all sites."""
    spare_nodes: int = 0
    utilisation_fraction: float = 1.0
    min_vendors: int = 1
    min_vendor_share: float = MIN_VENDOR_SHARE
    max_vendor_share: float | None = None
    share_of: ShareOf = "load"
    gains: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By accelerator, what a replica carries in each period beside today: newer engines; 1 where it is not named."""

    carried: Mapping[PoolKey, float] = field(default_factory=dict)
    """What a pool was seen to carry beside what the rates of its replicas say; 1 where it is not named."""

    def rate_of(self, replica: ReplicaKind, bucket: int, period: int) -> float:
        """Requests per second of one length that a replica carries in a period."""
        gain = self.gains.get(replica.accelerator)
        return replica.requests_per_s[bucket] * (gain[period] if gain else 1.0)

    def replicas_alone(self, replica: ReplicaKind) -> float:
        """How many of a kind would carry all of its workload that they can, in the period that asks for most."""
        demands = self.demands_of(replica)
        busy = (
            sum(demand.requests_per_s[period] / self.rate_of(replica, demand.key[1], period) for demand in demands)
            for period in range(self.periods)
        )
        return max(busy) / self.utilisation_fraction

    @property
    def whole(self) -> "Problem":
        """The same with replicas that prefill and decode alone; itself where there are no others."""
        kinds = tuple(replica for replica in self.replicas if not replica.apart)
        return self if len(kinds) == len(self.replicas) else replace(self, replicas=kinds)

    def of_its_kind(self, mix: "Mix") -> "Problem":
        """What a fleet is planned again with: without units where it has none."""
        units = {replica.id for replica in self.replicas if replica.apart}
        return self if any(name in units for pool in mix.pools for name in pool.replicas) else self.whole

    def each_carrying(self, factor: float) -> "Problem":
        """The same with replicas that carry so many times what their rates say, in every pool."""
        keys = (
            (offer.key, kind.id, period)
            for offer in self.offers
            for kind in self.replicas_on(offer.accelerator)
            for period in range(self.periods)
        )
        return replace(self, carried=dict.fromkeys(keys, factor))

    def replicas_on(self, accelerator: str) -> tuple[ReplicaKind, ...]:
        """The kinds that run there."""
        return tuple(replica for replica in self.replicas if replica.accelerator == accelerator)

    def demands_of(self, replica: ReplicaKind) -> tuple[Demand, ...]:
        """What a kind can serve."""
        served = replica.requests_per_s
        return tuple(
            demand
            for demand in self.demands
            if demand.key[0] == replica.workload and served.get(demand.key[1], 0.0) > 0
        )

    def most_nodes(self, offer: Offer) -> int:
        """Nodes nobody could need more of: everything served by the hungriest replica, each kind rounded up."""
        replicas = self.replicas_on(offer.accelerator)
        hungriest: dict[DemandKey, float] = {}
        for replica in replicas:
            for demand in self.demands_of(replica):
                devices = max(demand.requests_per_s) / replica.requests_per_s[demand.key[1]] * replica.devices
                hungriest[demand.key] = max(hungriest.get(demand.key, 0.0), devices)
        slowest = min((1.0, *self.gains.get(offer.accelerator, ())))
        slowest *= min((factor for (key, _, _), factor in self.carried.items() if key == offer.key), default=1.0)
        devices = sum(hungriest.values()) / self.utilisation_fraction / slowest
        devices += sum(replica.devices for replica in replicas)
        least = max((ceil(tier.min_devices / offer.devices) for tier in offer.tiers), default=0)
        most = max(ceil(devices / offer.devices) + self.spare_nodes, least)
        most = ceil(most / offer.lot_nodes) * offer.lot_nodes
        limit = self.max_nodes.get(offer.accelerator)
        return most if limit is None else min(most, limit)

    def busy_share(self, pool: "PoolPeriod", name: str) -> float:
        """How busy the replicas of one kind are, of the use of them that is allowed."""
        replica = next(entry for entry in self.replicas if entry.id == name)
        rates = {demand.key: demand.requests_per_s[pool.period] for demand in self.demands}
        busy = sum(
            share * rates[key] / self.rate_of(replica, key[1], pool.period)
            for (kind, key), share in pool.load.items()
            if kind == name
        )
        factor = self.carried.get((pool.offer.key, name, pool.period), 1.0)
        return busy / factor / pool.replicas[name] / self.utilisation_fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """What a question adds to the problem: only these vendors, all of these vendors, or not these sets again."""

    only_vendors: frozenset[str] | None = None
    require_vendors: frozenset[str] = frozenset()
    not_supports: tuple[frozenset[str], ...] = ()
    """Sets of accelerators already answered; the next best does not use all of any of them."""
    only_accelerators: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPeriod:
    """The nodes of one accelerator at one site in one period and what runs on them."""

    offer: Offer
    period: int
    owned_nodes: int
    """Bought under this plan."""
    rented_nodes: int
    """By the hour."""
    spare_nodes: int
    replicas: Mapping[str, int]
    """Replica id to count."""
    load: Mapping[tuple[str, DemandKey], float]
    """Replica id and demand to the share of that demand it serves."""
    kept_nodes: int = 0
    """Owned before."""
    contract_nodes: tuple[int, ...] = ()
    """By the number of the offer's contract."""
    carried: Mapping[str, float] = field(default_factory=dict)
    """Replica id to what it was seen to carry here beside its rates; 1 where it is not named."""
    instead: Mapping[str, float] = field(default_factory=dict)
    """Replica ids of kinds the fleet has none of here and that its nodes may be filled with, to what those carry."""

    @property
    def nodes(self) -> int:
        """Owned and rented, however."""
        return self.kept_nodes + self.owned_nodes + sum(self.contract_nodes) + self.rented_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """A fleet that serves everything, period by period."""

    cost_usd: float
    gap_fraction: float
    """How much cheaper the best possible fleet could still be."""
    seconds: float
    pools: tuple[PoolPeriod, ...]
    purchases: Mapping[tuple[str, str, int, int], int]
    """Accelerator, site, price level and period to nodes bought."""
    contracts: Mapping[tuple[str, str, int, int], int] = field(default_factory=dict)
    """Accelerator, site, number of the contract and the period it begins in to nodes."""

    @property
    def support(self) -> frozenset[str]:
        """The accelerators in it."""
        return frozenset(pool.offer.accelerator for pool in self.pools)

    @property
    def vendors(self) -> frozenset[str]:
        """The vendors in it."""
        return frozenset(pool.offer.vendor for pool in self.pools)

    @property
    def label(self) -> str:
        """The vendor, or `mix`."""
        return next(iter(self.vendors)) if len(self.vendors) == 1 else "mix"

    @property
    def identity(self) -> tuple[object, ...]:
        """What tells two fleets apart: their parts, their cost to a dollar and when what is bought."""
        return (self.support, round(self.cost_usd), tuple(sorted(self.purchases)), tuple(sorted(self.contracts)))

    def nodes_of(self, accelerator: str, period: int) -> int:
        """Nodes of an accelerator in a period, over all sites."""
        return sum(p.nodes for p in self.pools if p.offer.accelerator == accelerator and p.period == period)
