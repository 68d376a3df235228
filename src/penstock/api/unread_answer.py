"""Answers `penstock.preflight` for a model whose shape is not read."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.api.answer import EXIT_NEGATIVE, Row
from penstock.api.launch_questions import LaunchQuestions
from penstock.api.options.argument_types import Targets
from penstock.api.preflight_answer import PreflightAnswer, row_of, summary_of, unchecked_code
from penstock.errors import UnknownArchitecture, UnknownName
from penstock.preflight.unread_preflight import (
    UnreadPreflight,
    UnreadQuestion,
    check_unread,
    unknown_repository,
    unread_model,
)
from penstock.report.preflight.unread import UnreadDocument, render_unread

_REPOSITORY: Final = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}")
"""Form of a repository on the hub: an owner and a name."""


@dataclass(frozen=True, kw_only=True, repr=False)
class UnreadAnswer(PreflightAnswer):
    """Preflight results of a model whose shape is not read, one per accelerator. `answers` is empty."""

    document_type = UnreadDocument
    unread: tuple[UnreadPreflight, ...]

    @property
    def exit_code(self) -> int:
        """Return 1 if something is known against a launch or `strict` is asked, and 4 otherwise: never 0."""
        if self.strict or not all(answer.passes for answer in self.unread):
            return EXIT_NEGATIVE
        return unchecked_code(self.unread)

    def rows(self) -> list[Row]:
        """Return one row per accelerator. Figures that need the shape are None."""
        return [
            row_of(answer, stopped_by=(stop.kind for stop in answer.obstacles), output_tokens_per_s=None)
            for answer in self.unread
        ]

    def render(self, columns: int) -> RenderableType:
        """Return what `preflight` prints."""
        pieces: list[RenderableType] = []
        for answer in self.unread:
            pieces += [Text()] if pieces else []
            pieces.append(render_unread(answer, columns, strict=self.strict))
        return Group(*pieces)

    def _summary(self) -> tuple[str, Sequence[str]]:
        return self.unread[0].question.model.name, [summary_of(answer) for answer in self.unread]


def answer_without_shape(
    named: str, reason: UnknownArchitecture | UnknownName, choices: LaunchQuestions, on: Targets, *, strict: bool
) -> UnreadAnswer:
    """Check what needs no shape for a model whose shape could not be read for a reason.

    A name that the catalog does not have is answered if it has the form of a repository.
    """
    if isinstance(reason, UnknownArchitecture):
        model = unread_model(named, reason)
    elif _REPOSITORY.fullmatch(named):
        model = unknown_repository(named)
    else:
        raise reason
    questions = [
        UnreadQuestion(
            model=model,
            accelerator=accelerator,
            engine=choices.serving_engine,
            version=choices.release,
            asked=choices.launch_choices(split),
            launch=choices.launch,
            host=choices.host,
            present_devices=present,
        )
        for accelerator, split, present in choices.splits(on)
    ]
    found = tuple(check_unread(question, choices.knowledge) for question in questions)
    return UnreadAnswer(answers=(), speeds=(), instead=(), pools=(), strict=strict, unread=found)
