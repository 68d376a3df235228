"""Checks whether a deployment will start and answer correctly, and proposes its flags: `penstock.preflight`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.api.answer import ApiAnswer, Row, device_label
from penstock.api.arguments.choices import counted_targets, split_choice, tokens_choice
from penstock.api.doctor import host_of
from penstock.api.options.argument_types import Targets
from penstock.api.options.option_fields import takes
from penstock.api.options.preflight_options import PreflightOptions
from penstock.api.progress import ProgressListener
from penstock.catalog import load_accelerators
from penstock.catalog.accelerator import Accelerator
from penstock.checkpoint import open_checkpoint
from penstock.checkpoint.fp8.scan import scan_bytes, scan_fp8
from penstock.errors import UnknownArchitecture, UsageError
from penstock.fleet import Parallelism, Release
from penstock.fleet.engines import NEWEST
from penstock.fleet.serving_engines import ENGINES, ServingEngine, serving_engine
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.preflight import (
    Launch,
    LaunchChoices,
    Preflight,
    PreflightQuestion,
    Subject,
    check,
    parse_command,
)
from penstock.preflight.executed_speed import Speed, predicted_speed
from penstock.preflight.facts.launched_model import catalog_id, compare_served
from penstock.preflight.facts.stated_split import stated_split
from penstock.preflight.facts.subject import scanned_facts, smallest_split, subject_of
from penstock.preflight.launch.images import image_release
from penstock.preflight.launch.release_flags import expand_abbreviations
from penstock.preflight.nearest_split import nearest
from penstock.preflight.packs.pack_files import load_extended, rule_directories
from penstock.preflight.preflight_result import CheckedPool
from penstock.preflight.rules.knowledge import Knowledge
from penstock.preflight.strict_failures import strict_failures
from penstock.report.preflight.document import PreflightDocument
from penstock.report.preflight.short import EXPLAIN, render_fleet, render_short
from penstock.report.preflight.terminal import render_matrix, render_preflight

if TYPE_CHECKING:
    from penstock.api.options.file_types import AskedFleet


@dataclass(frozen=True, kw_only=True, repr=False)
class PreflightAnswer(ApiAnswer):
    """Preflight results, one per accelerator. The answer of --matrix has one result per accelerator and engine."""

    document_type = PreflightDocument
    answers: tuple[Preflight, ...]
    speeds: tuple[Speed | None, ...]
    instead: tuple[Preflight | None, ...]
    pools: tuple[CheckedPool | None, ...]
    """For each result, the pool of the fleet file. None for a deployment that the user asked about directly."""
    matrix: bool = False
    strict: bool = False
    explain: bool = False
    """Whether `render` shows kernels, reasons and sources, and not only the verdict, the findings and one command."""

    @property
    def good(self) -> bool:
        """Return whether no finding blocks a launch or makes answers silently wrong.

        With `strict`, every launch must also be free of risks and of undetermined parts, and its release must have
        been read. The verdict of a matrix is always positive.
        """
        return self.matrix or all(
            answer.passes and not (self.strict and strict_failures(answer)) for answer in self.answers
        )

    def rows(self) -> list[Row]:
        """Return one row per accelerator and engine."""
        return [_row(answer, speed) for answer, speed in zip(self.answers, self.speeds, strict=True)]

    def render(self, columns: int) -> RenderableType:
        """Return what `preflight` prints."""
        if self.matrix:
            return render_matrix(self.answers)
        pools = [pool for pool in self.pools if pool is not None]
        if pools:
            return render_fleet(pools, self.answers, columns, strict=self.strict)
        pieces: list[RenderableType] = []
        for answer, speed, other in zip(self.answers, self.speeds, self.instead, strict=True):
            pieces += [Text()] if pieces else []
            if self.explain:
                pieces.append(render_preflight(answer, speed, other))
            else:
                pieces.append(render_short(answer, columns, speed=speed, instead=other, strict=self.strict))
        return Group(*pieces) if self.explain else Group(*pieces, Text(f"\n{EXPLAIN}", style="dim"))

    def _summary(self) -> tuple[str, Sequence[str]]:
        return self.answers[0].question.subject.model.name, [
            f"{device_label(answer.question.accelerator.id, answer.question.asked.parallelism.devices)} "
            f"{answer.question.engine} {answer.readiness.value}"
            for answer in self.answers
        ]


@takes(PreflightOptions)
def preflight(options: PreflightOptions) -> PreflightAnswer:
    """Check a deployment, as `penstock preflight` does: `preflight("deepseek-r1", "mi300x:8")`.

    `host` is the software below the engine: `{"rocm": "7.2.3"}`, or text as on the command line. Querying a running
    server (--probe) is possible only on the command line.
    """
    if options.fleet is not None:
        return _check_fleet(options, options.fleet)
    knowledge = load_extended(rule_directories(options.rules))
    choices = LaunchQuestions(options, knowledge)
    named = choices.model if options.model is None else fspath(options.model)
    if named is None:
        raise UsageError("no model is named; give a config.json, a checkpoint directory, a catalog name or hf:org/name")
    try:
        subject = _subject(named, options.watch, scan=options.scan)
    except UnknownArchitecture as reason:
        if options.on is None or options.matrix or options.scan:
            raise
        from penstock.api.unread_answer import answer_without_shape  # noqa: PLC0415 - few models need it

        return answer_without_shape(named, reason, choices, options.on, strict=options.strict)
    _refuse_other_model(named, subject, choices.model)
    if options.matrix:
        if options.on is not None or options.command is not None:
            raise UsageError("--matrix covers every accelerator and both engines; leave out --on and --command")
        questions = choices.everywhere(subject)
    elif (on := options.on or choices.target) is None:
        raise UsageError("no accelerator is named; add `--on mi300x:8`, or --matrix for all accelerators")
    else:
        questions = list(choices.questions(subject, on))
    answers = []
    for done, question in enumerate(questions):
        options.watch.progress("checking", done, len(questions))
        answers.append(check(question, knowledge))
    return PreflightAnswer(
        answers=tuple(answers),
        speeds=tuple(predicted_speed(answer, shipped_efficiencies(), knowledge.speed) for answer in answers),
        instead=tuple(nearest(answer, knowledge) for answer in answers),
        pools=(None,) * len(answers),
        matrix=options.matrix,
        strict=options.strict,
        explain=options.explain,
    )


def _check_fleet(options: PreflightOptions, fleet: "AskedFleet") -> PreflightAnswer:
    """Check the launch of one replica of every pool."""
    given = {"a model": options.model, "--on": options.on, "--command": options.command, "--matrix": options.matrix}
    if named := next((name for name, value in given.items() if value), None):
        raise UsageError(f"--fleet names models and accelerators itself; leave out {named}")
    from penstock.api.fleet_check import check_fleet  # noqa: PLC0415 - a single deployment does without its libraries

    pools, answers = check_fleet(fleet, load_extended(rule_directories(options.rules)), options.watch)
    nothing = (None,) * len(answers)
    return PreflightAnswer(answers=answers, speeds=nothing, instead=nothing, pools=pools, strict=options.strict)


class LaunchQuestions:
    """Builder of one preflight question per deployment from the options.

    Options that the user did not give are read from the launch command.
    """

    def __init__(self, options: PreflightOptions, knowledge: Knowledge) -> None:
        self.knowledge = knowledge
        self.engine, self.version = options.engine, options.engine_version
        self.tp, self.pp, self.dp, self.ep = options.tp, options.pp, options.dp, options.ep
        self.context_tokens = None if options.context is None else tokens_choice(options.context)
        self.cache_dtype = _cache_text(options.kv)
        host = options.host
        texts = [f"{name}={value}" for name, value in host.items()] if isinstance(host, Mapping) else list(host)
        hosts = [host_of(text) for text in texts if "=" not in text]
        self.host = {name: value for one in hosts for name, value in one.stated.items()}
        self.host.update(_pair(text) for text in texts if "=" in text)
        self.target = next((one.target for one in hosts), None)
        installed = next((one.packages for one in hosts), {})
        if self.version is None and options.command is None and self.engine in installed:
            self.version = installed[self.engine]
        self.launch: Launch | None = None
        if options.command is not None:
            named, launch = parse_command(options.command)
            self.engine = named or options.engine
            self._take(launch)

    def _take(self, launch: Launch) -> None:
        """Fill in the engine version and the split from a launch command."""
        engine = serving_engine(self.engine)
        tagged = image_release(launch.image)
        if tagged is not None and self.version and Release(self.version) != tagged:
            raise UsageError(
                f"--engine-version {self.version} and the image {launch.image} disagree; leave one of them out"
            )
        self.version = str(tagged) if tagged is not None else self.version
        version = Release(self.version) if self.version else NEWEST[engine]
        self.launch = expand_abbreviations(launch, self.knowledge.flags[ENGINES[engine].server], version)
        stated = stated_split(self.launch, engine)
        self.tp, self.pp = self.tp or stated.tp, max(self.pp, stated.pp)
        self.dp, self.ep = max(self.dp, stated.dp), self.ep or stated.spreads_experts

    @property
    def model(self) -> str | None:
        """Return the model that the launch command names, or None."""
        return None if self.launch is None else self.launch.flag("model-path")

    @property
    def serving_engine(self) -> ServingEngine:
        """Return the engine that the user chose."""
        return serving_engine(self.engine)

    @property
    def release(self) -> Release:
        """Return the release that the user chose, or the newest one that was read."""
        return Release(self.version) if self.version else NEWEST[self.serving_engine]

    def questions(self, subject: Subject, on: Targets) -> Iterable[PreflightQuestion]:
        """Yield one question per accelerator."""
        for accelerator, split in self.splits(on):
            yield self.question(subject, accelerator, split)

    def splits(self, on: Targets) -> Iterable[tuple[Accelerator, Parallelism]]:
        """Yield each accelerator with the split that the options state for it."""
        for accelerator, present in counted_targets(on):
            tp, pp = self.tp, self.pp
            # If a shell variable gives the count, or the count does not parse, all devices are assumed.
            unread = tp is None and self.launch is not None and self.launch.flag("tensor-parallel-size") is not None
            devices = present if unread else self._used_devices(present, tp or 1)
            if devices is not None and tp is None and self._spans_nodes(accelerator, devices, pp):
                # No fast link joins the nodes, so tensor parallelism stays within a node. Nodes are pipeline stages.
                tp, pp = accelerator.node.devices, devices // accelerator.node.devices
            yield accelerator, split_choice(accelerator, devices, tp=tp, pp=pp, dp=self.dp, ep=self.ep)

    def _used_devices(self, devices: int | None, tp: int) -> int | None:
        """Return the number of devices that the launch command uses, which may be fewer than the host has."""
        ranks = tp * self.pp * self.dp
        return ranks if self.launch is not None and devices is not None and ranks < devices else devices

    def _spans_nodes(self, accelerator: Accelerator, devices: int, pp: int) -> bool:
        """Return whether the devices fill several nodes that are not joined by a fast link.

        The result is false if the user gives a pipeline-parallel or data-parallel split.
        """
        linked = accelerator.link.domain_devices if accelerator.link else None
        together = max(accelerator.node.largest, linked or 0)
        return pp == self.dp == 1 and devices > together and devices % accelerator.node.devices == 0

    def question(self, subject: Subject, accelerator: Accelerator, split: Parallelism) -> PreflightQuestion:
        """Build the question for one accelerator and split."""
        return PreflightQuestion(
            subject=subject,
            accelerator=accelerator,
            engine=self.serving_engine,
            version=self.release,
            asked=self.launch_choices(split),
            launch=self.launch,
            host=self.host,
        )

    def launch_choices(self, split: Parallelism) -> LaunchChoices:
        """Return what the user chose of the launch, with a split."""
        return LaunchChoices(parallelism=split, cache_dtype=self.cache_dtype, context_tokens=self.context_tokens)

    def everywhere(self, subject: Subject) -> list[PreflightQuestion]:
        """Build one question for each combination of accelerator and engine.

        Each question is for the minimum number of devices on which the model fits.
        """
        questions = []
        for accelerator in load_accelerators():
            for engine in ("vllm", "sglang"):
                self.engine = engine
                split = smallest_split(subject, accelerator, self.context_tokens, engine)
                questions.append(self.question(subject, accelerator, split))
        return questions


def _subject(name: str, watch: ProgressListener, *, scan: bool) -> Subject:
    subject = subject_of(open_checkpoint(name, headers=True), name)
    if not scan:
        return subject
    folder = Path(name) if Path(name).is_dir() else Path(name).parent
    if not Path(name).exists():
        raise UsageError(f"--scan needs a local checkpoint, but '{name}' is not a path on this machine")
    total_bytes, read_bytes = scan_bytes(folder), 0

    def advance(count: int) -> None:
        nonlocal read_bytes
        read_bytes += count
        watch.progress("scanning", read_bytes, total_bytes)

    return replace(subject, scanned=scanned_facts(scan_fp8(folder, advance)))


def _refuse_other_model(asked: str, subject: Subject, served: str | None) -> None:
    """Raise an error if the launch command serves a catalog model other than the model that the user named."""
    if served is not None and compare_served(subject, served) == "other":
        known = catalog_id(served)
        called = served if served == known else f"{served} ({known})"
        raise UsageError(
            f"--command serves {called}, not {asked}; name the model that the command serves, or leave the model out"
        )


def _row(answer: Preflight, speed: Speed | None) -> Row:
    question, findings = answer.question, answer.assessment.findings
    worst = [finding.rule.id for finding in findings if finding.rule.severity.value in {"silent-wrong", "blocker"}]
    return {
        "accelerator": question.accelerator.id,
        "devices": question.asked.parallelism.devices,
        "split": str(question.asked.parallelism),
        "engine": question.engine,
        "version": str(question.version),
        "verdict": answer.readiness.value,
        "passes": answer.passes,
        "findings": len(findings),
        "undetermined": len(answer.assessment.undetermined),
        "stopped_by": ", ".join(worst),
        "output_tokens_per_s": None if speed is None else speed.output_tokens_per_s.value,
        "command": answer.plan.bare(),
    }


def _cache_text(text: str) -> str | None:
    known = ("auto", "bf16", "bfloat16", "fp16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2")
    spelled = text.strip().lower()
    if spelled not in known:
        raise UsageError(f"--kv: '{text}' is not a cache dtype; use one of {', '.join(known)}")
    return {"auto": None, "bf16": "bfloat16", "fp16": "float16"}.get(spelled, spelled)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise UsageError(f"--host: '{text}' is not NAME=VALUE; use `rocm=7.2.3`, for example")
    return name.strip(), value.strip()
