"""Document of `simulate`."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from penstock.api.documents.shared import ModelDocument
from penstock.fleet import Parallelism
from penstock.performance.memory.budget import DoesNotFit
from penstock.performance.prediction.predict_deployment import Range, Speculation
from penstock.performance.prediction.serving_stack import Tier
from penstock.simulation.outcome import Saturation
from penstock.simulation.replica import Replica
from penstock.simulation.scenario import HoursOfDay
from penstock.workload import Slo


class WorkloadDocument(TypedDict):
    """The workload sent to every deployment."""

    name: str
    source: str
    requests: int
    rate_per_s: float | None
    users: int | None
    think_s: float | None
    """Mean think time in a closed loop, in seconds: the wait before a user's next request."""
    seed: int
    hours_of_day: HoursOfDay | None
    """Hours of the day that the run covers; None if arrivals do not follow a daily curve."""
    rows_left_out: dict[str, int] | None
    """Rows of the trace left out, by reason; None if the workload is not a trace."""


class LatencyDocument(TypedDict):
    """A latency over requests, in seconds."""

    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    mean: float | None
    max: float | None


class LatenciesDocument(TypedDict):
    """Latencies over all classes."""

    ttft_s: LatencyDocument
    tpot_s: LatencyDocument
    e2e_s: LatencyDocument


class MediansDocument(TypedDict):
    """Medians with their P10 and P90."""

    ttft_s: Range | None
    tpot_s: Range | None
    e2e_s: Range | None


class ClassDocument(TypedDict):
    """Requests with the same SLO.

    `requests` counts all arrivals: `served`, `rejected` (sent nowhere), `refused` (fit in no pool), and `lost` (replica
    died after the answer had begun). `met_fraction` is relative to all of them: a request that is not served to the end
    misses its SLO. The `unjudged` requests are not among them: they belong to the start of a closed loop, before all
    users had begun.
    """

    name: str
    slo: Slo | None
    requests: int
    served: int
    rejected: int
    refused: int
    lost: int
    unjudged: int
    met_fraction: float | None
    attained: bool | None
    ttft_s: LatencyDocument
    tpot_s: LatencyDocument
    e2e_s: LatencyDocument


class PoolDocument(TypedDict):
    """A pool of identical replicas.

    `busy_fraction`, `mean_running` and `mean_waiting` are means over all replicas and the whole run. `mean_batch` and
    `kv_mean_fraction` are means of one replica while it is busy.
    """

    name: str
    replicas: int
    finished: int
    prefill_tokens: int
    output_tokens: int
    engine_steps: int
    preemptions: int
    hit_tokens: int
    looked_up_tokens: int
    busy_fraction: float
    mean_running: float
    mean_batch: float
    mean_waiting: float
    kv_mean_fraction: float
    kv_peak_fraction: float
    usd: float | None
    hit_fraction: float | None
    itl_s: LatencyDocument


class TimelineDocument(TypedDict):
    """A pool over time, one value per `width_s` seconds."""

    width_s: float
    busy_fraction: list[float]
    running: list[float]
    waiting: list[float]
    kv_used_fraction: list[float]
    prefill_tokens_per_s: list[float]
    output_tokens_per_s: list[float]


class CapacityDocument(TypedDict):
    """The highest rate that meets the SLO."""

    rate_per_s: Range | None
    saturated_rate_per_s: float
    requests: int
    trials: int


class SimulateDeployment(TypedDict):
    """The run on one accelerator; a deployment that does not fit has an obstacle and no run."""

    accelerator: str
    parallelism: Parallelism
    replicas: int
    prefill_replicas: int
    prefill_parallelism: Parallelism | None
    engine: str | None
    fits: bool
    good: bool
    tier: Tier
    speculation: Speculation | None
    borrowed_from: list[str]
    software: str | None
    replica: Replica | None
    obstacle: NotRequired[DoesNotFit | None]
    requests: NotRequired[int]
    """All arrivals; `served` and `refused` are counted separately."""
    served: NotRequired[int]
    refused: NotRequired[int]
    beyond_context: NotRequired[int]
    arrival_span_s: NotRequired[float]
    makespan_s: NotRequired[float]
    """Seconds from the first arrival until a client receives the last token."""
    output_tokens_per_s: NotRequired[float]
    goodput_tokens_per_s: NotRequired[float]
    usd: NotRequired[float | None]
    usd_per_output_mtok: NotRequired[float | None]
    met: NotRequired[bool]
    saturation: NotRequired[Saturation | None]
    latency: NotRequired[LatenciesDocument]
    p50_ranges: NotRequired[MediansDocument]
    classes: NotRequired[list[ClassDocument]]
    pools: NotRequired[list[PoolDocument]]
    timelines: NotRequired[dict[str, TimelineDocument]]
    capacity: NotRequired[CapacityDocument | None]


class SimulateDocument(TypedDict):
    """Behaviour under load."""

    schema: Literal["penstock.simulate/3"]
    model: ModelDocument
    workload: WorkloadDocument
    deployments: list[SimulateDeployment]
