"""Defines the optimization problem: the nodes on offer, the replicas that nodes can hold, the demand, and the rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from penstock.planning.spec.plan_types import ShareOf

MIN_VENDOR_SHARE: Final = 0.1
"""Minimum share of the load for a vendor to count towards "at least two vendors"; a plan may require a larger share."""

DemandKey = tuple[str, int]
"""Workload name and index of the length bucket."""
OfferKey = tuple[str, str, str]
"""Accelerator, site and unit of acquisition."""
PoolKey = tuple[OfferKey, str, int]
"""Offer, replica and period."""
HoldingKey = tuple[str, str, str, int, int]
"""Accelerator, site, unit, price level or index of the contract, and first period."""
Headroom = Mapping[tuple[str, int], float]
"""Maps replica id and period to planned capacity relative to the load at the estimated inputs; 1 if not listed."""
NODE: Final = "node"
"""Unit of an offer of whole nodes."""
DEVICE: Final = "device"
"""Unit of an offer of single devices that are owned already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Requests of one length bucket of one workload, at the peak of each period."""

    key: DemandKey
    requests_per_s: tuple[float, ...]
    tokens: int
    """Input plus output tokens of one request. A vendor's share of the load counts each request with this weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A price level. It applies to all bought nodes of an accelerator if at least `min_devices` devices are bought."""

    min_devices: int
    node_usd: tuple[float, ...]
    """All-in cost of one node from purchase to the end of the plan, in today's dollars; one entry per purchase
    period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """A rental contract for a fixed term, which is renewed until it covers at least one period."""

    months: int
    node_usd: tuple[float, ...]
    """All-in cost of one node until the contract ends, in today's dollars; one entry per period in which it may
    begin."""
    spans: tuple[int, ...]
    """Number of periods that the contract covers; one entry per period in which it may begin."""

    @property
    def signable(self) -> bool:
        """Return whether the contract covers any period; a contract that is not sold in an offer's unit covers none."""
        return any(self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Nodes owned already, which may be kept from the first period on."""

    nodes: int
    node_usd: tuple[float, ...]
    """All-in cost of one node in today's dollars, per period; there are fewer entries if the node retires early."""
    sale_usd: float = 0.0
    """Price for which one node sells today. The sale price counts as a cost of keeping the node, because a kept node is
    not sold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One accelerator at one site, in one unit of acquisition: whole nodes, instances of fewer devices, or devices.

    Other fields and types call a unit a node.
    """

    accelerator: str
    vendor: str
    site: str
    devices: int
    """Devices per unit."""
    node_watts: float
    unit: str = NODE
    """Name of the unit: `node`, `x1`, `x2` or `x4` for an instance of that many devices, or `device`, if devices that
    are owned already do not fill whole nodes."""
    nodes_per_unit: float = 1.0
    """Part of a whole node that a unit is. Limits on nodes count this part."""
    min_replica_devices: int = 1
    """Smallest replica placed on the offer. Instances hold only replicas that fit no smaller instance, because the
    price of a device does not depend on the size of its instance."""
    max_replica_devices: int | None = None
    """Largest replica that fits on the offer; None if a replica may span several nodes."""
    tiers: tuple[Tier, ...] = ()
    """Price levels; empty if the accelerator cannot be bought."""
    rent_usd: tuple[float, ...] | None = None
    """All-in cost of one node in today's dollars, per period; None if nodes cannot be rented by the hour."""
    rent_is_planned: bool = True
    """Whether a plan may rent nodes; otherwise they are rented only in draws in which the planned nodes are too few."""
    contracts: tuple[Contract, ...] = ()
    kept: Kept | None = None
    first_period: int = 0
    """First period in which a new node can serve; nodes that are owned already serve from the first period."""
    first_bought: int = 0
    """First period in which a bought node can serve, after its lead time."""
    lot_nodes: int = 1
    """Nodes per purchase lot. A rack with rack-wide links is sold whole, but its nodes are rented singly."""

    @property
    def key(self) -> OfferKey:
        """Return accelerator, site and unit."""
        return self.accelerator, self.site, self.unit

    def holds(self, replica: "ReplicaKind") -> bool:
        """Return whether replicas of a kind are placed on the offer."""
        size, most = replica.devices, self.max_replica_devices
        fits = self.min_replica_devices <= size and (most is None or size <= most)
        return replica.accelerator == self.accelerator and fits


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaKind:
    """One way to run a workload's model on an accelerator, with its capacity."""

    id: str
    accelerator: str
    workload: str
    devices: int
    """Devices per replica: a divisor of a node's devices, or whole nodes, so that devices add up exactly."""
    requests_per_s: Mapping[int, float]
    """Maps length bucket to the request rate within the SLO; buckets that this replica cannot serve are absent."""
    disaggregated: bool = False
    """Whether this kind of replica is a disaggregated unit of prefill-only and decode-only replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The complete input of the solver."""

    periods: int
    offers: tuple[Offer, ...]
    replicas: tuple[ReplicaKind, ...]
    demands: tuple[Demand, ...]
    vendor_usd: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Maps vendor to the cost per period of the extra engineers that are needed if the vendor is used at all."""
    site_watts: Mapping[str, float] = field(default_factory=dict)
    """Maps site to its power cap in watts; a site that is not listed has no cap."""
    max_nodes: Mapping[str, int] = field(default_factory=dict)
    """Maps accelerator to its maximum number of nodes over all sites."""
    spare_nodes: int = 0
    utilisation_fraction: float = 1.0
    min_vendors: int = 1
    min_vendor_share: float = MIN_VENDOR_SHARE
    max_vendor_share: float | None = None
    share_of: ShareOf = "load"
    gains: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Maps accelerator to the capacity of its replicas in each period, relative to `ReplicaKind.requests_per_s`.

    Newer engines raise the capacity over time. The factor is 1 for an accelerator that is not listed.
    """

    carried: Mapping[PoolKey, float] = field(default_factory=dict)
    """Maps pool to the simulated capacity of its replicas relative to their estimated rates; 1 if not listed."""
    headroom: Headroom | None = field(default_factory=dict)
    """Planned capacity relative to the load at the estimated inputs, so that fleets are enough with a confidence.

    None for a draw, whose speed and demand are known. Then the headroom of single fleets does not count either.
    """

    def allowed_utilisation(self, name: str, period: int) -> float:
        """Return the highest planned utilisation of a kind of replica, at the estimated speed and demand."""
        return self.utilisation_fraction / (self.headroom or {}).get((name, period), 1.0)

    def for_fleet(self, mix: "Mix") -> "Problem":
        """Return the problem with the headroom of one fleet, if that fleet has a headroom of its own."""
        if self.headroom is None or not mix.headroom:
            return self
        return replace(self, headroom={**self.headroom, **mix.headroom})

    def rate_of(self, replica: ReplicaKind, bucket: int, period: int) -> float:
        """Return the requests per second of one length that a replica carries in a period."""
        gain = self.gains.get(replica.accelerator)
        return replica.requests_per_s[bucket] * (gain[period] if gain else 1.0)

    def replicas_alone(self, replica: ReplicaKind) -> float:
        """Return how many replicas of a kind carry all the demand that this kind can serve, in the busiest period."""
        demands = self.demands_of(replica)
        busy = (
            sum(demand.requests_per_s[period] / self.rate_of(replica, demand.key[1], period) for demand in demands)
            / self.allowed_utilisation(replica.id, period)
            for period in range(self.periods)
        )
        return max(busy)

    @property
    def whole(self) -> "Problem":
        """Return a copy of the optimization problem without disaggregated units; `self` if there are none."""
        kinds = tuple(replica for replica in self.replicas if not replica.disaggregated)
        return self if len(kinds) == len(self.replicas) else replace(self, replicas=kinds)

    def of_its_kind(self, mix: "Mix") -> "Problem":
        """Return the optimization problem with which a fleet is planned again.

        The problem has disaggregated units only if the fleet has some.
        """
        units = {replica.id for replica in self.replicas if replica.disaggregated}
        return self if any(name in units for pool in mix.pools for name in pool.replicas) else self.whole

    def each_carrying(self, factor: float) -> "Problem":
        """Return a copy of the problem in which replicas of every pool carry `factor` times their estimated rates."""
        keys = (
            (offer.key, kind.id, period)
            for offer in self.offers
            for kind in self.replicas_on(offer)
            for period in range(self.periods)
        )
        return replace(self, carried=dict.fromkeys(keys, factor))

    def replicas_on(self, offer: Offer) -> tuple[ReplicaKind, ...]:
        """Return the kinds of replicas that are placed on an offer."""
        return tuple(replica for replica in self.replicas if offer.holds(replica))

    def demands_of(self, replica: ReplicaKind) -> tuple[Demand, ...]:
        """Return the demands that a kind of replica can serve."""
        served = replica.requests_per_s
        return tuple(
            demand
            for demand in self.demands
            if demand.key[0] == replica.workload and served.get(demand.key[1], 0.0) > 0
        )

    def node_bound(self, offer: Offer, times: float = 1.0) -> int:
        """Return an upper bound on nodes: the least efficient replicas serve all demand, rounded up for each kind.

        `times` is the highest demand, relative to the estimated demand and speed, that the fleet may have to serve.
        """
        replicas = self.replicas_on(offer)
        hungriest: dict[DemandKey, float] = {}
        for replica in replicas:
            for demand in self.demands_of(replica):
                most = max(
                    rate / self.allowed_utilisation(replica.id, period)
                    for period, rate in enumerate(demand.requests_per_s)
                )
                devices = most / replica.requests_per_s[demand.key[1]] * replica.devices
                hungriest[demand.key] = max(hungriest.get(demand.key, 0.0), devices)
        slowest = min((1.0, *self.gains.get(offer.accelerator, ())))
        slowest *= min((factor for (key, _, _), factor in self.carried.items() if key == offer.key), default=1.0)
        devices = sum(hungriest.values()) * times / slowest
        devices += sum(replica.devices for replica in replicas)
        least = max((ceil(tier.min_devices / offer.devices) for tier in offer.tiers), default=0)
        most = max(ceil(devices / offer.devices) + self.spare_nodes, least)
        most = ceil(most / offer.lot_nodes) * offer.lot_nodes
        limit = self.max_nodes.get(offer.accelerator)
        limits = () if limit is None else (int(limit / offer.nodes_per_unit),)
        return int(min((most, *limits)))

    def busy_share(self, pool: "PoolPeriod", name: str) -> float:
        """Return the load of one kind's replicas in a pool, as a share of the load allowed at maximum utilisation."""
        replica = next(entry for entry in self.replicas if entry.id == name)
        rates = {demand.key: demand.requests_per_s[pool.period] for demand in self.demands}
        busy = sum(
            share * rates[key] / self.rate_of(replica, key[1], pool.period)
            for (kind, key), share in pool.load.items()
            if kind == name
        )
        factor = self.carried.get((pool.offer.key, name, pool.period), 1.0)
        return busy / factor / pool.replicas[name] / self.allowed_utilisation(name, pool.period)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """A restriction on fleets: allowed vendors, required vendors, or sets of accelerators not to use together."""

    only_vendors: frozenset[str] | None = None
    require_vendors: frozenset[str] = frozenset()
    not_supports: tuple[frozenset[str], ...] = ()
    """Sets of accelerators of earlier fleets; a new fleet must lack at least one accelerator of each set."""
    only_accelerators: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPeriod:
    """Nodes of one accelerator at one site in one period, with their replicas and load."""

    offer: Offer
    period: int
    owned_nodes: int
    """Nodes bought under this plan."""
    rented_nodes: int
    """Nodes rented by the hour."""
    spare_nodes: int
    replicas: Mapping[str, int]
    """Maps replica id to number of replicas."""
    load: Mapping[tuple[str, DemandKey], float]
    """Maps replica id and demand to the share of that demand that these replicas serve."""
    kept_nodes: int = 0
    """Nodes owned before the plan."""
    contract_nodes: tuple[int, ...] = ()
    """Number of nodes on each contract, in the order of the offer's contracts."""
    carried: Mapping[str, float] = field(default_factory=dict)
    """Maps replica id to its simulated capacity in this pool, relative to the estimated rates; 1 if not listed."""
    instead: Mapping[str, float] = field(default_factory=dict)
    """Maps ids of other replica kinds that may fill these nodes to their capacity relative to the estimated rates."""

    @property
    def nodes(self) -> int:
        """Return the number of all nodes, owned and rented."""
        return self.kept_nodes + self.owned_nodes + sum(self.contract_nodes) + self.rented_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """A fleet that serves all demand, period by period."""

    cost_usd: float
    gap_fraction: float
    """Optimality gap: the best possible fleet is cheaper by at most this fraction."""
    seconds: float
    pools: tuple[PoolPeriod, ...]
    purchases: Mapping[HoldingKey, int]
    """Maps offer, price level and period to nodes bought."""
    contracts: Mapping[HoldingKey, int] = field(default_factory=dict)
    """Maps offer, index of the contract and first period to nodes on contract."""
    headroom: Headroom = field(default_factory=dict)
    """Headroom of this fleet if it differs from that of the problem, because its pools back each other up."""

    @property
    def support(self) -> frozenset[str]:
        """Return the accelerators in the fleet."""
        return frozenset(pool.offer.accelerator for pool in self.pools)

    @property
    def vendors(self) -> frozenset[str]:
        """Return the vendors in the fleet."""
        return frozenset(pool.offer.vendor for pool in self.pools)

    @property
    def label(self) -> str:
        """Return the fleet's vendor, or `mix` if it has several vendors."""
        return next(iter(self.vendors)) if len(self.vendors) == 1 else "mix"

    @property
    def identity(self) -> tuple[object, ...]:
        """Return a key that identifies a fleet: accelerators, cost to the dollar, dates of purchases and contracts."""
        return (self.support, round(self.cost_usd), tuple(sorted(self.purchases)), tuple(sorted(self.contracts)))

    @property
    def largest_nodes(self) -> int:
        """Return the number of nodes and instances in the period that has the most of them."""
        return max(sum(p.nodes for p in self.pools if p.period == at) for at in {p.period for p in self.pools})

    def nodes_of(self, accelerator: str, period: int) -> float:
        """Return the number of whole nodes of an accelerator in a period, over all sites; instances count in part."""
        pools = (p for p in self.pools if p.offer.accelerator == accelerator and p.period == period)
        return sum(pool.nodes * pool.offer.nodes_per_unit for pool in pools)

    def devices_of(self, accelerator: str, period: int) -> int:
        """Return the number of devices of an accelerator in a period, over all sites."""
        pools = (p for p in self.pools if p.offer.accelerator == accelerator and p.period == period)
        return sum(pool.nodes * pool.offer.devices for pool in pools)
