"""The input and the complete result of a preflight, its verdict, and the obstacles that no rule describes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.catalog.accelerator import Accelerator
from penstock.fleet.release import Release
from penstock.fleet.serving_engines import ENGINES, EngineProfile, ServingEngine
from penstock.model import ModelSpec, Part
from penstock.performance import MemoryFit
from penstock.preflight.facts.drafting import ARCHITECTURES_WITHOUT_MTP, drafting_of, speculative_config
from penstock.preflight.facts.launched_model import compare_served
from penstock.preflight.facts.situation import Launch, Subject
from penstock.preflight.launch.context_ranks import wrong_context_ranks
from penstock.preflight.launch.json_keys import unchecked_keys
from penstock.preflight.launch.launch_choices import LaunchChoices
from penstock.preflight.launch.launch_plan import LaunchPlan
from penstock.preflight.launch.online_quantisation import mismatch
from penstock.preflight.launch.recipe import Recipe
from penstock.preflight.launch.release_flags import FlagFinding
from penstock.preflight.launch.start_memory import CutContext, uncounted_cache
from penstock.preflight.launch.state_blocks import too_few_blocks
from penstock.preflight.predictions.aiter_kernels import AiterLookup
from penstock.preflight.predictions.architecture_support import ArchitectureSupport
from penstock.preflight.predictions.attention_backend import Backend, GraphMode
from penstock.preflight.predictions.fp8_dialect import DialectStep
from penstock.preflight.predictions.measured_engines import ServedBy
from penstock.preflight.predictions.weight_kernels import KernelClass, WeightGroup, as_executed
from penstock.preflight.rules.condition import Facts, Unknown
from penstock.preflight.rules.findings import Assessment
from penstock.preflight.rules.rule import Severity
from penstock.preflight.start_obstacles import (
    ObstacleKind,
    StartObstacle,
    architecture_obstacles,
    command_obstacles,
    device_obstacles,
    flag_obstacles,
)

_KINDS: Final[Mapping[str, ObstacleKind]] = {
    "refused": "split",
    "weights": "memory",
    "fraction": "memory",
    "context": "context",
    "model_limit": "context",
}
_MTP_READ_SINCE: Final = Release("0.14.0")
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


@dataclass(frozen=True, kw_only=True)
class PreflightQuestion:
    """The input of a preflight: a checkpoint, an accelerator, an engine and, optionally, the user's own launch."""

    subject: Subject
    accelerator: Accelerator
    engine: ServingEngine
    version: Release
    asked: LaunchChoices
    launch: Launch | None = None
    """The user's own launch. If the user gives no launch (None), the launch that preflight proposes is checked."""
    host: Mapping[str, str] | None = None
    present_devices: int | None = None
    """Number of devices that the user says are there. None if the user gives no number."""

    @property
    def profile(self) -> EngineProfile:
        """What the engine is, and whose server and memory rules it has."""
        return ENGINES[self.engine]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPool:
    """Name and number of replicas of the pool whose launch was checked."""

    name: str
    replicas: int
    device: str = ""
    """Shared device of the first replica; empty if the pool shares no device."""


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
    newer_than_read: Release | None
    """The newest release before the checked one whose source code was read. None if the checked release was read."""
    older_than_read: Release | None = None
    """The first release whose flags were read, if the checked release is older. Otherwise None."""
    rocm_read: Release | None = None
    """The newest ROCm release of which anything was read."""
    unknown: tuple[str, ...] = ()
    """What is not known of the engine, in sentences. The tuple is empty for an engine whose source code was read."""

    @property
    def obstacles(self) -> tuple[StartObstacle, ...]:
        """Certain obstacles that no rule describes, such as an old release, too little memory or a removed flag."""
        return tuple(_obstacles(self))

    @property
    def narrow(self) -> StartObstacle | None:
        """The memory obstacle, if it occurs at only one end of the estimated range of start-up memory, or None."""
        if self.memory.certain:
            return None
        return _short_of_room(self) if self.memory.obstacle is not None else _tight_room(self)

    @property
    def uncounted_cache(self) -> str | None:
        """The KV cache dtype of the launch, if its bytes per token are not known. Otherwise None."""
        return uncounted_cache(self.launch)

    @property
    def possible_obstacles(self) -> tuple[StartObstacle, ...]:
        """Obstacles that may or may not stop the launch.

        Possible obstacles are a memory obstacle at one end of the estimated range, and flags that the release may lack.
        """
        unread = (flag for flag in self.flags if flag.stops and not flag.certain)
        short = () if (narrow := self.narrow) is None else (narrow,)
        drafts = () if _certainly_without_mtp(self) else _missing_draft_layers(self)
        few = _few_state_blocks(self)
        blocks = () if few is None or few[1] else (few[0],)
        return (*short, *blocks, *drafts, *(StartObstacle(kind="flag", text=flag.message) for flag in unread))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what was not checked: a newer ROCm, and parts of the user's launch command."""
        rocm = self.facts["host.rocm"] if self.facts["platform"] == "rocm" else None
        newer = isinstance(rocm, Release) and self.rocm_read is not None and rocm > self.rocm_read
        beyond = [f"ROCm {rocm}, which was not read beyond {self.rocm_read}"] if newer else []
        subject, served, config = self.question.subject, self.launch.flag("model-path"), self.launch.flag("config")
        found = [] if config is None else [f"--config {config} is not read, so its settings are not checked"]
        if served is not None and compare_served(subject, served) == "cannot_tell":
            found.append(f"cannot tell whether {served} is {subject.name}, which the verdict is about")
        drafts = drafting_of(self.launch)
        if drafts is not None and drafts.uncounted is not None:
            found.append(drafts.uncounted)
        elif drafts is not None and drafts.own_layers and not self.memory.deployment.speculative:
            found.append("the memory of the draft layers is not counted; with them the context may not fit")
        if self.launch.slices:
            found.append("the memory of the MIG slices that the command names; whole devices are counted")
        if self.uncounted_cache is not None:
            found.append(f"how many bytes a token takes in a KV cache of {self.uncounted_cache[:40]}, so what fits")
        found += unchecked_keys(self.launch)
        assumed = (subject.assumed,) if subject.assumed else ()
        return (*assumed, *beyond, *(found if self.launch.typed else ()))

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
        unread = any(group.kernel is KernelClass.UNDETERMINED for group in self.kernels) and not self.measured_as_asked
        unread = unread or isinstance(self.facts["chip"], Unknown)
        if unread or self.facts["platform"] == "other" or self.architecture.since is None:
            return Readiness.UNDETERMINED
        if self.uncounted_cache is not None or self.launch.slices:
            return Readiness.UNDETERMINED
        if self.assessment.of(Severity.WARNING) or self.unsupported_by_recipe or self.possible_obstacles:
            return Readiness.RISK
        lagging = any(self.lags(group) for group in self.kernels)
        return Readiness.SLOW if lagging or self.assessment.of(Severity.SLOW) else Readiness.RUNS

    @property
    def measured_as_asked(self) -> bool:
        """Whether published measurements with this engine, accelerator and weight format exist."""
        formats = self.question.subject.model.formats
        return any(
            served.engine == self.question.engine and set(served.weights) & set(formats) for served in self.served
        )

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
    def executed_model(self) -> ModelSpec:
        """The model with the weight formats that the kernels multiply, for speed predictions."""
        return as_executed(self.question.subject.model, self.kernels)


def _obstacles(answer: Preflight) -> Iterator[StartObstacle]:
    question = answer.question
    yield from architecture_obstacles(answer.architecture, question.engine, question.version)
    if (short := _short_of_room(answer)) is not None and answer.memory.certain:
        yield short
    if (few := _few_state_blocks(answer)) is not None and few[1]:
        yield few[0]
    yield from command_obstacles(answer.launch, question.accelerator, question.asked.parallelism)
    yield from device_obstacles(answer.launch, question.asked.parallelism, question.present_devices)
    yield from _model_of_the_line(answer)
    split, model = question.asked.parallelism, question.subject.model
    for why in wrong_context_ranks(answer.launch, question.engine, question.version, model, split):
        yield StartObstacle(kind="split", text=why)
    for group in answer.kernels:
        if group.kernel is KernelClass.NONE:
            yield StartObstacle(kind="kernel", text=f"no kernel for {group.format} {group.group}: {group.by}")
    if answer.backend.determined and answer.backend.name is None:
        yield StartObstacle(kind="backend", text=_no_backend(answer))
    yield from flag_obstacles(answer.flags)
    yield from _missing_draft_layers(answer) if _certainly_without_mtp(answer) else ()


def _few_state_blocks(answer: Preflight) -> tuple[StartObstacle, bool] | None:
    """Return the obstacle of too few blocks for recurrent states, and whether it is certain, or None."""
    found = None if answer.uncounted_cache is not None else too_few_blocks(answer.memory, answer.launch)
    return None if found is None else (StartObstacle(kind="requests", text=found[0]), found[1])


def _missing_draft_layers(answer: Preflight) -> Iterator[StartObstacle]:
    """Yield an obstacle if the checkpoint's own layers are to draft, and none of them are known."""
    model, drafts = answer.question.subject.model, drafting_of(answer.launch)
    if drafts is not None and drafts.own_layers and not any(weight.part is Part.MTP for weight in model.weights):
        text = f"{drafts.method[:40]} drafts with the checkpoint's own layers, and {model.name} is known to have none"
        yield StartObstacle(kind="model", text=text)


def _certainly_without_mtp(answer: Preflight) -> bool:
    """Return whether the release of vLLM was read to refuse drafts of this architecture's own layers."""
    config, question = speculative_config(answer.launch.flags), answer.question
    own = config is not None and config.get("model") is None
    read = question.profile.server == "vllm" and question.version >= _MTP_READ_SINCE
    return own and read and question.subject.model.architecture in ARCHITECTURES_WITHOUT_MTP


def _no_backend(answer: Preflight) -> str:
    """Say why no attention backend serves the launch, and what to change."""
    rejected = answer.backend.rejected
    reasons = ", ".join(f"{name}: {reason}" for name, reason in rejected.items())
    by_cache = all(reason.endswith(" cache") for reason in rejected.values())
    by_block = any(reason.startswith("no block size") for reason in rejected.values())
    named = answer.facts["launch.attention_backend"] != "auto"
    # Another backend may not take the block size either, so that the block size is what to change.
    hints = ["leave --block-size out"] if by_block else ["leave --attention-backend out"] if named else []
    hints += ["use --kv-cache-dtype fp8 or bfloat16"] if by_cache else []
    return f"no attention backend serves it ({reasons})" + (f"; {', or '.join(hints)}" if hints else "")


def _model_of_the_line(answer: Preflight) -> Iterator[StartObstacle]:
    """Yield the obstacles in the user's own command that concern the model: its name and its quantisation method."""
    subject, launch = answer.question.subject, answer.launch
    if (unread := mismatch(subject, (launch.flag("quantization") or "").lower() or None)) is not None:
        yield StartObstacle(kind="flag", text=unread)
    named = launch.flag("model-path") or ""
    short = {subject.model.name.casefold(), subject.name.rpartition("/")[2].casefold()}
    if "/" in subject.name and named.casefold() in short:
        yield StartObstacle(kind="model", text=f"'{named}' is not a repository; write {subject.name}")


def _short_of_room(answer: Preflight) -> StartObstacle | None:
    """Return the memory, context or split obstacle that would stop the launch, or None if nothing would stop it."""
    if answer.memory.obstacle is None or _starts_all_the_same(answer):
        return None
    hint, cut = "", answer.cut
    if cut is not None and cut.tokens > cut.safe_tokens:
        hint = f"; --max-model-len {cut.tokens} fits by the median estimate, {cut.safe_tokens} at its P90"
    elif cut is not None:
        hint = f"; --max-model-len {cut.tokens} fits"
    kind = _KINDS[answer.memory.obstacle.obstacle]
    return StartObstacle(kind=kind, text=answer.memory.obstacle.reason + hint)


def _tight_room(answer: Preflight) -> StartObstacle | None:
    """Return the context obstacle of a vLLM launch that fits by the median estimate of the reserves only, or None."""
    capacity, tokens = answer.memory.capacity, answer.memory.context_tokens
    if capacity is None or answer.question.profile.server != "vllm" or answer.uncounted_cache is not None:
        return None
    safe = capacity.safe_context_tokens
    instead = f"--max-model-len {safe} fits there too" if safe else "no context fits there"
    text = f"{tokens:,} tokens of context fit, but not at the P90 of what the engine reserves; {instead}"
    return StartObstacle(kind="context", text=text)


def _starts_all_the_same(answer: Preflight) -> bool:
    """Return whether the engine starts despite the memory or context obstacle.

    SGLang starts even if the context does not fit in memory, and then refuses long requests. A model's context limit is
    no obstacle if the launch overrides it. What a KV cache of unknown bytes holds is no obstacle either.
    """
    if answer.memory.obstacle_is("model_limit"):
        overridden = answer.launch.flag("hf-overrides", "json-model-override-args", "rope-scaling") is not None
        return overridden or any(answer.launch.environment.get(name) == "1" for name in _LONGER)
    if answer.memory.obstacle_is("context") and answer.uncounted_cache is not None:
        return True
    return answer.question.profile.server != "vllm" and answer.memory.obstacle_is("context")
