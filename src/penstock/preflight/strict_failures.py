"""Lists what `--strict` does not accept: risks, parts that are undetermined, and a release that was not read."""

from collections.abc import Iterator

from penstock.preflight.predictions.weight_kernels import KernelClass
from penstock.preflight.preflight_result import Preflight, Readiness
from penstock.preflight.rules.condition import Unknown
from penstock.preflight.rules.rule import Severity


def strict_failures(answer: Preflight) -> tuple[str, ...]:
    """Return one phrase per reason for which `--strict` fails a launch that passes otherwise."""
    return (*_risks(answer), *_undetermined_parts(answer), *_unread(answer))


def _risks(answer: Preflight) -> Iterator[str]:
    if found := answer.assessment.of(Severity.WARNING):
        yield f"risk: {', '.join(finding.rule.id for finding in found)}"
    if doubts := answer.possible_obstacles:
        yield f"risk: {', '.join(sorted({doubt.kind for doubt in doubts}))}"
    if answer.unsupported_by_recipe:
        yield "risk: vLLM's recipe calls this chip unsupported"


def _undetermined_parts(answer: Preflight) -> Iterator[str]:
    unread = sorted({group.group for group in answer.kernels if group.kernel is KernelClass.UNDETERMINED})
    if unread:
        yield f"undetermined: the kernels of {' and '.join(unread)}"
    if not answer.backend.determined:
        yield "undetermined: the attention backend"
    if not answer.architecture.refused and answer.architecture.since is None:
        yield f"undetermined: the first release that serves {answer.architecture.registered}"
    if isinstance(answer.facts["chip"], Unknown) or answer.facts["platform"] == "other":
        yield f"undetermined: no rule covers {answer.question.accelerator.id}"
    for entry in answer.assessment.open_questions:
        yield f"undetermined: {entry.rule.id} ({'; '.join(dict.fromkeys(entry.missing.values()))})"
    if any(group.kernel is KernelClass.EMULATED for group in answer.kernels) and not answer.measured_as_asked:
        yield "undetermined: the speed of emulated weights"
    yield from (f"undetermined: {unknown}" for unknown in answer.unknown)
    yield from (f"undetermined: {note}" for note in answer.notes)
    if answer.readiness is Readiness.UNDETERMINED and answer.memory.budget is None:
        yield "undetermined: whether it fits in memory"


def _unread(answer: Preflight) -> Iterator[str]:
    if answer.newer_than_read is not None or answer.older_than_read is not None:
        yield f"unread: {answer.question.engine} {answer.question.version} was not read"
