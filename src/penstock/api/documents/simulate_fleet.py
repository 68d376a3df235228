"""What does `simulate --fleet` answer with?"""

from typing import Literal

from typing_extensions import TypedDict

from penstock.api.documents.simulate import ClassDocument, LatencyDocument, PoolDocument, WorkloadDocument


class FleetPoolDocument(TypedDict):
    """Replicas that are alike, as they were routed to."""

    name: str
    vendor: str
    role: str
    replicas: int
    usd_per_hour: float | None
    elastic: bool
    kv_tokens: int
    most_tokens: int


class RoutedPoolDocument(PoolDocument):
    """What replicas that are alike did.

    `finished` counts prompts where a pool prefills and their answers where one decodes; `busy_fraction`,
    `mean_running` and `mean_waiting` are over all replicas and the whole span, `mean_batch` and `kv_mean_fraction` of
    one replica while it is busy; `usd` is all replicas for the whole span, of which they are without work for
    `idle_fraction`.
    """

    idle_fraction: float


class ReplicaDocument(TypedDict):
    """What one replica did, all its ranks together.

    `busy_fraction` and `mean_waiting` are over the whole span, `kv_mean_fraction` while it is busy. `met` and
    `good_tokens` are of answers that ended here: none where a pool only prefills.
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
    """Where prompts of one class and length were sent, as shares by pool.

    A pool that only decodes is sent none: no policy chooses among its replicas. Requests that fit nowhere are left out.
    """

    slo_class: str
    from_tokens: int
    requests: int
    met_fraction: float
    shares: list[float]


class PolicyDocument(TypedDict):
    """One policy's run.

    Tokens a second, dollars and means over time are over the policy's own `span_s`, until a client sees its last token:
    other policies change none of them. Policies are ranked by `good_tokens`. `requests` is all that came: `served`,
    `rejected`, which were sent nowhere, `refused`, which fit nowhere, of which `beyond_context` are longer than any
    engine takes, and `lost`, whose replica died when their answer had begun. `worst_met_fraction` is of all that came.
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
    """How policies route to a fleet."""

    schema: Literal["penstock.simulate-fleet/4"]
    fleet: str
    model: str
    pools: list[FleetPoolDocument]
    workload: WorkloadDocument
    events: list[str]
    policies: list[PolicyDocument]
