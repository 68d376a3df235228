"""Will it run here, will it be right, how fast, with which flags? Everything preflight says about one deployment."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal

from penstock.catalog.accelerator import Accelerator
from penstock.errors import ConfigError
from penstock.fleet import Deployment, engine_defaults
from penstock.fleet.engine import EngineName
from penstock.fleet.release import Release
from penstock.model import CacheDtype, ModelSpec, cache_dtype
from penstock.performance import MemoryFit, fit
from penstock.performance.memory.budget import usual_context_tokens
from penstock.preflight.facts.derive import derive_facts
from penstock.preflight.facts.situation import Launch, Situation, Subject
from penstock.preflight.launch.flags import FlagFinding, check_flags
from penstock.preflight.launch.plan import Asked, LaunchPlan, plan_launch, rocm_of_image
from penstock.preflight.launch.recipe import Recipe, find_recipe
from penstock.preflight.predicted.aiter import AiterLookup, lookup_mla
from penstock.preflight.predicted.attention import Backend, GraphMode, predict_backend, predict_graphs
from penstock.preflight.predicted.dialect import DialectStep, predict_dialect
from penstock.preflight.predicted.kernels import KernelClass, WeightGroup, as_executed, predict_kernels
from penstock.preflight.rules.condition import Facts, Unknown
from penstock.preflight.rules.findings import Assessment, assess
from penstock.preflight.rules.knowledge import Knowledge
from penstock.preflight.rules.rule import Severity

ObstacleKind = Literal["memory", "context", "split", "kernel", "backend", "flag"]
_KINDS: Final[Mapping[str, ObstacleKind]] = {
    "refused": "split",
    "weights": "memory",
    "fraction": "memory",
    "context": "context",
    "model_limit": "context",
}


class Readiness(StrEnum):
    """Whether it would serve: the worst that is known, in one word."""

    SILENT_WRONG = "silent-wrong"
    BLOCKED = "blocked"
    RISK = "risk"
    """It may fail, and often does not."""
    SLOW = "slow"
    RUNS = "runs"
    UNDETERMINED = "undetermined"
    """Nothing is known against it, but what decides is not known for this engine and chip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartObstacle:
    """What stops it besides the rules."""

    kind: ObstacleKind
    text: str


@dataclass(frozen=True, kw_only=True)
class PreflightQuestion:
    """What a user asks: this checkpoint, there, with that engine, perhaps with a launch of their own."""

    subject: Subject
    accelerator: Accelerator
    engine: EngineName
    version: Release
    asked: Asked
    launch: Launch | None = None
    """The user's own launch; None asks about the one preflight proposes."""
    host: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """The whole answer."""

    question: PreflightQuestion
    facts: Facts
    assessment: Assessment
    dialect: tuple[DialectStep, ...]
    kernels: tuple[WeightGroup, ...]
    backend: Backend
    graphs: GraphMode | None
    aiter: AiterLookup | None
    memory: MemoryFit
    flags: tuple[FlagFinding, ...]
    plan: LaunchPlan
    recipe: Recipe | None

    @property
    def obstacles(self) -> tuple[StartObstacle, ...]:
        """What stops it besides the rules: no memory, no kernel, no backend, a flag that is gone."""
        found = []
        if self.memory.obstacle is not None:
            found.append(StartObstacle(kind=_KINDS[self.memory.obstacle.obstacle], text=self.memory.obstacle.reason))
        found += [
            StartObstacle(kind="kernel", text=f"no kernel for {group.format} {group.group}: {group.by}")
            for group in self.kernels
            if group.kernel is KernelClass.NONE
        ]
        if self.backend.determined and self.backend.name is None:
            reasons = ", ".join(f"{name}: {reason}" for name, reason in self.backend.rejected.items())
            found.append(StartObstacle(kind="backend", text=f"no attention backend serves it ({reasons})"))
        gone = (flag for flag in self.flags if flag.name.startswith("--") and flag.problem != "unknown")
        found += [StartObstacle(kind="flag", text=flag.message) for flag in gone]
        return tuple(found)

    @property
    def passes(self) -> bool:
        """Whether nothing is known that stops it or silently spoils its answers."""
        return self.assessment.passes and not self.obstacles

    @property
    def readiness(self) -> Readiness:
        """The worst that is known."""
        # What does not start cannot answer wrongly.
        if self.obstacles or self.assessment.of(Severity.BLOCKER):
            return Readiness.BLOCKED
        if self.assessment.of(Severity.SILENT_WRONG):
            return Readiness.SILENT_WRONG
        unread = any(group.kernel is KernelClass.UNDETERMINED for group in self.kernels)
        if unread or self.facts["platform"] == "other":
            return Readiness.UNDETERMINED
        if self.assessment.of(Severity.WARNING):
            return Readiness.RISK
        slower = {KernelClass.EMULATED, KernelClass.EXPANDED, KernelClass.WIDENED, KernelClass.TRITON}
        lagging = any(group.kernel in slower for group in self.kernels)
        return Readiness.SLOW if lagging or self.assessment.of(Severity.SLOW) else Readiness.RUNS

    @property
    def executed_model(self) -> ModelSpec:
        """The model with every format as it is multiplied: what a speed prediction must price."""
        return as_executed(self.question.subject.model, self.kernels)

    @property
    def unknown_facts(self) -> tuple[str, ...]:
        """Facts that are not known, whether or not a rule asks for them."""
        return tuple(name for name, value in self.facts.items() if isinstance(value, Unknown))


def check(question: PreflightQuestion, knowledge: Knowledge) -> Preflight:
    """Answer a question: propose a launch, derive facts, try every rule, predict what will serve."""
    plan = plan_launch(question.subject, question.accelerator, question.engine, question.version, question.asked)
    launch = question.launch or plan.as_launch()
    facts = dict(derive_facts(_situation(question, launch, knowledge)))
    backend = predict_backend(facts, knowledge.attention)
    if backend.name is not None:
        facts["launch.attention"] = backend.name
    kernels = predict_kernels(question.subject.model, facts, knowledge.kernels)
    return Preflight(
        question=question,
        facts=facts,
        assessment=assess(knowledge.rules, facts),
        dialect=predict_dialect(facts),
        kernels=kernels,
        backend=backend,
        graphs=predict_graphs(facts, backend),
        aiter=lookup_mla(facts, knowledge.aiter),
        memory=_memory(question, launch, as_executed(question.subject.model, kernels)),
        flags=check_flags(launch, question.engine, question.version, knowledge.flags[question.engine]),
        plan=plan,
        recipe=_recipe(question, knowledge),
    )


def _recipe(question: PreflightQuestion, knowledge: Knowledge) -> Recipe | None:
    """Recipes are vLLM's."""
    if question.engine != "vllm":
        return None
    return find_recipe(question.subject.name, question.accelerator, question.version, knowledge.recipes)


def _situation(question: PreflightQuestion, launch: Launch, knowledge: Knowledge) -> Situation:
    host = dict(question.host or {})
    rocm = rocm_of_image(launch.image, question.version, knowledge.images)
    if rocm is not None and host.get("install", "docker") == "docker":
        host.setdefault("rocm", rocm)
    return Situation(
        subject=question.subject,
        accelerator=question.accelerator,
        engine=question.engine,
        version=question.version,
        parallelism=question.asked.parallelism,
        launch=launch,
        host=host,
    )


def _memory(question: PreflightQuestion, launch: Launch, executed: ModelSpec) -> MemoryFit:
    split, part = question.asked.parallelism, question.accelerator
    engine = engine_defaults(question.engine, part, version=str(question.version), tp=split.tp, pp=split.pp)
    fraction = launch.flag("gpu-memory-utilization", "mem-fraction-static")
    if fraction is not None and _is_fraction(fraction):
        engine = replace(engine, memory_fraction=float(fraction))
    deployment = Deployment(
        model=executed,
        accelerator=part,
        engine=replace(engine, graphs=launch.flag("enforce-eager", "disable-cuda-graph") is None),
        parallelism=split,
        cache_dtype=_cache_dtype(launch.flag("kv-cache-dtype")),
    )
    return fit(deployment, question.asked.context_tokens or usual_context_tokens(executed))


def _is_fraction(text: str) -> bool:
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False


def _cache_dtype(asked: str | None) -> CacheDtype | None:
    try:
        return None if asked in {None, "auto"} else cache_dtype(str(asked))
    except ConfigError:
        return None
