"""Renders preflights briefly: the verdict, the findings with their fixes, and one command."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.preflight.preflight_result import CheckedPool, Preflight, Readiness
from penstock.preflight.rules.rule import Severity
from penstock.report.preflight.terminal import STYLES, command_text, headline

_SHOWN = (Severity.SILENT_WRONG, Severity.BLOCKER, Severity.WARNING, Severity.SLOW)


def render_fleet(pools: Sequence[CheckedPool], answers: Sequence[Preflight]) -> RenderableType:
    """Draw the verdict of every pool with its findings and its command, and a last line that counts the verdicts."""
    pieces: list[RenderableType] = []
    for pool, answer in zip(pools, answers, strict=True):
        pieces += [Text(f"{pool.name}: {pool.replicas} x", style="bold"), render_short(answer), Text()]
    passed = sum(answer.passes for answer in answers)
    doubtful = sum(not answer.beyond_doubt for answer in answers if answer.passes)
    text = f"{passed} of {len(answers)} pools pass"
    pieces.append(Text(text + (f"; {doubtful} with a risk or undetermined" if doubtful else ""), style="bold"))
    return Group(*pieces)


def render_short(answer: Preflight) -> RenderableType:
    """Draw the verdict, the findings with their fixes, what is not known, and one command."""
    pieces: list[RenderableType] = [headline(answer)]
    stops = {Severity.BLOCKER: answer.obstacles, Severity.WARNING: answer.possible_obstacles}
    for severity in _SHOWN:
        lines = [f"{stop.kind}: {stop.text}" for stop in stops.get(severity, ())]
        lines += [f"{found.rule.message} Fix: {found.rule.fix}" for found in answer.assessment.of(severity)]
        pieces += [Text(f"  {severity}: {line}", style=STYLES[severity]) for line in lines]
    pieces += [Text(f"  not known: {unknown}", style="dim") for unknown in answer.unknown]
    if answer.readiness is not Readiness.BLOCKED:
        pieces.append(command_text(answer.plan.bare()))
    return Group(*pieces)
