"""Renders the preflight of a model whose shape is not read, and defines its JSON document."""

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from typing_extensions import TypedDict

from penstock.fleet import Parallelism
from penstock.preflight.launch.launch_plan import pack_command
from penstock.preflight.packs.pack import LEARNABLE
from penstock.preflight.preflight_result import Readiness
from penstock.preflight.rules.rule import Severity
from penstock.preflight.start_obstacles import StartObstacle
from penstock.preflight.unread_preflight import Registration, UnreadPreflight
from penstock.report.drawing.json_document import at
from penstock.report.preflight.document import FindingDocument, FlagDocument, LaunchDocument
from penstock.report.preflight.headline import READINESS, STYLES, command_text

_NO_SHAPE: Final = "not checked: the shape of this model is not read"
_SHOWN: Final = (Severity.SILENT_WRONG, Severity.BLOCKER, Severity.WARNING, Severity.SLOW)


def render_unread(answer: UnreadPreflight, columns: int, *, strict: bool = False) -> RenderableType:
    """Draw the verdict, the releases that register the architecture, the findings, and one command."""
    question, plan = answer.question, answer.plan
    devices = question.asked.parallelism.devices
    where = question.accelerator.id + (f" x{devices} ({question.asked.parallelism})" if devices > 1 else "")
    words, style = READINESS[answer.readiness]
    unread = "" if answer.newer_than_read is None else f" (not read; checked as {answer.newer_than_read})"
    text = Text(question.model.name, style="bold")
    text.append(f" on {where}, {question.engine} {question.version}{unread}: ", style="not bold")
    text.append(_NO_SHAPE if answer.readiness is Readiness.UNDETERMINED else words, style=style)
    pieces: list[RenderableType] = [text]
    pieces += [Padding(Text(line, style=colour), (0, 0, 0, 2)) for line, colour in _lines(answer)]
    if strict:
        reasons = ["undetermined: memory, kernels and speed, because the shape is not read"]
        reasons += (
            [] if answer.newer_than_read is None else [f"unread: {question.engine} {question.version} was not read"]
        )
        pieces += [Padding(Text(f"--strict fails: {one}", style="bold yellow"), (0, 0, 0, 2)) for one in reasons]
    if not answer.launch.typed:
        pieces.append(Text(f"image: {plan.image or 'none is published'}", style="dim"))
        pieces.append(command_text(pack_command(plan.bare(), columns)))
    return Group(*pieces)


def _lines(answer: UnreadPreflight) -> Iterator[tuple[str, str]]:
    model, assessment = answer.question.model, answer.assessment
    if answer.registrations:
        yield f"registered: {model.architecture} {_registration_sentence(answer.registrations)}", "default"
    for obstacle in answer.obstacles:
        yield f"{Severity.BLOCKER}: {obstacle.kind}: {obstacle.text}", STYLES[Severity.BLOCKER]
    for severity in _SHOWN:
        for finding in assessment.of(severity):
            yield f"{severity}: {finding.rule.message}", STYLES[severity]
            yield f"fix: {finding.rule.fix}", "default"
    yield from ((f"ignored: {flag.message}", "yellow") for flag in answer.flags if not flag.stops)
    if answer.recipe is not None:
        yield f"vLLM's recipe: {answer.recipe.status} on this chip", "default"
    yield "memory, kernels and speed: undetermined without the shape", "default"
    yield f"missing: {model.reason}", "dim"
    undecided, checked = len(assessment.undetermined), assessment.rules_checked
    found = f"{len(assessment.findings)} findings" if len(assessment.findings) != 1 else "1 finding"
    setup = f"{answer.question.engine} {answer.question.version} on this chip"
    yield f"{checked} rules for {setup}: {found}; {undecided} cannot be decided without the shape", "dim"
    if answer.newer_than_read is not None and answer.question.engine in LEARNABLE:
        named = f"{answer.question.engine}=={answer.question.version}"
        yield f"to read this release: penstock preflight learn {named}", "bold yellow"


def _registration_sentence(entries: tuple[Registration, ...]) -> str:
    """Say which engines register an architecture since which release, and which do not."""
    has = [f"{one.engine} since {one.since}" if one.since != "?" else one.engine for one in entries if one.since]
    lacks = [f"{one.engine} (read up to {one.last_read})" for one in entries if not one.since]
    registered = f"by {', '.join(has)}" if has else "by no engine that was read"
    return f"{registered}; not by {', '.join(lacks)}" if lacks else registered


class UnreadDeployment(TypedDict):
    """The result for one accelerator and engine, without the parts that need a shape."""

    accelerator: Annotated[str, at("question.accelerator.id")]
    devices: Annotated[int, at("question.asked.parallelism.devices")]
    parallelism: Annotated[Parallelism, at("question.asked.parallelism")]
    engine: Annotated[str, at("question.engine")]
    version: Annotated[str, at("question.version")]
    verdict: Annotated[Readiness, at("readiness")]
    passes: bool
    newer_than_read: str | None
    obstacles: list[StartObstacle]
    registrations: list[Registration]
    findings: Annotated[list[FindingDocument], at("assessment.findings")]
    undecided_rules: Annotated[int, at(lambda answer: len(answer.assessment.undetermined))]
    rules_checked: Annotated[int, at("assessment.rules_checked")]
    flags: list[FlagDocument]
    launch: Annotated[LaunchDocument, at("plan")]


def _first(answer: Any) -> UnreadPreflight:  # noqa: ANN401 - an UnreadAnswer
    found: UnreadPreflight = answer.unread[0]
    return found


class UnreadDocument(TypedDict):
    """What is known of a launch without the shape of its model."""

    schema: Literal["penstock.preflight.unread/1"]
    model: Annotated[str, at(lambda answer: _first(answer).question.model.name)]
    architecture: Annotated[str, at(lambda answer: _first(answer).question.model.architecture)]
    missing: Annotated[str, at(lambda answer: _first(answer).question.model.reason)]
    passes: Annotated[bool, at(lambda answer: all(one.passes for one in answer.unread))]
    strict: bool
    good: bool
    deployments: Annotated[list[UnreadDeployment], at("unread")]
    method: Annotated[str, at(lambda _: "docs/guides/preflight.md")]
