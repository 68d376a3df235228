"""Renders preflights briefly: the verdict, the findings with their fixes, and one command."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from penstock.preflight.executed_speed import Speed
from penstock.preflight.launch.launch_plan import LaunchPlan, pack_command
from penstock.preflight.preflight_result import CheckedPool, Preflight, Readiness
from penstock.preflight.rules.rule import Severity
from penstock.preflight.strict_failures import strict_failures
from penstock.report.preflight.headline import (
    STYLES,
    command_text,
    describe_nodes,
    describe_replicas,
    harmless_flags,
    headline,
    memory_sentence,
    name_instead,
    obstacle_sentences,
    speed_line,
    undecided_sentences,
    unlisted_reasons,
)

_SHOWN: Final = (Severity.SILENT_WRONG, Severity.BLOCKER, Severity.WARNING, Severity.SLOW)
_INDENT: Final = 2
_START_ORDER: Final = (
    "Start the engines of a device one after the other. Where they do not fit together, send each to sleep "
    "(POST /sleep) before the next starts."
)
EXPLAIN: Final = "--explain shows kernels, the reason for each flag, sources, and both commands."


def render_fleet(
    pools: Sequence[CheckedPool], answers: Sequence[Preflight], columns: int, *, strict: bool
) -> RenderableType:
    """Draw the verdict of every pool with its findings and its command, and a last line that counts the verdicts."""
    pieces: list[RenderableType] = []
    for pool, answer in zip(pools, answers, strict=True):
        where = f" on {pool.device}" if pool.device else ""
        pieces += [Text(f"{pool.name}: {pool.replicas} x{where}", style="bold")]
        pieces += [render_short(answer, columns, strict=strict), Text()]
    passed = sum(answer.passes for answer in answers)
    doubtful = sum(bool(strict_failures(answer)) for answer in answers if answer.passes)
    text = f"{passed} of {len(answers)} pools pass"
    pieces.append(Text(text + (f"; {doubtful} with a risk or undetermined" if doubtful else ""), style="bold"))
    if any(pool.device for pool in pools):
        pieces.append(Text(_START_ORDER))
    return Group(*pieces)


def render_short(
    answer: Preflight,
    columns: int,
    *,
    speed: Speed | None = None,
    instead: Preflight | None = None,
    strict: bool = False,
) -> RenderableType:
    """Draw the verdict, the findings with their fixes, what is not known, and one command."""
    pieces: list[RenderableType] = [headline(answer)]
    pieces += [_indent_lines(line, style) for line, style in _findings(answer)]
    if strict:
        pieces += [_indent_lines(f"--strict fails: {reason}", "bold yellow") for reason in strict_failures(answer)]
    else:
        pieces += [_indent_lines(line, "dim") for line in _open_points(answer)]
    if answer.readiness is not Readiness.BLOCKED:
        pieces.append(_indent_lines(memory_sentence(answer), "default"))
    if (line := speed_line(answer, speed)) is not None:
        pieces.append(_indent_lines(line, "default"))
    pieces += _command(answer, instead, columns)
    return Group(*pieces)


def _indent_lines(line: str, style: str) -> RenderableType:
    return Padding(Text(line, style=style), (0, 0, 0, _INDENT))


def _findings(answer: Preflight) -> Iterator[tuple[str, str]]:
    """Yield the findings from the worst to the mildest, each followed by its fix, and the flags that are ignored."""
    for severity in _SHOWN:
        yield from ((f"{severity}: {line}", STYLES[severity]) for line in obstacle_sentences(answer, severity))
        for found in answer.assessment.of(severity):
            yield f"{severity}: {found.rule.message}", STYLES[severity]
            yield f"fix: {found.rule.fix}", "default"
        unlisted = (line for kind, line in unlisted_reasons(answer) if kind is severity)
        yield from ((f"{severity}: {line}", STYLES[severity]) for line in unlisted)
    yield from ((f"ignored: {flag.message}", "yellow") for flag in harmless_flags(answer))


def _open_points(answer: Preflight) -> Iterator[str]:
    """Yield what was not checked, the rules that are undecided, and what is not known of the engine."""
    yield from (f"not checked: {note}" for note in answer.notes)
    yield from (f"undecided: {sentence}" for sentence in undecided_sentences(answer))
    yield from (f"not known: {unknown}" for unknown in answer.unknown)


def _command(answer: Preflight, instead: Preflight | None, columns: int) -> Iterator[RenderableType]:
    """Yield the command to run. The user's own command is not repeated if it passes."""
    if instead is not None:
        yield Text(f"\n{name_instead(answer, instead)}", style="bold")
        yield _one_command(instead.plan, columns, installed=instead.facts["launch.install"] in {"wheel", "source"})
    elif answer.readiness is Readiness.BLOCKED:
        yield Text("\nNo launch that works is known; apply the fixes above first.", style="dim")
    elif not answer.launch.typed:
        yield Text() if answer.passes else Text("\nThis launch is not expected to serve.", style="dim")
        yield _one_command(answer.plan, columns, installed=answer.facts["launch.install"] in {"wheel", "source"})


def _one_command(plan: LaunchPlan, columns: int, *, installed: bool) -> RenderableType:
    """Draw the container command. For an installed engine, or one without an image, draw its own command."""
    docker = None if installed else plan.docker()
    command = command_text(pack_command(docker or plan.bare(), columns - _INDENT))
    if plan.nodes > 1:
        return Group(_indent_lines(describe_nodes(plan), "dim"), command)
    if plan.place is not None and plan.place.replicas > 1:
        return Group(_indent_lines(describe_replicas(plan.place), "dim"), command)
    return command
