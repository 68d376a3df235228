"""Checks one deployment before its launch: rules, obstacles, predicted kernels, memory and launch plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal

from penstock.catalog.accelerator import Accelerator
from penstock.fleet.engines import NEWEST, EngineName
from penstock.fleet.release import Release
from penstock.model import ModelSpec
from penstock.performance import MemoryFit
from penstock.performance.memory.budget import DeviceRoom
from penstock.preflight.facts.derive_facts import derive_facts
from penstock.preflight.facts.launched_model import compare_served
from penstock.preflight.facts.situation import Launch, Situation, Subject
from penstock.preflight.launch.flag_values import check_values, requested_backend
from penstock.preflight.launch.images import image_platform, rocm_of_image
from penstock.preflight.launch.launch_plan import LaunchChoices, LaunchPlan, plan_launch
from penstock.preflight.launch.online_quantisation import as_launched, mismatch
from penstock.preflight.launch.recipe import Recipe, cookbook_settings, find_recipe
from penstock.preflight.launch.release_flags import FlagFinding, check_flags
from penstock.preflight.launch.start_memory import (
    CutContext,
    deployment_of,
    fit_to_memory,
    fitting_context,
    start_context,
)
from penstock.preflight.predictions.aiter_kernels import AiterLookup, lookup_mla
from penstock.preflight.predictions.architecture_support import ArchitectureSupport, architecture_support
from penstock.preflight.predictions.attention_backend import Backend, GraphMode, predict_backend, predict_graphs
from penstock.preflight.predictions.fp8_dialect import DialectStep, predict_dialect
from penstock.preflight.predictions.measured_engines import ServedBy, engines_measured_with
from penstock.preflight.predictions.weight_kernels import KernelClass, WeightGroup, as_executed, predict_kernels
from penstock.preflight.rules.condition import Facts, Unknown
from penstock.preflight.rules.findings import Assessment, assess
from penstock.preflight.rules.knowledge import Knowledge
from penstock.preflight.rules.rule import Severity

ObstacleKind = Literal[
    "architecture",
    "memory",
    "context",
    "split",
    "nodes",
    "kernel",
    "backend",
    "flag",
    "model",
    "image",
    "line",
    "devices",
]
_KINDS: Final[Mapping[str, ObstacleKind]] = {
    "refused": "split",
    "weights": "memory",
    "fraction": "memory",
    "context": "context",
    "model_limit": "context",
}
_SEVERAL_MACHINES: Final = (
    "nnodes",
    "distributed-executor-backend",
    "data-parallel-address",
    "data-parallel-backend",
    "dist-init-addr",
)
"""Flags that connect the nodes of a replica."""
_LONGER: Final = ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")


class Readiness(StrEnum):
    """The overall verdict of a preflight: one word for the worst known problem."""

    SILENT_WRONG = "silent-wrong"
    BLOCKED = "blocked"
    RISK = "risk"
    """The deployment may fail, but often does not."""
    SLOW = "slow"
    RUNS = "runs"
    UNDETERMINED = "undetermined"
    """No problem is known, but facts that would decide the verdict are unknown for this engine and accelerator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartObstacle:
    """An obstacle that keeps the engine from starting and that no rule describes."""

    kind: ObstacleKind
    text: str


@dataclass(frozen=True, kw_only=True)
class PreflightQuestion:
    """The input of a preflight: a checkpoint, an accelerator, an engine and, optionally, the user's own launch."""

    subject: Subject
    accelerator: Accelerator
    engine: EngineName
    version: Release
    asked: LaunchChoices
    launch: Launch | None = None
    """The user's own launch. If the user gives no launch (None), the launch that preflight proposes is checked."""
    host: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """The complete result of a preflight."""

    question: PreflightQuestion
    launch: Launch
    """The launch that was checked: the user's own launch, or the proposed launch if the user gave none."""
    facts: Facts
    assessment: Assessment
    architecture: ArchitectureSupport
    dialect: tuple[DialectStep, ...]
    kernels: tuple[WeightGroup, ...]
    backend: Backend
    graphs: GraphMode | None
    aiter: AiterLookup | None
    memory: MemoryFit
    cut: CutContext | None
    """A shorter context that fits in memory with vLLM, if the model's full context does not fit. Otherwise None."""
    flags: tuple[FlagFinding, ...]
    plan: LaunchPlan
    recipe: Recipe | None
    served: tuple[ServedBy, ...]
    """Engines that have published measurements with this model on this accelerator."""

    @property
    def obstacles(self) -> tuple[StartObstacle, ...]:
        """Certain obstacles that no rule describes, such as an old release, too little memory or a removed flag."""
        return tuple(_obstacles(self))

    @property
    def narrow(self) -> StartObstacle | None:
        """The memory obstacle, if it occurs at only one end of the estimated range of start-up memory, or None.

        Otherwise None.
        """
        return None if self.memory.certain else _short_of_room(self)

    @property
    def possible_obstacles(self) -> tuple[StartObstacle, ...]:
        """Obstacles that may or may not stop the launch.

        Possible obstacles are a memory obstacle at one end of the estimated range, and flags that the release may lack.
        """
        unread = (flag for flag in self.flags if flag.stops and not flag.certain)
        short = () if (narrow := self.narrow) is None else (narrow,)
        return (*short, *(StartObstacle(kind="flag", text=flag.message) for flag in unread))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the parts of the user's launch command that were not checked."""
        subject, served, config = self.question.subject, self.launch.flag("model-path"), self.launch.flag("config")
        found = [] if config is None else [f"--config {config} is not read, so its settings are not checked"]
        if served is not None and compare_served(subject, served) == "cannot_tell":
            found.append(f"cannot tell whether {served} is {subject.name}, which the verdict is about")
        return tuple(found) if self.launch.typed else ()

    @property
    def passes(self) -> bool:
        """Whether no known problem stops the launch or makes answers silently wrong."""
        return self.assessment.passes and not self.obstacles

    @property
    def readiness(self) -> Readiness:
        """The overall verdict, which names the worst known problem."""
        # A server that does not start cannot give wrong answers.
        if self.obstacles or self.assessment.of(Severity.BLOCKER):
            return Readiness.BLOCKED
        if self.assessment.of(Severity.SILENT_WRONG):
            return Readiness.SILENT_WRONG
        unread = any(group.kernel is KernelClass.UNDETERMINED for group in self.kernels)
        unread = unread or isinstance(self.facts["chip"], Unknown)
        if unread or self.facts["platform"] == "other" or self.architecture.since is None:
            return Readiness.UNDETERMINED
        if self.assessment.of(Severity.WARNING) or self.unsupported_by_recipe or self.possible_obstacles:
            return Readiness.RISK
        lagging = any(self.lags(group) for group in self.kernels)
        return Readiness.SLOW if lagging or self.assessment.of(Severity.SLOW) else Readiness.RUNS

    @property
    def unsupported_by_recipe(self) -> bool:
        """Whether the model's vLLM recipe lists this accelerator as unsupported."""
        return self.recipe is not None and self.recipe.status == "unsupported"

    def lags(self, group: WeightGroup) -> bool:
        """Return whether the accelerator could multiply a group of weights faster with native kernels.

        For widened weights, the result is true only if the accelerator has hardware units for their FP4 format.
        """
        if group.kernel is KernelClass.WIDENED:
            units = self.facts["chip.fp4"]
            return isinstance(units, frozenset) and group.format in units
        return group.kernel in {KernelClass.EMULATED, KernelClass.EXPANDED, KernelClass.TRITON}

    @property
    def newer_than_read(self) -> Release | None:
        """The newest release whose source code was read, if the checked release is newer. Otherwise None."""
        read = NEWEST[self.question.engine]
        return read if self.question.version > read else None

    @property
    def executed_model(self) -> ModelSpec:
        """The model with the weight formats that the kernels multiply, for speed predictions."""
        return as_executed(self.question.subject.model, self.kernels)


def _obstacles(answer: Preflight) -> Iterator[StartObstacle]:
    question = answer.question
    if answer.architecture.too_new:
        known = answer.architecture
        config = "" if known.registered == known.architecture else f", which this config calls {known.architecture}"
        text = f"{question.engine} {question.version} does not know {known.registered}{config}"
        yield StartObstacle(
            kind="architecture", text=f"{text}; the first release that knows it is {answer.architecture.since}"
        )
    if (short := _short_of_room(answer)) is not None and answer.memory.certain:
        yield short
    if (alone := _unconnected_nodes(answer)) is not None:
        yield alone
    yield from _of_the_line(answer)
    for group in answer.kernels:
        if group.kernel is KernelClass.NONE:
            yield StartObstacle(kind="kernel", text=f"no kernel for {group.format} {group.group}: {group.by}")
    if answer.backend.determined and answer.backend.name is None:
        reasons = ", ".join(f"{name}: {reason}" for name, reason in answer.backend.rejected.items())
        yield StartObstacle(kind="backend", text=f"no attention backend serves it ({reasons})")
    yield from (StartObstacle(kind="flag", text=flag.message) for flag in answer.flags if flag.stops and flag.certain)


def _of_the_line(answer: Preflight) -> Iterator[StartObstacle]:
    """Yield the obstacles in the user's own command.

    Such obstacles are broken lines, hidden devices, and a wrong quantisation method, model name or image.
    """
    subject, launch = answer.question.subject, answer.launch
    yield from (StartObstacle(kind="line", text=text) for text in launch.torn)
    started = answer.question.asked.parallelism.devices
    seen, alone = launch.visible_devices, launch.flag(*_SEVERAL_MACHINES) is None
    if seen is not None and seen < started and alone:
        text = f"the command lets the engine see {seen} of the {started} devices that it needs"
        yield StartObstacle(kind="devices", text=text)
    if (unread := mismatch(subject, launch.flag("quantization"))) is not None:
        yield StartObstacle(kind="flag", text=unread)
    named = launch.flag("model-path") or ""
    short = {subject.model.name.casefold(), subject.name.rpartition("/")[2].casefold()}
    if "/" in subject.name and named.casefold() in short:
        yield StartObstacle(kind="model", text=f"'{named}' is not a repository; write {subject.name}")
    platform = image_platform(launch.image)
    if platform is not None and answer.facts["platform"] in {"rocm", "cuda"} and platform != answer.facts["platform"]:
        part = answer.question.accelerator.id
        yield StartObstacle(
            kind="image", text=f"{launch.image} is built for {platform.upper()}, which {part} does not support"
        )


def _short_of_room(answer: Preflight) -> StartObstacle | None:
    """Return the memory, context or split obstacle that would stop the launch, or None if nothing would stop it."""
    if answer.memory.obstacle is None or _starts_all_the_same(answer):
        return None
    hint = f"; --max-model-len {answer.cut.tokens} fits" if answer.cut is not None else ""
    kind = _KINDS[answer.memory.obstacle.obstacle]
    return StartObstacle(kind=kind, text=answer.memory.obstacle.reason + hint)


def _starts_all_the_same(answer: Preflight) -> bool:
    """Return whether the engine starts despite the memory or context obstacle.

    SGLang starts even if the context does not fit in memory, and then refuses long requests. A model's context limit is
    no obstacle if the launch overrides it.
    """
    if answer.memory.obstacle_is("model_limit"):
        overridden = answer.launch.flag("hf-overrides", "json-model-override-args", "rope-scaling") is not None
        return overridden or any(answer.launch.environment.get(name) == "1" for name in _LONGER)
    return answer.question.engine == "sglang" and answer.memory.obstacle_is("context")


def _unconnected_nodes(answer: Preflight) -> StartObstacle | None:
    """Return an obstacle if a replica spans several nodes and the launch does not connect them."""
    split, node = answer.question.asked.parallelism, answer.question.accelerator.node
    if split.devices <= node.largest or answer.launch.flag(*_SEVERAL_MACHINES) is not None:
        return None
    machines = -(-split.devices // node.largest)
    text = f"{split.devices} devices are {machines} machines of {node.largest}, but this command starts one"
    return StartObstacle(kind="nodes", text=f"{text}; add --nnodes {machines} and --node-rank on each")


def check(question: PreflightQuestion, knowledge: Knowledge) -> Preflight:
    """Run a preflight: propose a launch, derive facts, evaluate every rule, and predict kernels and memory."""
    question = _as_launched(question)
    recipe = _recipe(question, knowledge)
    followed = None if recipe is not None and recipe.status == "unsupported" else recipe
    plan = _propose_launch(question, knowledge, followed)
    launch = question.launch or plan.as_launch()
    facts = dict(derive_facts(_situation(question, launch, knowledge)))
    kernels = predict_kernels(question.subject.model, facts, knowledge.kernels)
    split, executed = question.asked.parallelism, as_executed(question.subject.model, kernels)
    placed = deployment_of(launch, question.engine, question.version, question.accelerator, split, executed)
    if question.launch is None:
        plan, cut, memory = fit_to_memory(plan, placed, question.asked.context_tokens)
        launch = plan.as_launch()
        facts = dict(derive_facts(_situation(question, launch, knowledge)))
    else:
        room = DeviceRoom(placed)
        cut = fitting_context(room) if question.engine == "vllm" else None
        memory = room.at(start_context(launch, question.asked.context_tokens, placed))
    backend = predict_backend(facts, knowledge.attention)
    if backend.name is not None:
        facts["launch.attention"] = backend.name
    return Preflight(
        question=question,
        launch=launch,
        facts=facts,
        assessment=assess(knowledge.rules, facts),
        architecture=architecture_support(
            question.subject.model.architecture, question.engine, question.version, knowledge.architectures
        ),
        dialect=predict_dialect(facts),
        kernels=kernels,
        backend=backend,
        graphs=predict_graphs(facts, backend),
        aiter=lookup_mla(facts, knowledge.aiter),
        memory=memory,
        cut=cut,
        flags=(
            *check_flags(launch, question.version, knowledge.flags[question.engine]),
            *check_values(launch, question.engine, question.version, knowledge, memory.context_tokens),
        ),
        plan=plan,
        recipe=recipe,
        served=engines_measured_with(question.subject.model.name, question.accelerator.id, knowledge.served),
    )


def _propose_launch(question: PreflightQuestion, knowledge: Knowledge, recipe: Recipe | None) -> LaunchPlan:
    """Propose a launch.

    A launch for vLLM includes the flags of the model's recipe. A launch for SGLang includes the flags that SGLang's
    cookbook lists for the model family.
    """
    engine, version = question.engine, question.version
    plan = plan_launch(question.subject, question.accelerator, engine, version, question.asked, recipe)
    if engine == "sglang":
        choices = knowledge.choices["sglang"]
        plan = plan.with_flags(*cookbook_settings(question.subject.name, version, knowledge.cookbook, choices))
    return plan.with_published_image(knowledge.images["released"][engine])


def _as_launched(question: PreflightQuestion) -> PreflightQuestion:
    """Return the preflight question with the weight formats that result from the quantisation that the launch requests.

    A proposed launch uses the quantisation method of the user's launch.
    """
    method = question.asked.quantization or (question.launch and question.launch.flag("quantization", "quant")) or None
    stored = as_launched(question.subject, method)
    if stored is question.subject:
        return question
    return replace(question, subject=stored, asked=replace(question.asked, quantization=method))


def _recipe(question: PreflightQuestion, knowledge: Knowledge) -> Recipe | None:
    """Return vLLM's recipe for the model, or None if there is none. Other engines have no recipes."""
    if question.engine != "vllm":
        return None
    return find_recipe(
        question.subject.name,
        question.accelerator,
        question.version,
        knowledge.recipes,
        knowledge.flags["vllm"],
        knowledge.choices["vllm"],
    )


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
        attention_backend=requested_backend(launch, question.engine, question.version, knowledge),
    )
