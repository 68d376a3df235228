"""What was asked? A plan as values: workloads, candidates, prices, sites, people, money and constraints."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from math import inf
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.audit.saving_claim import SavingClaim
from penstock.errors import UsageError
from penstock.planning.spec.sourced_inputs import Input
from penstock.workload.slo import Slo

Acquisition = Literal["buy", "rent", "contract"]
"""To own, by the hour, or for a term."""
ShareOf = Literal["load", "devices"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Requests of about one length."""

    input_tokens: int
    output_tokens: int
    rows: bytes = field(default=b"", repr=False)
    """Prompts and answers as a trace has them, as pairs of int32; empty where all are of about this one length. Bytes
    are a value: equal where they say the same, and quick to look up by."""

    def __post_init__(self) -> None:
        if min(self.input_tokens, self.output_tokens) < 1:
            raise UsageError("a request has at least one token of input and one of output")

    @property
    def context_tokens(self) -> int:
        """Tokens the request holds when it ends."""
        return self.input_tokens + self.output_tokens

    @property
    def pairs(self) -> NDArray[np.int32]:
        """Its rows, one prompt and answer each, the shortest prompt first."""
        return np.frombuffer(self.rows, np.int32).reshape(-1, 2)

    @property
    def longest_tokens(self) -> int:
        """Tokens of the longest request of it."""
        return int(self.pairs.sum(axis=1).max(initial=self.context_tokens))

    def at_its_mean(self) -> "Bucket":
        """The same as if all its requests were of one length."""
        return replace(self, rows=b"")

    def __str__(self) -> str:
        return f"{self.input_tokens:,}/{self.output_tokens:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Part of a workload: requests of about one length."""

    bucket: Bucket
    fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPlan:
    """One model and the requests it must serve at the busiest hour."""

    name: str
    model: str
    weights: tuple[str, ...]
    """Weight formats to consider; `checkpoint` is the one the files have."""
    kv: str
    mtp: bool
    """Whether a checkpoint's own multi-token-prediction layers may draft."""
    slo: Slo
    requests_per_s: float | None
    """At the peak of the first year."""
    demand: Input
    """What could come instead, as a factor on the rate or the users."""
    users: float | None
    """Requests in flight instead of a rate: each answered just within the SLO."""
    think_s: float
    growth_per_year: Input
    mean_load: Input
    shares: tuple[Share, ...]
    trace: str | None
    """A trace whose lengths, and rate where none is given, are used instead of `shares`."""
    columns: Mapping[str, str]
    """Which column of the trace is which; empty recognises or guesses them."""
    engines: tuple[str, ...] = ()
    """Engines to choose from, and no others; empty is every one that was measured on a part."""
    disaggregated: bool = False
    """Whether prompts and answers may be computed by replicas of their own."""

    @property
    def peak_requests_per_s(self) -> float:
        """The rate at the first peak. Users who wait as long as the SLO allows make their number over that time."""
        if self.requests_per_s is not None:
            return self.requests_per_s * self.demand.value
        answer = sum(share.fraction * share.bucket.output_tokens for share in self.shares)
        waits_s = (
            inf
            if self.slo.ttft_s is None or self.slo.tpot_s is None
            else (self.slo.ttft_s + self.slo.tpot_s * max(0.0, answer - 1))
        )
        return self.demand.value * (self.users or 0.0) / (min(waits_s, self.slo.e2e_s or inf) + self.think_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Discount:
    """A reduction on every device once this many are bought."""

    devices: int
    fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractPlan:
    """A rent that binds for a term."""

    months: int
    rent: Input
    """USD per device and hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPlan:
    """Nodes that stand there already."""

    id: str
    devices: int | None
    """Where `nodes` is not said."""
    nodes: int | None
    age_years: float
    book_usd: float | None
    """What the books say one node is worth today; None where nobody says."""
    resale_usd: Input
    """What selling one node today would bring."""
    until: date | None
    """When its use ends: lease, warranty or room; None is beyond the horizon."""
    site: str | None
    """None is the first site."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorPlan:
    """One accelerator as it may be acquired."""

    id: str
    buy: Input | None = None
    """USD per device, or per node in a plan file that says `node_usd`; None takes the catalog's price, if any."""
    rent: Input | None = None
    """USD per device and hour; None as above."""
    contracts: tuple[ContractPlan, ...] = ()
    """The same for a term; empty takes the catalog's."""
    with_host: bool = False
    """Whether `buy` is the price of a server and pays for its host too."""
    node_devices: int | None = None
    """How many devices the plan thinks a node has (`8xh100`); None is not said."""
    owned_only: bool = False
    """Whether it is here because nodes of it are owned, and more are not asked for."""
    lead_weeks: float | None = None
    """From order to service of what is bought; None is not said."""
    discounts: tuple[Discount, ...] = ()
    available: date | None = None
    """When the first node can serve; None is at once."""
    max_nodes: int | None = None
    node_watts: float | None = None
    tp: tuple[int, ...] = ()
    """Tensor-parallel splits to consider, and no others; empty is every split people run there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePlan:
    """A place with power, and what may not stand there."""

    name: str
    usd_per_kwh: Input
    pue: Input
    hosting_usd_per_kw_month: Input
    power_cap_watts: float | None
    """Of the owned nodes at their maximum, cooling apart; None is no cap."""
    deny: tuple[str, ...]
    """Vendors or accelerators that export rules or policy keep out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPlan:
    """What a vendor's software takes in people and contracts."""

    engineers: Input
    engineers_per_1000_devices: Input
    support_usd_per_device_year: Input
    licence_usd_per_device_year: Input
    software_gain_per_year: Input
    """How much more every replica of the vendor carries with each year's engines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyPlan:
    """How money is compared over time."""

    discount_rate: Input
    depreciation_years: Input
    salvage: Input
    resale: Input
    price_change_per_year: Input
    """Of what is bought or rented later."""
    engineer_usd_per_year: Input


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """What surrounds the devices."""

    host_usd: Input
    network_usd_per_device: Input
    idle_power: Input
    annual_failures: Input


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """What any answer must respect."""

    spare_nodes: int
    """Whole nodes each pool keeps beyond what the peak needs: 1 is N+1."""
    utilisation: Input
    min_vendors: int
    min_vendor_share: float | None
    """What each of `min_vendors` must carry at least; None is a tenth."""
    max_vendor_share: float | None
    share_of: ShareOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything `penstock plan` is asked."""

    name: str
    note: str | None
    start: date
    horizon_years: float
    step_months: int | None
    """How often the fleet may change; None is once, or yearly where demand grows or a part comes later."""
    workloads: tuple[WorkloadPlan, ...]
    parts: tuple[AcceleratorPlan, ...]
    """Empty is every verified accelerator that has a price."""
    owned: tuple[OwnedPlan, ...]
    orders_from: date | None
    """Nothing can be ordered before; None is early enough for everything."""
    acquire: tuple[Acquisition, ...]
    sites: tuple[SitePlan, ...]
    stacks: Mapping[str, StackPlan]
    """By vendor; a vendor not named takes the defaults."""
    money: MoneyPlan
    node: NodePlan
    constraints: Constraints
    claims: tuple[SavingClaim, ...]
    seed: int
    draws: int
