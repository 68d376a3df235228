"""Defines the JSON document of `simulate --json`.

The document describes the simulated run in seconds, tokens and fractions.
"""

from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from penstock.catalog.device_prices import DevicePrice
from penstock.fleet import Parallelism
from penstock.performance.memory.budget import DoesNotFit
from penstock.performance.prediction.predict_deployment import Range
from penstock.performance.prediction.serving_stack import Tier
from penstock.performance.prediction.speculation import Speculation
from penstock.report.drawing.json_document import FieldSource, at, build
from penstock.report.model_heading import ModelDocument, model_document
from penstock.report.simulate.terminal import e2e_of, tpot_of, ttft_of
from penstock.simulation.outcome import Saturation
from penstock.simulation.replica import Replica
from penstock.simulation.scenario import HoursOfDay, Scenario
from penstock.workload import Slo, Trace


def _think_s(load: Any) -> float | None:  # noqa: ANN401 - a SimulationQuestion or a SharedLoad
    return None if load.workload.users is None else load.workload.think_s


def _rows_left_out(load: Any) -> object:  # noqa: ANN401 - as above
    return load.workload.lengths.dropped if isinstance(load.workload.lengths, Trace) else None


class WorkloadDocument(TypedDict):
    """The workload sent to every deployment, with all values needed to repeat the run."""

    name: Annotated[str, at("workload.name")]
    source: Annotated[str, at("workload.source")]
    requests: int
    rate_per_s: Annotated[float | None, at(lambda load: load.rate_per_s or load.workload.rate_per_s)]
    users: Annotated[int | None, at("workload.users")]
    think_s: Annotated[float | None, at(_think_s)]
    """Mean think time in a closed loop, in seconds: the wait before a user's next request."""
    seed: int
    hours_of_day: HoursOfDay | None
    """Hours of the day that the run covers; None if arrivals do not follow a daily curve."""
    rows_left_out: Annotated[dict[str, int] | None, at(_rows_left_out)]
    """Rows of the trace left out, by reason; None if the workload is not a trace."""


def _quantile(fraction: float) -> FieldSource:
    return at(lambda latency: latency.quantile_s(fraction))


class LatencyDocument(TypedDict):
    """Distribution of a latency over requests, in seconds."""

    p50: Annotated[float | None, _quantile(0.5)]
    p90: Annotated[float | None, _quantile(0.9)]
    p95: Annotated[float | None, _quantile(0.95)]
    p99: Annotated[float | None, _quantile(0.99)]
    mean: Annotated[float | None, at("mean_s")]
    max: Annotated[float | None, at(lambda latency: latency.max_s if latency.count else None)]


class LatenciesDocument(TypedDict):
    """Latencies over all classes."""

    ttft_s: Annotated[LatencyDocument, at(ttft_of)]
    tpot_s: Annotated[LatencyDocument, at(tpot_of)]
    e2e_s: Annotated[LatencyDocument, at(e2e_of)]


class MediansDocument(TypedDict):
    """Medians with their P10 and P90."""

    ttft_s: Annotated[Range | None, at(lambda scenario: scenario.first_token(ttft_of, 0.5))]
    tpot_s: Annotated[Range | None, at(lambda scenario: scenario.quantile_range(tpot_of, 0.5))]
    e2e_s: Annotated[Range | None, at(lambda scenario: scenario.quantile_range(e2e_of, 0.5))]


class ClassDocument(TypedDict):
    """Requests with the same SLO.

    `requests` counts all arrivals: `served`, `refused` (sent nowhere), `oversized` (fit in no pool), and `lost` (its
    replica died after the answer had begun). `met_fraction` is relative to all `requests`: a request that is not served
    to the end misses its SLO. `requests` does not include the `unjudged` requests, which belong to the start of a
    closed loop, before all users had begun.
    """

    name: str
    slo: Slo | None
    requests: Annotated[int, at("asked")]
    served: Annotated[int, at("requests")]
    refused: int
    oversized: int
    lost: int
    unjudged: int
    met_fraction: float | None
    attained: bool | None
    ttft_s: Annotated[LatencyDocument, at("ttft")]
    tpot_s: Annotated[LatencyDocument, at("tpot")]
    e2e_s: Annotated[LatencyDocument, at("e2e")]


class PoolDocument(TypedDict):
    """A pool of identical replicas.

    `busy_fraction`, `mean_in_batches` and `mean_waiting` are means over all replicas and the whole run. `mean_batch`
    and `kv_mean_fraction` are means per replica over the time in which the replica is busy.
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
    mean_in_batches: float
    mean_waiting: float
    kv_mean_fraction: float
    kv_peak_fraction: float
    usd: float | None
    mean_batch: float
    hit_fraction: float | None
    itl_s: Annotated[LatencyDocument, at("itl")]


def _column(name: str) -> FieldSource:
    return at(lambda line: [float(f"{value:.5g}") for value in getattr(line, name)])


class TimelineDocument(TypedDict):
    """State of a pool over time, with one value per `width_s` seconds."""

    width_s: float
    busy_fraction: Annotated[list[float], _column("busy_fraction")]
    running: Annotated[list[float], _column("running")]
    waiting: Annotated[list[float], _column("waiting")]
    kv_used_fraction: Annotated[list[float], _column("kv_used_fraction")]
    prefill_tokens_per_s: Annotated[list[float], _column("prefill_tokens_per_s")]
    output_tokens_per_s: Annotated[list[float], _column("output_tokens_per_s")]


class CapacityDocument(TypedDict):
    """The highest rate that meets the SLO."""

    rate_per_s: Annotated[Range | None, at("capacity_range_per_s")]
    saturated_rate_per_s: Annotated[float, at("capacity.saturated_rate_per_s")]
    requests: Annotated[int, at("capacity.requests")]
    trials: Annotated[int, at("capacity.trials")]
    usd_per_output_mtok: Annotated[float | None, at("usd_per_output_mtok_at_capacity")]


class PlacedDeployment(TypedDict):
    """A deployment, before its run."""

    accelerator: Annotated[str, at("placement.deployment.accelerator.id")]
    parallelism: Annotated[Parallelism, at("placement.deployment.parallelism")]
    replicas: Annotated[int, at("question.replicas")]
    prefill_replicas: Annotated[int, at("question.prefill_replicas")]
    prefill_parallelism: Annotated[Parallelism | None, at("prefill.deployment.parallelism")]
    engine: Annotated[str | None, at("placement.measured_engine")]
    fits: Annotated[bool, at("placement.memory.fits")]
    good: bool
    tier: Annotated[Tier, at("placement.stack.tier")]
    speculation: Annotated[Speculation | None, at("placement.speculation")]
    borrowed_from: Annotated[list[str], at("placement.stack.path")]
    software: Annotated[str | None, at("placement.stack.software")]
    replica: Annotated[Replica | None, at("placement.replica")]


class BlockedDeployment(PlacedDeployment):
    """A deployment that does not fit: it has an obstacle and no run."""

    obstacle: DoesNotFit | None


class SimulatedDeployment(PlacedDeployment):
    """The simulated run on one accelerator.

    `requests` counts all arrivals; `served` and `oversized` are counted separately.
    """

    requests: Annotated[int, at("outcome.asked")]
    served: Annotated[int, at("outcome.requests")]
    oversized: Annotated[int, at("outcome.oversized")]
    beyond_context: Annotated[int, at("outcome.beyond_context")]
    arrival_span_s: Annotated[float, at("outcome.arrival_span_s")]
    makespan_s: Annotated[float, at("outcome.makespan_s")]
    """Seconds from the first arrival until a client receives the last token."""
    output_tokens_per_s: Annotated[float, at("outcome.output_tokens_per_s")]
    goodput_tokens_per_s: Annotated[float, at("outcome.goodput_tokens_per_s")]
    usd: Annotated[float | None, at("outcome.usd")]
    usd_per_output_mtok: Annotated[float | None, at("outcome.usd_per_output_mtok")]
    met: Annotated[bool, at("outcome.met")]
    saturation: Annotated[Saturation | None, at("outcome.saturation")]
    latency: Annotated[LatenciesDocument, at("outcome")]
    p50_ranges: Annotated[MediansDocument, at(lambda scenario: scenario)]
    classes: Annotated[list[ClassDocument], at("outcome.classes")]
    pools: Annotated[list[PoolDocument], at("outcome.pools")]
    timelines: Annotated[dict[str, TimelineDocument], at("outcome.timelines")]
    capacity: Annotated[CapacityDocument | None, at(lambda scenario: scenario if scenario.capacity else None)]


def _deployment(scenario: Scenario) -> SimulatedDeployment | BlockedDeployment:
    if scenario.outcome is None:
        return build(BlockedDeployment, scenario)
    return build(SimulatedDeployment, scenario)


def _model(answer: Any) -> ModelDocument:  # noqa: ANN401 - a SimulateAnswer
    deployment = answer.scenarios[0].placement.deployment
    return model_document(deployment.model, deployment.chosen_cache_dtype)


def _workload(answer: Any) -> WorkloadDocument:  # noqa: ANN401 - as above
    first = answer.scenarios[0]
    return build(WorkloadDocument, first.question, hours_of_day=first.hours_of_day)


class SimulateDocument(TypedDict):
    """Behaviour under load."""

    schema: Literal["penstock.simulate/4"]
    model: Annotated[ModelDocument, at(_model)]
    workload: Annotated[WorkloadDocument, at(_workload)]
    rents: list[DevicePrice]
    deployments: Annotated[
        list[SimulatedDeployment | BlockedDeployment], at(lambda answer: map(_deployment, answer.scenarios))
    ]
