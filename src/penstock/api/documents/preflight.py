"""Document of `preflight`."""

from typing import Literal

from pydantic import JsonValue
from typing_extensions import TypedDict

from penstock.api.documents.shared import ModelDocument
from penstock.fleet import Parallelism
from penstock.performance.memory.budget import CacheCapacity, DoesNotFit
from penstock.performance.prediction.predict_deployment import Range
from penstock.performance.prediction.serving_stack import Tier
from penstock.preflight.check import Readiness, StartObstacle
from penstock.preflight.launch.setting import Setting
from penstock.preflight.launch.start_memory import CutContext
from penstock.preflight.predictions.aiter_kernels import AiterLookup
from penstock.preflight.predictions.attention_backend import GraphMode
from penstock.preflight.predictions.fp8_dialect import DialectStep
from penstock.preflight.predictions.measured_engines import ServedBy
from penstock.preflight.predictions.weight_kernels import WeightGroup


class FindingDocument(TypedDict):
    """A rule that applies, with its reason and fix."""

    rule: str
    category: str
    severity: str
    confidence: str
    message: str
    fix: str
    because: dict[str, JsonValue]
    sources: list[str]
    unchecked_since: str | None


class UndeterminedDocument(TypedDict):
    """A rule that cannot be decided, and the missing information."""

    rule: str
    severity: str
    missing: dict[str, JsonValue]


class AttentionDocument(TypedDict):
    """The attention backend."""

    backend: str | None
    determined: bool
    block: str | None
    graph_support: str | None
    rejected: dict[str, JsonValue]


class MemoryDocument(TypedDict):
    """Whether the model fits in memory."""

    fits: bool
    obstacle: DoesNotFit | None
    capacity: CacheCapacity | None
    context_tokens: int
    cut: CutContext | None


class ArchitectureDocument(TypedDict):
    """The release from which the engine supports the architecture."""

    name: str
    since: str | None
    too_new: bool


class PredictionsDocument(TypedDict):
    """Predicted kernels, attention backend, graphs and memory."""

    fp8: list[DialectStep]
    kernels: list[WeightGroup]
    attention: AttentionDocument
    graphs: GraphMode | None
    aiter_mla: AiterLookup | None
    memory: MemoryDocument
    architecture: ArchitectureDocument


class FlagDocument(TypedDict):
    """A problem with a flag of the launch command."""

    name: str
    problem: str
    message: str


class LaunchDocument(TypedDict):
    """The launch command."""

    bare: str
    docker: str | None
    image: str | None
    nodes: int
    flags: list[Setting]
    variables: list[Setting]


class InsteadDocument(TypedDict):
    """A configuration that runs: the launch proposed instead of the user's command, or the nearest split."""

    parallelism: Parallelism
    devices: int
    launch: LaunchDocument


class SpeedDocument(TypedDict):
    """Predicted throughput as executed."""

    output_tokens_per_s: Range
    tier: Tier
    input_tokens: int
    output_tokens: int
    concurrency: int
    lost_to_missing_kernels_fraction: float | None


class PreflightDeployment(TypedDict):
    """The result for one accelerator and engine."""

    accelerator: str
    devices: int
    parallelism: Parallelism
    engine: str
    version: str
    verdict: Readiness
    newer_than_read: str | None
    passes: bool
    obstacles: list[StartObstacle]
    narrow: StartObstacle | None
    doubts: list[StartObstacle]
    notes: list[str]
    findings: list[FindingDocument]
    undetermined: list[UndeterminedDocument]
    rules_checked: int
    predictions: PredictionsDocument
    recipe: dict[str, JsonValue] | None
    measured: list[ServedBy]
    flags: list[FlagDocument]
    typed: list[str] | None
    launch: LaunchDocument
    facts: dict[str, JsonValue]
    speed: SpeedDocument | None
    instead: InsteadDocument | None


class PreflightDocument(TypedDict):
    """Whether a checkpoint runs and gives correct answers."""

    schema: Literal["penstock.preflight/2"]
    model: ModelDocument
    passes: bool
    deployments: list[PreflightDeployment]
    method: str
