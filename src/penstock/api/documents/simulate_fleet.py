"""What does `simulate --fleet` answer with?"""

from typing import Literal

from typing_extensions import TypedDict

from penstock.api.documents.simulate import ClassDocument, LatencyDocument, PoolDocument


class FleetPoolDocument(TypedDict):
    """Replicas that are alike, as they were routed to."""

    name: str
    vendor: str
    replicas: int
    usd_per_hour: float | None
    kv_tokens: int


class FleetWorkloadDocument(TypedDict):
    """What was asked of every policy."""

    name: str
    source: str


class ReplicaDocument(TypedDict):
    """What one replica did."""

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
    """Where requests of one class and prompt length were sent, as shares by pool."""

    slo_class: str
    from_tokens: int
    requests: int
    met_fraction: float
    shares: list[float]


class PolicyDocument(TypedDict):
    """One policy's run."""

    policy: str
    source: str
    met: bool
    worst_met_fraction: float
    requests: int
    rejected: int
    refused: int
    goodput_tokens_per_s: float
    output_tokens_per_s: float
    usd: float | None
    usd_per_good_mtok: float | None
    ttft_s: LatencyDocument
    tpot_s: LatencyDocument
    e2e_s: LatencyDocument
    classes: list[ClassDocument]
    pools: list[PoolDocument]
    replicas: list[ReplicaDocument]
    destinations: list[DestinationsDocument]


class SimulateFleetDocument(TypedDict):
    """How policies route to a fleet."""

    schema: Literal["penstock.simulate-fleet/1"]
    fleet: str
    model: str
    pools: list[FleetPoolDocument]
    workload: FleetWorkloadDocument
    events: list[str]
    policies: list[PolicyDocument]
