"""Document of `simulate --fleet`."""

from typing import Literal

from typing_extensions import TypedDict

from penstock.api.documents.simulate import ClassDocument, LatencyDocument, PoolDocument, WorkloadDocument


class FleetPoolDocument(TypedDict):
    """A pool of identical replicas, as routed to."""

    name: str
    vendor: str
    role: str
    replicas: int
    usd_per_hour: float | None
    elastic: bool
    kv_tokens: int
    most_tokens: int


class RoutedPoolDocument(PoolDocument):
    """The outcome of a pool of identical replicas.

    `finished` counts prompts in a prefill pool and answers in a decode pool. `busy_fraction`, `mean_running` and
    `mean_waiting` are means over all replicas and the whole span. `mean_batch` and `kv_mean_fraction` are means of one
    replica while it is busy. `usd` covers all replicas for the whole span; `idle_fraction` is the share of it without
    work.
    """

    idle_fraction: float


class ReplicaDocument(TypedDict):
    """The outcome of one replica, summed over its ranks.

    `busy_fraction` and `mean_waiting` are over the whole span, `kv_mean_fraction` while it is busy. `met` and
    `good_tokens` count answers that ended here: none in a prefill pool.
    """

    pool: str
    finished: int
    met: int
    output_tokens: int
    good_tokens: int
    preemptions: int
    busy_fraction: float
    mean_waiting: float
    kv_mean_fraction: float
    kv_peak_fraction: float


class DestinationsDocument(TypedDict):
    """Destinations of the prompts of one class and length, as shares by pool.

    A decode pool has no share, because no policy chooses among its replicas. Requests that fit in no pool are left out.
    """

    slo_class: str
    from_tokens: int
    requests: int
    met_fraction: float
    shares: list[float]


class PolicyDocument(TypedDict):
    """The run of one policy.

    Tokens per second, dollars and means over time are relative to the policy's own `span_s`, which ends when a client
    receives its last token; they do not depend on other policies. Policies are ranked by `good_tokens`. `requests`
    counts all arrivals: `served`, `rejected` (sent nowhere), `refused` (fit in no pool; `beyond_context` of them exceed
    every engine's context), and `lost` (replica died after the answer had begun). `worst_met_fraction` is relative to
    all arrivals.
    """

    policy: str
    source: str
    met: bool
    worst_met_fraction: float
    requests: int
    served: int
    rejected: int
    refused: int
    lost: int
    beyond_context: int
    span_s: float
    good_tokens: int
    goodput_tokens_per_s: float
    output_tokens_per_s: float
    usd: float | None
    usd_per_good_mtok: float | None
    ttft_s: LatencyDocument
    tpot_s: LatencyDocument
    e2e_s: LatencyDocument
    classes: list[ClassDocument]
    pools: list[RoutedPoolDocument]
    replicas: list[ReplicaDocument]
    destinations: list[DestinationsDocument]


class SimulateFleetDocument(TypedDict):
    """Comparison of routing policies on a fleet."""

    schema: Literal["penstock.simulate-fleet/4"]
    fleet: str
    model: str
    pools: list[FleetPoolDocument]
    workload: WorkloadDocument
    events: list[str]
    policies: list[PolicyDocument]
