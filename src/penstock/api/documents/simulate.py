"""What does `simulate` answer with?"""

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
    """What was asked of every deployment."""

    name: str
    source: str
    requests: int
    rate_per_s: float | None
    users: int | None
    think_s: float | None
    """Of a closed loop: how long a user waits on average before asking again."""
    seed: int
    hours_of_day: HoursOfDay | None
    """None where requests do not follow a day's curve."""
    rows_left_out: dict[str, int] | None
    """Of a trace, by reason; None where the workload is no trace."""


class LatencyDocument(TypedDict):
    """A latency over requests, in seconds."""

    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    mean: float | None
    max: float | None


class LatenciesDocument(TypedDict):
    """Over all classes."""

    ttft_s: LatencyDocument
    tpot_s: LatencyDocument
    e2e_s: LatencyDocument


class MediansDocument(TypedDict):
    """Medians with their P10 and P90."""

    ttft_s: Range | None
    tpot_s: Range | None
    e2e_s: Range | None


class ClassDocument(TypedDict):
    """Requests that were promised the same.

    `requests` is all that came: `served` ones, `rejected` ones that were sent nowhere, `refused` ones that fit
    nowhere, and `lost` ones whose replica died when their answer had begun. `met_fraction` is of all of them: whoever
    was not served to the end kept no promise. Not among them are the `unjudged`: of the beginning of a closed loop,
    when not all users had begun.
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
    """Replicas that are alike.

    `busy_fraction`, `mean_running` and `mean_waiting` are over all replicas and the whole run, `mean_batch` and
    `kv_mean_fraction` of one replica while it is busy.
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
    """A pool over time, one value per so many seconds."""

    width_s: float
    busy_fraction: list[float]
    running: list[float]
    waiting: list[float]
    kv_used_fraction: list[float]
    prefill_tokens_per_s: list[float]
    output_tokens_per_s: list[float]


class CapacityDocument(TypedDict):
    """The highest rate that keeps the promise."""

    rate_per_s: Range | None
    saturated_rate_per_s: float
    requests: int
    trials: int


class SimulateDeployment(TypedDict):
    """One accelerator; what does not fit has an obstacle and no run."""

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
    """All that came; `served` and `refused` ones are apart."""
    served: NotRequired[int]
    refused: NotRequired[int]
    beyond_context: NotRequired[int]
    arrival_span_s: NotRequired[float]
    makespan_s: NotRequired[float]
    """From the first arrival until a client sees the last token."""
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
    """How it behaves under load."""

    schema: Literal["penstock.simulate/3"]
    model: ModelDocument
    workload: WorkloadDocument
    deployments: list[SimulateDeployment]
