"""JSON document of `preflight --json`: every fact, finding and source by name."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from penstock.fleet.release import Release
from penstock.preflight.check import Preflight
from penstock.preflight.executed_speed import LOAD, Speed
from penstock.preflight.launch.launch_plan import LaunchPlan
from penstock.preflight.launch.recipe import SOURCE
from penstock.preflight.rules.condition import Unknown, Value
from penstock.preflight.rules.findings import Finding
from penstock.report.drawing.plain_json import plain, plain_fields
from penstock.report.model_heading import model_document

SCHEMA: Final = "penstock.preflight/2"
"""Schema version. It changes if a field is renamed, removed or redefined; new fields do not change it."""


def preflight_document(
    answers: Sequence[Preflight],
    speeds: Sequence[Speed | None] = (),
    instead: Sequence[Preflight | None] = (),
) -> dict[str, object]:
    """Collect the answers for one model, with speeds if requested and the nearest split that runs if one does not."""
    model, count = answers[0].question.subject.model, len(answers)
    return {
        "schema": SCHEMA,
        "model": model_document(model),
        "passes": all(answer.passes for answer in answers),
        "deployments": [
            {**_answer(answer), "speed": _speed(speed), "instead": _instead(other)}
            for answer, speed, other in zip_longest(answers, speeds[:count], instead[:count])
        ],
        "method": "docs/preflight.md",
    }


def _answer(answer: Preflight) -> dict[str, object]:
    question = answer.question
    return {
        "accelerator": question.accelerator.id,
        "devices": question.asked.parallelism.devices,
        "parallelism": plain(question.asked.parallelism),
        "engine": question.engine,
        "version": str(question.version),
        "verdict": answer.readiness.value,
        "newer_than_read": None if answer.newer_than_read is None else str(answer.newer_than_read),
        "passes": answer.passes,
        "obstacles": plain(answer.obstacles),
        "narrow": plain(answer.narrow),
        "doubts": plain(answer.doubts),
        "notes": list(answer.notes),
        "findings": [_finding(finding) for finding in answer.assessment.findings],
        "undetermined": [
            {"rule": entry.rule.id, "severity": entry.rule.severity.value, "missing": dict(entry.missing)}
            for entry in answer.assessment.undetermined
        ],
        "rules_checked": answer.assessment.rules_checked,
        "predictions": {
            "fp8": plain(answer.dialect),
            "kernels": plain(answer.kernels),
            "attention": {
                "backend": answer.backend.name,
                "determined": answer.backend.determined,
                "block": answer.backend.block,
                "graph_support": None if answer.backend.graphs is None else answer.backend.graphs.name.lower(),
                "rejected": dict(answer.backend.rejected),
            },
            "graphs": plain(answer.graphs),
            "aiter_mla": plain(answer.aiter),
            "memory": {
                "fits": answer.memory.fits,
                "obstacle": plain(answer.memory.obstacle),
                "capacity": plain(answer.memory.capacity),
                "context_tokens": answer.memory.context_tokens,
                "cut": plain(answer.cut),
            },
            "architecture": {
                "name": answer.architecture.architecture,
                "since": None if answer.architecture.since is None else str(answer.architecture.since),
                "too_new": answer.architecture.too_new,
            },
        },
        "recipe": None if answer.recipe is None else {**plain_fields(answer.recipe), "source": SOURCE},
        "measured": plain(answer.served),
        "flags": [{"name": flag.name, "problem": flag.problem, "message": flag.message} for flag in answer.flags],
        "typed": list(answer.launch.typed) or None,
        "launch": _launch(answer.plan),
        "facts": {name: _value(value) for name, value in sorted(answer.facts.items())},
    }


def _instead(other: Preflight | None) -> object:
    if other is None:
        return None
    return {
        "parallelism": plain(other.question.asked.parallelism),
        "devices": other.question.asked.parallelism.devices,
        "launch": _launch(other.plan),
    }


def _speed(speed: Speed | None) -> object:
    if speed is None:
        return None
    return {
        "output_tokens_per_s": plain(speed.prediction.output_tokens_per_s),
        "tier": speed.prediction.tier,
        "input_tokens": LOAD[0],
        "output_tokens": LOAD[1],
        "concurrency": LOAD[2],
        "lost_to_missing_kernels_fraction": speed.lost_fraction,
    }


def _finding(finding: Finding) -> dict[str, object]:
    rule = finding.rule
    return {
        "rule": rule.id,
        "category": rule.category,
        "severity": rule.severity.value,
        "confidence": rule.grounds.value,
        "message": rule.message,
        "fix": rule.fix,
        "because": {name: _value(value) for name, value in finding.because.items()},
        "sources": [source.url for source in rule.sources],
        "unchecked_since": None if finding.unchecked_since is None else str(finding.unchecked_since),
    }


def _launch(plan: LaunchPlan) -> dict[str, object]:
    return {
        "bare": plan.bare(),
        "docker": plan.docker(),
        "image": plan.image,
        "nodes": plan.nodes,
        "flags": plain(plan.flags),
        "variables": plain(plan.variables),
    }


def _value(value: Value | Unknown) -> object:
    if isinstance(value, Unknown):
        return {"unknown": value.why}
    if isinstance(value, frozenset):
        return sorted(value)
    return str(value) if isinstance(value, Release) else value
