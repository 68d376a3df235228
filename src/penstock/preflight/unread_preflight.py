"""Checks a launch of a model whose shape is not read: registries, flags, image, recipe and rules that need no shape."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.catalog.accelerator import Accelerator
from penstock.checkpoint import open_config
from penstock.errors import UnknownArchitecture
from penstock.fleet.release import Release
from penstock.fleet.serving_engines import ENGINES, EngineProfile, ServingEngine
from penstock.preflight.facts.derive_facts import derive_facts_without_shape
from penstock.preflight.facts.situation import UNKNOWN_ARCHITECTURE, Launch, LaunchSituation, UnreadModel
from penstock.preflight.launch.flag_values import check_values, requested_backend
from penstock.preflight.launch.launch_choices import LaunchChoices
from penstock.preflight.launch.launch_plan import LaunchPlan
from penstock.preflight.launch.propose_launch import host_of, propose_launch, recipe_of
from penstock.preflight.launch.recipe import Recipe
from penstock.preflight.launch.release_flags import FlagFinding, check_flags
from penstock.preflight.predictions.architecture_support import ArchitectureSupport, architecture_support
from penstock.preflight.preflight_result import Readiness
from penstock.preflight.rules.condition import Facts
from penstock.preflight.rules.findings import Assessment, assess, last_read_release
from penstock.preflight.rules.knowledge import Knowledge
from penstock.preflight.rules.rule import Severity
from penstock.preflight.start_obstacles import (
    StartObstacle,
    architecture_obstacles,
    command_obstacles,
    device_obstacles,
    flag_obstacles,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Whether an engine registers an architecture."""

    engine: str
    since: str | None
    """First release whose registry lists the architecture. The release is `?` if it was not read, and None if no
    registry lists the architecture."""
    last_read: str
    """Newest release whose registry was read."""


@dataclass(frozen=True, kw_only=True)
class UnreadQuestion:
    """The input of a preflight of a model whose shape is not read."""

    model: UnreadModel
    accelerator: Accelerator
    engine: ServingEngine
    version: Release
    asked: LaunchChoices
    launch: Launch | None = None
    """The user's own launch. If it is None, the launch that preflight proposes is checked."""
    host: Mapping[str, str]
    present_devices: int | None = None
    """Number of devices that the user says are there. None if the user gives no number."""

    @property
    def profile(self) -> EngineProfile:
        """What the engine is, and whose server it has."""
        return ENGINES[self.engine]


@dataclass(frozen=True, kw_only=True)
class UnreadPreflight:
    """The result of a preflight of a model whose shape is not read. Memory, kernels and speed are undetermined."""

    question: UnreadQuestion
    launch: Launch
    facts: Facts
    assessment: Assessment
    architecture: ArchitectureSupport
    registrations: tuple[Registration, ...]
    """One entry for each engine whose registry was read."""
    obstacles: tuple[StartObstacle, ...]
    flags: tuple[FlagFinding, ...]
    plan: LaunchPlan
    recipe: Recipe | None
    newer_than_read: Release | None
    """The newest release before the checked one that was read. None if the checked release was read."""

    @property
    def readiness(self) -> Readiness:
        """The verdict: blocked or silently wrong if that needs no shape to be known, undetermined otherwise."""
        if self.obstacles or self.assessment.of(Severity.BLOCKER):
            return Readiness.BLOCKED
        return Readiness.SILENT_WRONG if self.assessment.of(Severity.SILENT_WRONG) else Readiness.UNDETERMINED

    @property
    def passes(self) -> bool:
        """Whether nothing is known that stops the launch or makes its answers silently wrong."""
        return self.readiness is Readiness.UNDETERMINED


def unread_model(name: str, reason: UnknownArchitecture) -> UnreadModel:
    """Return the model that a user names and whose shape could not be read for a reason."""
    files = open_config(name)
    if files.config.texts("architectures")[0] == UNKNOWN_ARCHITECTURE:
        return unknown_repository(files.repository or name)
    called = files.repository or name.removeprefix("hf:").partition("@")[0]
    return UnreadModel(
        name=called.removesuffix("config.json").rstrip("/") or ".",
        architecture=files.config.texts("architectures")[0][:80],
        reason=str(reason),
        config=files.config,
    )


def unknown_repository(name: str) -> UnreadModel:
    """Return the model of a repository that is not in the catalog and whose config is not at hand."""
    reason = (
        f"the catalog does not have {name}; name hf:{name} to read its config from the hub, or give its config.json"
    )
    return UnreadModel(name=name, architecture=UNKNOWN_ARCHITECTURE, reason=reason, config=None)


def check_unread(question: UnreadQuestion, knowledge: Knowledge) -> UnreadPreflight:
    """Check what needs no shape: the registry, the flags, the image, the recipe, and the rules that can be decided."""
    model, engine, version = question.model, question.engine, question.version
    recipe = recipe_of(model.name, question.accelerator, engine, version, knowledge)
    plan = propose_launch(model, question.accelerator, engine, version, question.asked, knowledge, recipe)
    launch = question.launch or plan.as_launch()
    situation = LaunchSituation(
        accelerator=question.accelerator,
        engine=engine,
        version=version,
        parallelism=question.asked.parallelism,
        launch=launch,
        host=host_of(launch, version, question.host, knowledge),
        attention_backend=requested_backend(launch, question.profile.server, version, knowledge),
    )
    facts = derive_facts_without_shape(situation, model)
    support = architecture_support(model.architecture, engine, version, knowledge.architectures)
    server = question.profile.server
    flags = (
        *check_flags(launch, version, knowledge.flags[server]),
        *check_values(launch, server, version, knowledge),
    )
    return UnreadPreflight(
        question=question,
        launch=launch,
        facts=facts,
        assessment=assess(knowledge.rules, facts, knowledge.standings),
        architecture=support,
        registrations=registrations(model.architecture, knowledge.architectures),
        obstacles=(
            *(() if model.config is None else architecture_obstacles(support, engine, version)),
            *command_obstacles(launch, question.accelerator, question.asked.parallelism),
            *device_obstacles(launch, question.asked.parallelism, question.present_devices),
            *(() if model.config is None else _unregistered_method(question, knowledge, str(facts["quant.method"]))),
            *flag_obstacles(flags),
        ),
        flags=flags,
        plan=plan,
        recipe=recipe,
        newer_than_read=last_read_release(engine, version, knowledge.standings),
    )


def registrations(architecture: str, table: Mapping[str, Any]) -> tuple[Registration, ...]:
    """Return for each engine the first release that registers an architecture. Return nothing for an unknown one."""
    if architecture == UNKNOWN_ARCHITECTURE:
        return ()
    named = table["registered"].get(architecture, architecture)
    return tuple(
        Registration(engine=engine, since=entries.get(named), last_read=entries["last_read"])
        for engine, entries in table.items()
        if "last_read" in entries
    )


def _unregistered_method(question: UnreadQuestion, knowledge: Knowledge, method: str) -> Iterator[StartObstacle]:
    """Yield an obstacle if the release was read and has no quantisation method of the name that the config states."""
    methods = knowledge.choices.get(question.profile.server, {}).get("quantization")
    if methods is None or method in {"none", "unstated"} or question.version not in methods.read:
        return
    if not methods.has(method, question.version) and not methods.has(method.replace("-", "_"), question.version):
        text = f"{question.engine} {question.version} registers no quantisation method '{method[:40]}'"
        yield StartObstacle(kind="kernel", text=text)
