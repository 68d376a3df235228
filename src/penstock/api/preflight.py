"""Checks whether a deployment will start and answer correctly, and proposes its flags: `penstock.preflight`."""

from dataclasses import replace
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.api.launch_questions import LaunchQuestions
from penstock.api.options.option_fields import takes
from penstock.api.options.preflight_options import PreflightOptions
from penstock.api.preflight_answer import PreflightAnswer
from penstock.api.progress import ProgressListener
from penstock.checkpoint import open_checkpoint
from penstock.checkpoint.fp8.scan import scan_bytes, scan_fp8
from penstock.checkpoint.related_names import open_related
from penstock.errors import UnknownArchitecture, UnknownName, UsageError
from penstock.performance.shipped.shipped_drafts import shipped_drafts
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.preflight import (
    Subject,
    check,
)
from penstock.preflight.executed_speed import predicted_speed
from penstock.preflight.facts.launched_model import catalog_id, compare_served
from penstock.preflight.facts.subject import scanned_facts, subject_of
from penstock.preflight.nearest_split import nearest
from penstock.preflight.packs.pack_files import load_extended, rule_directories

if TYPE_CHECKING:
    from penstock.api.options.file_types import AskedFleet


__all__ = ["LaunchQuestions", "PreflightAnswer", "preflight"]


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
    except (UnknownArchitecture, UnknownName) as reason:
        related = open_related(named) if isinstance(reason, UnknownName) and not options.scan else None
        on = options.on or choices.target
        if related is not None:
            subject = subject_of(related, named)
        elif on is None or options.matrix or options.scan:
            raise
        else:
            from penstock.api.unread_answer import answer_without_shape  # noqa: PLC0415 - few models need it

            return answer_without_shape(named, reason, choices, on, strict=options.strict)
    _refuse_other_model(named, subject, choices.model)
    if options.matrix:
        if options.on is not None or options.command is not None:
            raise UsageError("--matrix covers every accelerator and both engines; leave out --on and --command")
        questions = choices.everywhere(subject)
    elif (asked := options.on or choices.target) is None:
        raise UsageError("no accelerator is named; add `--on mi300x:8`, or --matrix for all accelerators")
    else:
        questions = list(choices.questions(subject, asked))
    answers = []
    for done, question in enumerate(questions):
        options.watch.progress("checking", done, len(questions))
        answers.append(check(question, knowledge))
    return PreflightAnswer(
        answers=tuple(answers),
        speeds=tuple(
            predicted_speed(answer, shipped_efficiencies(), knowledge.speed, shipped_drafts) for answer in answers
        ),
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
        called = served if known in {None, served} else f"{served} ({known})"
        raise UsageError(
            f"--command serves {called}, not {asked}; name the model that the command serves, or leave the model out"
        )
