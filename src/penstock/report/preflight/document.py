"""Defines the JSON document of `preflight --json`. The document names every fact, finding and source."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from penstock.fleet import Parallelism
from penstock.fleet.release import Release
from penstock.performance.memory.budget import CacheCapacity, DoesNotFit
from penstock.performance.prediction.predict_deployment import Range
from penstock.performance.prediction.serving_stack import Tier
from penstock.preflight.executed_speed import LOAD, undetermined_speed
from penstock.preflight.launch.launch_plan import LaunchPlan
from penstock.preflight.launch.recipe import SOURCE
from penstock.preflight.launch.setting import Setting
from penstock.preflight.launch.start_memory import CutContext
from penstock.preflight.launch_costs import LaunchCost
from penstock.preflight.predictions.aiter_kernels import AiterLookup
from penstock.preflight.predictions.attention_backend import GraphMode
from penstock.preflight.predictions.fp8_dialect import DialectStep
from penstock.preflight.predictions.measured_engines import ServedBy
from penstock.preflight.predictions.weight_kernels import WeightGroup
from penstock.preflight.preflight_result import Preflight, Readiness
from penstock.preflight.rules.condition import Unknown, Value
from penstock.preflight.start_obstacles import StartObstacle
from penstock.preflight.strict_failures import strict_failures
from penstock.report.drawing.json_document import at, build
from penstock.report.drawing.plain_json import plain_fields
from penstock.report.model_heading import ModelDocument


def _facts(facts: Mapping[str, Value | Unknown]) -> dict[str, object]:
    return {name: _fact(value) for name, value in facts.items()}


def _fact(value: Value | Unknown) -> object:
    if isinstance(value, Unknown):
        return {"unknown": value.why}
    if isinstance(value, frozenset):
        return sorted(value)
    return str(value) if isinstance(value, Release) else value


class FindingDocument(TypedDict):
    """A rule that applies, with its reason and fix."""

    rule: Annotated[str, at("rule.id")]
    category: Annotated[str, at("rule.category")]
    severity: Annotated[str, at("rule.severity")]
    confidence: Annotated[str, at("rule.grounds")]
    message: Annotated[str, at("rule.message")]
    fix: Annotated[str, at("rule.fix")]
    because: Annotated[dict[str, Any], at(lambda finding: _facts(finding.because))]
    sources: Annotated[list[str], at(lambda finding: [source.url for source in finding.rule.sources])]
    unchecked_since: str | None
    cited_lines: str | None


class UndeterminedDocument(TypedDict):
    """A rule that cannot be decided, and the missing information."""

    rule: Annotated[str, at("rule.id")]
    severity: Annotated[str, at("rule.severity")]
    missing: dict[str, Any]


def _graph_support(answer: Preflight) -> str | None:
    return None if answer.backend.graphs is None else answer.backend.graphs.name.lower()


class AttentionDocument(TypedDict):
    """The attention backend."""

    backend: Annotated[str | None, at("backend.name")]
    determined: Annotated[bool, at("backend.determined")]
    block: Annotated[str | None, at("backend.block")]
    graph_support: Annotated[str | None, at(_graph_support)]
    rejected: Annotated[dict[str, Any], at("backend.rejected")]


class MemoryDocument(TypedDict):
    """Whether the model fits in memory."""

    fits: Annotated[bool, at("memory.fits")]
    obstacle: Annotated[DoesNotFit | None, at("memory.obstacle")]
    capacity: Annotated[CacheCapacity | None, at("memory.capacity")]
    context_tokens: Annotated[int, at("memory.context_tokens")]
    cut: CutContext | None


class ArchitectureDocument(TypedDict):
    """The release from which the engine supports the architecture."""

    name: Annotated[str, at("architecture")]
    since: str | None
    too_new: bool


class PredictionsDocument(TypedDict):
    """Predicted kernels, attention backend, graphs and memory."""

    fp8: Annotated[list[DialectStep], at("dialect")]
    kernels: list[WeightGroup]
    attention: Annotated[AttentionDocument, at(lambda answer: answer)]
    graphs: GraphMode | None
    aiter_mla: Annotated[AiterLookup | None, at("aiter")]
    memory: Annotated[MemoryDocument, at(lambda answer: answer)]
    architecture: ArchitectureDocument


class FlagDocument(TypedDict):
    """A problem with a flag of the launch command."""

    name: str
    problem: str
    message: str


class LaunchDocument(TypedDict):
    """The launch command."""

    bare: Annotated[str, at(LaunchPlan.bare)]
    docker: Annotated[str | None, at(LaunchPlan.docker)]
    image: str | None
    nodes: int
    flags: list[Setting]
    variables: list[Setting]


class InsteadDocument(TypedDict):
    """A configuration that runs: the launch proposed instead of the user's command, or the nearest split."""

    parallelism: Annotated[Parallelism, at("question.asked.parallelism")]
    devices: Annotated[int, at("question.asked.parallelism.devices")]
    launch: Annotated[LaunchDocument, at("plan")]


class SpeedDocument(TypedDict):
    """Predicted throughput as executed."""

    output_tokens_per_s: Range
    tier: Annotated[Tier, at("prediction.tier")]
    input_tokens: Annotated[int, at(lambda _: LOAD[0])]
    output_tokens: Annotated[int, at(lambda _: LOAD[1])]
    concurrency: Annotated[int, at(lambda _: LOAD[2])]
    lost_to_missing_kernels_fraction: Annotated[float | None, at("lost_fraction")]
    settings_that_cost: Annotated[list[LaunchCost], at("costs.priced")]
    settings_not_priced: Annotated[list[str], at("costs.unpriced")]


def _recipe(answer: Preflight) -> dict[str, object] | None:
    return None if answer.recipe is None else {**plain_fields(answer.recipe), "source": SOURCE}


class PreflightDeployment(TypedDict):
    """The result for one accelerator and engine."""

    pool: Annotated[str | None, at(lambda _: None)]
    model: Annotated[str, at("question.subject.model.name")]
    accelerator: Annotated[str, at("question.accelerator.id")]
    devices: Annotated[int, at("question.asked.parallelism.devices")]
    parallelism: Annotated[Parallelism, at("question.asked.parallelism")]
    engine: Annotated[str, at("question.engine")]
    version: Annotated[str, at("question.version")]
    verdict: Annotated[Readiness, at("readiness")]
    newer_than_read: str | None
    passes: bool
    strict_failures: Annotated[list[str], at(lambda answer: list(strict_failures(answer)))]
    obstacles: list[StartObstacle]
    narrow: StartObstacle | None
    doubts: Annotated[list[StartObstacle], at("possible_obstacles")]
    notes: list[str]
    findings: Annotated[list[FindingDocument], at("assessment.findings")]
    undetermined: Annotated[list[UndeterminedDocument], at("assessment.undetermined")]
    not_known: Annotated[list[str], at("unknown")]
    rules_checked: Annotated[int, at("assessment.rules_checked")]
    predictions: Annotated[PredictionsDocument, at(lambda answer: answer)]
    recipe: Annotated[dict[str, Any] | None, at(_recipe)]
    measured: Annotated[list[ServedBy], at("served")]
    flags: list[FlagDocument]
    typed: Annotated[list[str] | None, at(lambda answer: answer.launch.typed or None)]
    launch: Annotated[LaunchDocument, at("plan")]
    facts: Annotated[dict[str, Any], at(lambda answer: _facts(dict(sorted(answer.facts.items()))))]
    speed: SpeedDocument | None
    speed_undetermined: Annotated[str | None, at(undetermined_speed)]
    instead: InsteadDocument | None


def _deployments(answer: Any) -> list[PreflightDeployment]:  # noqa: ANN401 - a PreflightAnswer
    return [
        build(PreflightDeployment, one, speed=speed, instead=instead, pool=None if pool is None else pool.name)
        for one, speed, instead, pool in zip(answer.answers, answer.speeds, answer.instead, answer.pools, strict=True)
    ]


class PreflightDocument(TypedDict):
    """Whether a checkpoint runs and gives correct answers."""

    schema: Literal["penstock.preflight/2"]
    model: Annotated[ModelDocument, at(lambda answer: answer.answers[0].question.subject.model)]
    passes: Annotated[bool, at(lambda answer: all(one.passes for one in answer.answers))]
    strict: bool
    good: bool
    deployments: Annotated[list[PreflightDeployment], at(_deployments)]
    method: Annotated[str, at(lambda _: "docs/guides/preflight.md")]
