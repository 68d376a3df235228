"""Defines the JSON documents of `predict --json`.

Each prediction has its interval, its tier and nearby measurements.
"""

from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from penstock.catalog import measurement_sources
from penstock.catalog.device_prices import DevicePrice
from penstock.catalog.measurement import Measurement, Side
from penstock.fleet import Parallelism
from penstock.performance.calibration.benchmark_harness import Statistic
from penstock.performance.memory.engine_settings_that_fit import engine_flags
from penstock.performance.prediction.energy_per_token import Energy
from penstock.performance.prediction.predict_deployment import Range
from penstock.performance.prediction.serving_stack import Tier
from penstock.performance.prediction.speculation import Speculation
from penstock.report.drawing.json_document import at, build
from penstock.report.model_heading import ModelDocument
from penstock.report.predict import has_tpot
from penstock.report.predict_summary import UndeterminedTarget


def _url(row: Measurement) -> str:
    source = measurement_sources()[row.source]
    return source.row_url.format(ref=row.ref) if source.row_url and row.ref else source.url


class NearDocument(TypedDict):
    """A public measurement near the prediction, with its source."""

    id: str
    source: str
    ref: str
    scenario: str
    model: str
    weights: str
    accelerator: str
    engine: str
    date: str
    tp: int
    input_tokens: float
    output_tokens: float
    dp: int
    ep: bool
    version: str
    kv: str
    concurrency: float | None
    tpot_s: float | None
    ttft_s: float | None
    output_tokens_per_s: float | None
    dated: str
    drafted: str
    stack: str
    prefill: Side | None
    decode_workers: int
    nodes: int
    joules_per_output_token: float | None
    twin: str
    flag: str
    url: Annotated[str, at(_url)]


class PredictDeployment(TypedDict):
    """The prediction for one accelerator."""

    accelerator: Annotated[str, at("deployment.accelerator.id")]
    devices: Annotated[int, at("deployment.parallelism.devices")]
    parallelism: Annotated[Parallelism, at("deployment.parallelism")]
    engine: Annotated[str, at("measured_engine")]
    fits: Annotated[bool, at("memory.fits")]
    flags: Annotated[list[str], at(lambda prediction: engine_flags(prediction.deployment))]
    concurrency: float
    running: float
    output_tokens_per_s: Range
    output_tokens_per_s_per_device: float
    tpot_s: Range | None
    ttft_s: Range | None
    speculation: Speculation | None
    energy: Energy | None
    step_parts_s: Annotated[dict[str, float], at("step.parts_s")]
    bound_by: Annotated[str, at("step.bound_by")]
    roofline_s: float
    software_tax_fraction: Annotated[float, at("software_tax")]
    tier: Tier
    ttft_tier: Tier
    ttft_statistic: Statistic
    novelty: str
    borrowed_from: list[str]
    corrected_by: Annotated[str | None, at("stack.correction.source")]
    rows_of_this_setup: Annotated[int, at("seen.rows")]
    software: str | None
    nearest: list[NearDocument]
    rent: DevicePrice | None
    usd_per_output_mtok: Range | None


def _deployments(answer: Any) -> list[PredictDeployment]:  # noqa: ANN401 - a PredictAnswer
    return [
        build(
            PredictDeployment,
            prediction,
            tpot_s=prediction.tpot_s if has_tpot(answer.output_tokens) else None,
            energy=energy,
            nearest=nearest,
            rent=rent,
            usd_per_output_mtok=cost,
        )
        for prediction, energy, nearest, rent, cost in zip(
            answer.predictions,
            answer.energies,
            answer.nearest,
            answer.rents,
            answer.costs_usd_per_output_mtok,
            strict=True,
        )
    ]


class PredictDocument(TypedDict):
    """Predicted throughput and latency."""

    schema: Literal["penstock.predict/2"]
    model: ModelDocument
    deployments: Annotated[list[PredictDeployment], at(_deployments)]
    undetermined: list[UndeterminedTarget]


class PredictDisaggregatedDeployment(TypedDict):
    """The prediction for prefill and decode replicas on one accelerator."""

    accelerator: Annotated[str, at("deployed.decode.accelerator.id")]
    devices: Annotated[int, at("deployed.devices")]
    prefill_replicas: Annotated[int, at("deployed.prefill_replicas")]
    prefill_parallelism: Annotated[Parallelism, at("deployed.prefill.parallelism")]
    decode_replicas: Annotated[int, at("deployed.decode_replicas")]
    decode_parallelism: Annotated[Parallelism, at("deployed.decode.parallelism")]
    engine: Annotated[str, at("measured_engine")]
    fits: bool
    prefill_flags: Annotated[list[str], at(lambda prediction: engine_flags(prediction.deployed.prefill))]
    decode_flags: Annotated[list[str], at(lambda prediction: engine_flags(prediction.deployed.decode))]
    concurrency: Annotated[int, at("demand.users")]
    output_tokens_per_s: Range
    output_tokens_per_s_per_device: float
    tpot_s: Annotated[Range | None, at(lambda one: one.tpot_s if has_tpot(one.demand.output_tokens) else None)]
    ttft_s: Range
    prefill_busy_fraction: Annotated[float, at("steady.prefill_busy")]
    decoding_per_replica: Annotated[float, at("steady.decoding")]
    bound_by: Annotated[str, at("steady.bound_by")]
    kv_bytes_per_s: Annotated[float, at("deployed.sending_bytes_per_s")]
    speculation: Speculation | None
    tier: Tier
    borrowed_from: Annotated[list[str], at("decode.path")]


class PredictDisaggregatedDocument(TypedDict):
    """Predicted throughput and latency with disaggregated prefill."""

    schema: Literal["penstock.predict-disaggregated/2"]
    model: ModelDocument
    deployments: Annotated[list[PredictDisaggregatedDeployment], at("predictions")]
