"""Documents of `predict`."""

from typing import Literal

from typing_extensions import TypedDict

from penstock.api.documents.shared import ModelDocument
from penstock.catalog.measurement import Side
from penstock.fleet import Parallelism
from penstock.performance.prediction.energy_per_token import Energy
from penstock.performance.prediction.predict_deployment import Range, Speculation
from penstock.performance.prediction.serving_stack import Tier


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
    url: str


class PredictDeployment(TypedDict):
    """The prediction for one accelerator."""

    accelerator: str
    devices: int
    parallelism: Parallelism
    engine: str
    fits: bool
    flags: list[str]
    concurrency: float
    running: float
    output_tokens_per_s: Range
    output_tokens_per_s_per_device: float
    tpot_s: Range | None
    ttft_s: Range | None
    speculation: Speculation | None
    energy: Energy | None
    step_parts_s: dict[str, float]
    bound_by: str
    roofline_s: float
    software_tax_fraction: float
    tier: Tier
    novelty: str
    borrowed_from: list[str]
    rows_of_this_setup: int
    software: str | None
    nearest: list[NearDocument]


class PredictDocument(TypedDict):
    """Predicted throughput and latency."""

    schema: Literal["penstock.predict/2"]
    model: ModelDocument
    deployments: list[PredictDeployment]


class PredictDisaggregatedDeployment(TypedDict):
    """The prediction for prefill and decode replicas on one accelerator."""

    accelerator: str
    devices: int
    prefill_replicas: int
    prefill_parallelism: Parallelism
    decode_replicas: int
    decode_parallelism: Parallelism
    engine: str
    fits: bool
    prefill_flags: list[str]
    decode_flags: list[str]
    concurrency: int
    output_tokens_per_s: Range
    output_tokens_per_s_per_device: float
    tpot_s: Range | None
    ttft_s: Range
    prefill_busy_fraction: float
    decoding_per_replica: float
    bound_by: str
    kv_bytes_per_s: float
    tier: Tier
    borrowed_from: list[str]


class PredictDisaggregatedDocument(TypedDict):
    """Predicted throughput and latency with disaggregated prefill."""

    schema: Literal["penstock.predict-apart/1"]
    model: ModelDocument
    deployments: list[PredictDisaggregatedDeployment]
