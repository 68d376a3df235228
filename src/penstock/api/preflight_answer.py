"""Holds the results of `penstock.preflight`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.api.answer import EXIT_NEGATIVE, EXIT_NOT_CHECKED, ApiAnswer, Row, device_label
from penstock.preflight import Preflight
from penstock.preflight.executed_speed import Speed
from penstock.preflight.preflight_result import CheckedPool, Readiness
from penstock.preflight.strict_failures import strict_failures
from penstock.preflight.unread_preflight import UnreadPreflight
from penstock.report.preflight.document import PreflightDocument
from penstock.report.preflight.short import EXPLAIN, render_fleet, render_short
from penstock.report.preflight.terminal import render_matrix, render_preflight


@dataclass(frozen=True, kw_only=True, repr=False)
class PreflightAnswer(ApiAnswer):
    """Preflight results, one per accelerator. The answer of --matrix has one result per accelerator and engine."""

    document_type: ClassVar[type] = PreflightDocument
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
        """Return whether enough was read to judge every launch, and nothing blocks it or makes answers silently wrong.

        With `strict`, every launch must also be free of risks and of undetermined parts, and its release must have
        been read. The verdict of a matrix is always positive.
        """
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """Return 1 if a launch fails, 4 if none is known to fail and one is undetermined, and 0 otherwise."""
        if self.matrix:
            return 0
        fails = (not answer.passes or (self.strict and strict_failures(answer)) for answer in self.answers)
        return EXIT_NEGATIVE if any(fails) else unchecked_code(self.answers)

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
        return self.answers[0].question.subject.model.name, [summary_of(answer) for answer in self.answers]


def unchecked_code(answers: Iterable[Preflight | UnreadPreflight]) -> int:
    """Return the exit code of launches against which nothing is known: 4 if one of them could not be judged."""
    return EXIT_NOT_CHECKED if any(answer.readiness is Readiness.UNDETERMINED for answer in answers) else 0


def summary_of(answer: Preflight | UnreadPreflight) -> str:
    """Name the devices, the engine and the verdict of one answer."""
    question = answer.question
    where = device_label(question.accelerator.id, question.asked.parallelism.devices)
    return f"{where} {question.engine} {answer.readiness.value}"


def row_of(answer: Preflight | UnreadPreflight, *, stopped_by: Iterable[str], output_tokens_per_s: float | None) -> Row:
    """Return the row of one answer."""
    question = answer.question
    return {
        "accelerator": question.accelerator.id,
        "devices": question.asked.parallelism.devices,
        "split": str(question.asked.parallelism),
        "engine": question.engine,
        "version": str(question.version),
        "verdict": answer.readiness.value,
        "passes": answer.passes,
        "findings": len(answer.assessment.findings),
        "undetermined": len(answer.assessment.undetermined),
        "stopped_by": ", ".join(stopped_by),
        "output_tokens_per_s": output_tokens_per_s,
        "command": answer.plan.bare(),
    }


def _row(answer: Preflight, speed: Speed | None) -> Row:
    severe = {"silent-wrong", "blocker"}
    rules = [finding.rule for finding in answer.assessment.findings]
    return row_of(
        answer,
        stopped_by=(rule.id for rule in rules if rule.severity.value in severe),
        output_tokens_per_s=None if speed is None else speed.output_tokens_per_s.value,
    )
