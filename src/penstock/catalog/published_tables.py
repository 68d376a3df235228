"""Describes public tables that are not rows of one deployment: acceptance lengths, MLPerf, fleets, API prices."""

from dataclasses import dataclass
from datetime import date
from typing import Literal

DraftMethod = Literal["mtp", "eagle3", "dspark"]
Workload = Literal["speed_bench_coding", "gsm8k", "agentic_trace", "random_tokens", "random_tokens_in_chat_template"]
MlperfScenario = Literal["offline", "server", "interactive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceLength:
    """Published number of tokens that a step of speculative decoding yields. The workload decides it most."""

    id: str
    source: str
    model: str
    weights: str
    engine: str
    date: date
    drafted: DraftMethod
    draft_tokens: int
    """Tokens drafted per step."""
    workload: Workload
    accepted_length: float
    """Mean number of tokens that a step yields, including the target model's own."""
    ref: str = ""
    accelerator: str = ""
    thinking: bool | None = None
    """Whether the model reasoned before it answered. None if the source does not say."""
    sampling: str = ""
    input_tokens: float | None = None
    output_tokens: float | None = None
    concurrency: float | None = None
    runs: int = 1
    """Number of runs of which `accepted_length` is the median."""
    min_accepted_length: float | None = None
    max_accepted_length: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MlperfResult:
    """Result of MLPerf Inference. No input length is published, so that it cannot be a measured row.

    The data set of each model is fixed. Server and interactive results are the highest rate that met the limits.
    """

    id: str
    ref: str
    scenario: MlperfScenario
    submitter: str
    model: str
    weights: str
    """Weight format as filed. `fp4` does not say which four-bit format it is."""
    accelerator: str
    devices: int
    output_tokens_per_s: float
    """Output tokens per second of the whole system."""
    nodes: int = 1
    kv: str = ""
    engine: str = ""
    version: str = ""
    tp: int | None = None
    dp: int | None = None
    ep: bool | None = None
    """Split of one replica. None if neither the submitter nor its harness states it."""
    split_from: str = ""
    draft_tokens: int | None = None
    users: float | None = None
    """Mean number of requests in flight in the whole system."""
    output_tokens: float | None = None
    tpot_s: float | None = None
    tpot_p99_s: float | None = None
    ttft_s: float | None = None
    ttft_p99_s: float | None = None
    tpot_p99_limit_s: float | None = None
    ttft_p99_limit_s: float | None = None
    flag: str = ""
    """`weights_as_filed_doubtful`: the filed weight format contradicts other results or the submitter's files."""

    @property
    def output_tokens_per_s_per_device(self) -> float:
        """Return the output tokens per second of one device."""
        return self.output_tokens_per_s / self.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPoint:
    """Published point of a fleet of single-device replicas behind one router, at an offered rate."""

    id: str
    source: str
    ref: str
    model: str
    weights: str
    engine: str
    date: date
    pools: str
    """Accelerators and their number. The post hides them; they are as its draft names them."""
    replicas: int
    policy: str
    offered_requests_per_s: float
    input_tokens: float
    shared_prefix_tokens: float
    output_tokens: float
    ttft_s: float
    """Mean time to first token."""
    output_tokens_per_s: float
    """Output tokens over a whole stage with its start and its drain, so that it is below rate times length."""
    flag: str = ""
    """`marker_partly_covered`: read off the chart to 4% instead of 2%. `picker_bound`: the router's processor limits
    the fleet, and not its accelerators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiListPrice:
    """List price of a model on APIs, in dollars per million tokens, over all sellers that one table lists.

    Prices are medians over the sellers, each by itself: the medians of input and output may be of different sellers.
    """

    model: str
    sellers: int
    input_usd_per_mtok: float
    low_input_usd_per_mtok: float
    high_input_usd_per_mtok: float
    output_usd_per_mtok: float
    low_output_usd_per_mtok: float
    high_output_usd_per_mtok: float
    checked_on: date
    source: str
    cached_input_usd_per_mtok: float | None = None
    """Price of input tokens that the seller has cached. None if no seller states one: then they cost as other input."""
