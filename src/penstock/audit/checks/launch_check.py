"""Checks claims that a checkpoint runs correctly.

The check runs the preflight rules for the accelerator and the engine release.
"""

from penstock.audit.claims.record_claims import RunsStatement
from penstock.audit.judgement import Cited, Judgement, Verdict
from penstock.audit.reference_library import Library
from penstock.catalog.accelerator import Accelerator
from penstock.fleet import Parallelism, Release
from penstock.fleet.engines import NEWEST, EngineName
from penstock.preflight import LaunchChoices, Preflight, PreflightQuestion, Severity, check

_FATAL = (Severity.BLOCKER, Severity.SILENT_WRONG)
_SERVES = {"runs": True, "slow": True, "blocked": False, "silent-wrong": False}
"""Whether the model runs, keyed by the verdict of the preflight.

The verdicts risk and undetermined are absent, because they can decide no claim.
"""


def audit_runs(statement: RunsStatement, library: Library) -> Judgement:
    """Judge a claim by a preflight with the stated engine release.

    If the claim states no release, the newest known release is used.
    """
    accelerator = library.accelerator_of(statement.accelerator)
    engine: EngineName = "sglang" if statement.engine == "sglang" else "vllm"
    release = Release(statement.version) if statement.version else NEWEST[engine]
    unread = NEWEST[engine] < release
    answer = check(
        PreflightQuestion(
            subject=library.subject_of(statement.model),
            accelerator=accelerator,
            engine=engine,
            version=release,
            asked=LaunchChoices(parallelism=_replica_split(accelerator, statement.devices)),
        ),
        library.knowledge(),
    )
    ready = answer.readiness.value
    where = f"{engine} {release.text} on {statement.devices} x {accelerator.name}"
    found = [finding for severity in _FATAL for finding in answer.assessment.of(severity)]
    sources = [Cited(title=finding.rule.id, url=str(next(iter(finding.rule.sources)).url)) for finding in found]
    verdict = Verdict.UNDETERMINED if unread else _verdict(statement, ready)
    newest = f" ({NEWEST[engine].text} is the newest known release)" if unread or not statement.version else ""
    opposite = f"it said that the model {'does not run' if statement.runs else 'runs'}"
    return Judgement(
        verdict=verdict,
        reason=f"the preflight of {where}{newest} gives the verdict '{ready}'{_why(answer)}",
        sources=(*sources, Cited(title="Penstock's preflight rules", url="docs/guides/preflight.md")),
        true_if=opposite if verdict is Verdict.CONTRADICTED else None,
    )


def _verdict(statement: RunsStatement, ready: str) -> Verdict:
    serves = _SERVES.get(ready)
    if serves is None:
        return Verdict.PLAUSIBLE if statement.runs and ready == "risk" else Verdict.UNDETERMINED
    return Verdict.CONFIRMED if serves == statement.runs else Verdict.CONTRADICTED


def _why(answer: Preflight) -> str:
    reasons = [finding.rule.message.strip() for severity in _FATAL for finding in answer.assessment.of(severity)]
    reasons += [obstacle.text for obstacle in answer.obstacles]
    return f": {reasons[0][:160]}" if reasons else ""


def _replica_split(accelerator: Accelerator, devices: int) -> Parallelism:
    """Return the parallel split over the claimed devices.

    Whole nodes get tensor parallelism within each node and one pipeline stage per node. Any other number of devices
    gets tensor parallelism alone.
    """
    within = accelerator.node.devices
    if devices > within and devices % within == 0:
        return Parallelism(tp=within, pp=devices // within)
    return Parallelism(tp=devices)
