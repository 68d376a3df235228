"""Defines a plan as values: workloads, accelerators, prices, sites, people, money and constraints."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from math import inf
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from penstock.errors import UsageError
from penstock.planning.saving_claim import SavingClaim
from penstock.planning.spec import default_inputs as usual
from penstock.planning.spec.sourced_inputs import Input, input_of_file
from penstock.reading.scalars import LOWER_CASE, Word, number, whole
from penstock.workload.slo import Slo

Acquisition = Literal["buy", "rent", "contract"]
"""Ways to acquire a node: purchase, rent by the hour, or rent for a term."""
ShareOf = Literal["load", "devices"]
VENDORS = ("amd", "nvidia", "intel", "google")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Requests of about one length."""

    input_tokens: int
    output_tokens: int
    rows: bytes = field(default=b"", repr=False)
    """Input and output tokens of the trace's requests, as pairs of int32; empty if all requests are about equally long.

    The pairs are stored as bytes, which are hashable, so that buckets can be compared and used as keys.
    """

    def __post_init__(self) -> None:
        if min(self.input_tokens, self.output_tokens) < 1:
            raise UsageError("a request must have at least one input token and one output token")

    @property
    def context_tokens(self) -> int:
        """Return the total tokens of a request when it ends: input plus output."""
        return self.input_tokens + self.output_tokens

    @property
    def pairs(self) -> NDArray[np.int32]:
        """Return pairs of input and output tokens, one per request of the trace, the shortest input first."""
        return np.frombuffer(self.rows, np.int32).reshape(-1, 2)

    @property
    def longest_tokens(self) -> int:
        """Return the total tokens of the longest request in the bucket."""
        return int(self.pairs.sum(axis=1).max(initial=self.context_tokens))

    def at_its_mean(self) -> "Bucket":
        """Return a copy of the bucket in which all requests have the bucket's mean length."""
        return replace(self, rows=b"")

    def __str__(self) -> str:
        return f"{self.input_tokens:,}/{self.output_tokens:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Share of a workload's requests that have about one length."""

    bucket: Bucket
    fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPrice:
    """Price of a model on an API, in dollars per million tokens."""

    input_usd_per_mtok: Annotated[float, number(high=10_000)]
    output_usd_per_mtok: Annotated[float, number(high=10_000)]
    source: str | None = None

    def tokens_usd(self, input_tokens: float, output_tokens: float) -> float:
        """Return what a number of tokens costs on the API."""
        return (input_tokens * self.input_usd_per_mtok + output_tokens * self.output_usd_per_mtok) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPlan:
    """One model and the requests it must serve at the busiest hour."""

    name: str
    model: str
    weights: tuple[str, ...]
    """Weight formats to consider; `checkpoint` is the format of the files."""
    kv: str
    mtp: bool
    """Whether a checkpoint's own multi-token-prediction layers may draft tokens for speculative decoding."""
    slo: Slo
    requests_per_s: float | None
    """Peak rate at the start of the plan."""
    demand: Input
    """Possible demand as a factor on the rate or the users."""
    users: float | None
    """Requests in flight at the peak, given instead of a rate; each request is assumed to take as long as the SLO
    allows."""
    think_s: float
    growth_per_year: Input
    mean_load: Input
    shares: tuple[Share, ...]
    trace: str | None
    """Trace that provides the lengths instead of `shares`, and the rate if no rate is given."""
    columns: Mapping[str, str]
    """Maps the meaning of a column to its name in the trace; empty if the columns are detected."""
    engines: tuple[str, ...] = ()
    """The only engines to choose from; if empty, every engine measured on an accelerator is considered."""
    disaggregated: bool = False
    """Whether prefill and decode may run on separate replicas."""
    api: "ApiPrice | None" = None
    """Price of the same model on an API: the plan's, or else a recorded one; None if neither is known."""

    @property
    def peak_requests_per_s(self) -> float:
        """Return the peak rate of the first year.

        If users are given, the rate is the number of users divided by the sum of the pause and the longest request time
        that the SLO allows.
        """
        if self.requests_per_s is not None:
            return self.requests_per_s * self.demand.value
        return self.demand.value * (self.users or 0.0) / (self.longest_request_s + self.think_s)

    @property
    def longest_request_s(self) -> float:
        """Return the longest time in seconds that a request of mean length may take within the SLO."""
        answer = sum(share.fraction * share.bucket.output_tokens for share in self.shares)
        waits_s = (
            inf
            if self.slo.ttft_s is None or self.slo.tpot_s is None
            else (self.slo.ttft_s + self.slo.tpot_s * max(0.0, answer - 1))
        )
        return min(waits_s, self.slo.e2e_s or inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Discount:
    """A price reduction on every device if at least `devices` devices are bought."""

    devices: Annotated[int, whole(low=1)]
    """Minimum number of devices bought in total, over the whole plan."""
    fraction: Annotated[float, number(high=0.99)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractPlan:
    """A rental contract with a fixed term."""

    months: int
    rent: Input
    """USD per device and hour."""
    sizes: tuple[int, ...] = ()
    """Devices per instance that can be signed besides whole nodes; see `AcceleratorPlan.instances`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPlan:
    """Nodes owned already."""

    id: str
    devices: int | None
    """Number of devices, if `nodes` is not stated."""
    nodes: int | None
    age_years: float
    book_usd: float | None
    """Book value of one node today in dollars; None if unknown."""
    resale_usd: Input
    """Proceeds in dollars from selling one node today."""
    until: date | None
    """Last day of use, because of lease, warranty or space; None if beyond the horizon."""
    site: str | None
    """Site name; None means the first site."""
    unit_devices: int | None = None
    """Devices per counted unit: 1 if the devices do not fill whole nodes, otherwise None, and nodes are counted."""
    largest_server: int | None = None
    """Devices of the largest server, if single devices are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorPlan:
    """One accelerator and the ways to acquire it."""

    id: str
    buy: Input | None = None
    """USD per device, or per node if the plan file uses `node_usd`; if None, the catalog's price is used, if there is
    one."""
    rent: Input | None = None
    """USD per device and hour; if None, the catalog's price is used, if there is one."""
    contracts: tuple[ContractPlan, ...] = ()
    """Rental contracts; if empty, the catalog's contract prices are used."""
    instances: tuple[int, ...] | None = None
    """Devices per instance that can be rented besides whole nodes; if None, the sizes of the catalog's SKUs."""
    instances_stated: bool = False
    """Whether the plan states the sizes of instances; otherwise they are the catalog's."""
    with_host: bool = False
    """Whether `buy` is the price of a server and includes its host."""
    node_devices: int | None = None
    """Devices per node according to the plan (`8xh100`); None if not stated."""
    owned_only: bool = False
    """Whether the accelerator is listed only because some nodes are owned; then no more nodes are bought."""
    lead_weeks: float | None = None
    """Weeks from order to service of purchased nodes; None if not stated."""
    discounts: tuple[Discount, ...] = ()
    available: date | None = None
    """First day on which a node can serve; None if nodes are available at once."""
    max_nodes: int | None = None
    node_watts: float | None = None
    tp: tuple[int, ...] = ()
    """The only tensor-parallel splits to consider; if empty, every split in common use is considered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePlan:
    """A location with power, and the vendors or accelerators it excludes."""

    name: str
    usd_per_kwh: Annotated[Input, input_of_file(usual.USD_PER_KWH)] = usual.USD_PER_KWH
    pue: Annotated[Input, input_of_file(usual.PUE, low=1, high=10)] = usual.PUE
    hosting_usd_per_kw_month: Annotated[Input, input_of_file(usual.HOSTING_USD)] = usual.HOSTING_USD
    power_cap_watts: Annotated[float, number(unit=1000.0)] | None = None
    """Cap on the maximum power of owned nodes, without cooling; None means no cap."""
    deny: tuple[Word, ...] = ()
    """Vendors or accelerators that export rules or policy exclude."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPlan:
    """Engineers, support and licences that a vendor's software needs."""

    engineers: Annotated[Input, input_of_file(usual.ENGINEERS)] = usual.ENGINEERS
    """Floor: extra engineers that even the smallest fleet with nodes of the vendor needs. Default: 0. Another number
    replaces those by size."""
    engineers_per_1000_devices: Annotated[Input, input_of_file(usual.ENGINEERS_BY_SIZE)] = usual.ENGINEERS_BY_SIZE
    """Extra engineers per 1,000 devices of the vendor, in addition to the floor.

    Default for AMD: 2.5, unless `engineers` states another number than 0.
    """
    support_usd_per_device_year: Annotated[Input, input_of_file(usual.SUPPORT_USD)] = usual.SUPPORT_USD
    """Support for owned hardware; rent includes support."""
    licence_usd_per_device_year: Annotated[Input, input_of_file(usual.LICENCE_USD)] = usual.LICENCE_USD
    """Software licences, for owned and rented devices."""
    software_gain_per_year: Annotated[Input, input_of_file(usual.SOFTWARE_GAIN, low=-0.5, high=3)] = usual.SOFTWARE_GAIN
    """Yearly increase in the capacity of the vendor's replicas, from newer engines, as a fraction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinancePlan:
    """Parameters for comparing money over time."""

    discount_rate: Annotated[Input, input_of_file(usual.DISCOUNT_RATE, high=1)] = usual.DISCOUNT_RATE
    depreciation_years: Annotated[Input, input_of_file(usual.DEPRECIATION_YEARS, low=0.25, high=30)] = (
        usual.DEPRECIATION_YEARS
    )
    salvage: Annotated[Input, input_of_file(usual.SALVAGE, high=1)] = usual.SALVAGE
    """Resale price of fully depreciated hardware, as a fraction of the price paid."""
    resale: Annotated[Input, input_of_file(usual.RESALE, high=1)] = usual.RESALE
    """Fraction of the difference between book value and salvage value that a sale at the end of the horizon brings."""
    price_change_per_year: Annotated[Input, input_of_file(usual.PRICE_CHANGE, low=-0.9, high=5)] = usual.PRICE_CHANGE
    """Yearly change in the prices of later purchases and rents, as a fraction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyPlan(FinancePlan):
    """Parameters for comparing money over time, and the cost of people."""

    engineer_usd_per_year: Input


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """Costs of a node other than its devices."""

    host_usd: Annotated[Input, input_of_file(usual.HOST_USD)] = usual.HOST_USD
    network_usd_per_device: Annotated[Input, input_of_file(usual.NETWORK_USD)] = usual.NETWORK_USD
    idle_power: Annotated[Input, input_of_file(usual.IDLE_POWER, high=1)] = usual.IDLE_POWER
    annual_failures: Annotated[Input, input_of_file(usual.ANNUAL_FAILURES, high=1)] = usual.ANNUAL_FAILURES


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """Rules that every answer must satisfy."""

    spare_nodes: Annotated[int, whole(high=1000)] = 1
    """Spare nodes per pool, in addition to the nodes that the peak needs; 1 means N+1."""
    utilisation: Annotated[Input, input_of_file(usual.UTILISATION, low=0.05, high=1)] = usual.UTILISATION
    confidence: Annotated[float, number(low=0.5, high=0.99)] = 0.8
    """Share of the cases in which the fleet must be enough, over the uncertainty of speed, demand and software."""
    min_vendors: Annotated[int, whole(low=1, high=len(VENDORS))] = 1
    min_vendor_share: Annotated[float, number(low=0.01, high=0.5)] | None = None
    """Minimum share of the load that a vendor must carry to count towards `min_vendors`; None means 10%."""
    max_vendor_share: Annotated[float, number(low=0.01, high=1)] | None = None
    share_of: Annotated[ShareOf, LOWER_CASE] = "load"
    """Whether a vendor's share is its share of the load, or its share of the devices that serve the load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The complete input of `penstock plan`."""

    name: str
    note: str | None
    start: date
    horizon_years: float
    step_months: int | None
    """Months between changes of the fleet.

    None for no changes, or changes every 3, 6 or 12 months if demand moves, or every year if an accelerator becomes
    available later."""
    workloads: tuple[WorkloadPlan, ...]
    accelerators: tuple[AcceleratorPlan, ...]
    """Accelerators to choose from; if empty, every verified accelerator with a price is considered."""
    owned: tuple[OwnedPlan, ...]
    orders_from: date | None
    """First possible order date; None if every order can be placed early enough."""
    acquire: tuple[Acquisition, ...]
    sites: tuple[SitePlan, ...]
    stacks: Mapping[str, StackPlan]
    """Maps vendor to the costs of its software stack; a vendor that is not listed has default costs."""
    money: MoneyPlan
    node: NodePlan
    constraints: Constraints
    claims: tuple[SavingClaim, ...]
    seed: int
    draws: int
