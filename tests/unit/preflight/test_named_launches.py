"""Launches that a review named: preflight says what the engine does, and prints only what passes again."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from labelled_world import caught_by
from penstock.api.preflight import preflight
from penstock.api.preflight_answer import PreflightAnswer
from penstock.preflight import Preflight

TABLE = Path(__file__).parents[2] / "data" / "world" / "named_launches.toml"
LAUNCHES: tuple[Mapping[str, Any], ...] = tuple(tomllib.loads(TABLE.read_text(encoding="utf-8"))["launch"])


def asked(launch: Mapping[str, Any], command: str | None = None) -> PreflightAnswer:
    return preflight(
        None if command else launch.get("model"),
        launch["on"],
        engine=launch.get("engine", "vllm"),
        engine_version=launch.get("release"),
        command=command or launch.get("command"),
        host=launch.get("host", {}),
        strict=launch.get("strict", False),
    )


def reasons(answer: Preflight) -> frozenset[str]:
    return caught_by(answer) | {finding.rule.id for finding in answer.assessment.findings}


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch["id"])
def test_named_launch_is_judged_as_engine(launch: Mapping[str, Any]) -> None:
    answer = asked(launch)
    assert answer.exit_code == launch["exit"], launch["says"]
    named = {reason for one in answer.answers for reason in reasons(one)}
    assert launch.get("named", "") in {"", *named}
    assert launch.get("only") is None or named == {launch["only"]}
    verdicts = {one.readiness.value for one in answer.answers}
    assert launch.get("verdict") in {None, *verdicts}
    assert all(launch.get("note") in {None, *one.notes} for one in answer.answers)
    assert all(launch.get("prints", "") in one.plan.bare() for one in answer.answers)


PRINTED = [launch for launch in LAUNCHES if launch["exit"] == 1 and "/" not in launch["on"]]


@pytest.mark.parametrize("launch", PRINTED, ids=lambda launch: launch["id"])
def test_launch_printed_instead_passes_again(launch: Mapping[str, Any]) -> None:
    first = asked(launch)
    instead = next(iter(first.instead), None)
    if "instead" not in launch:
        assert instead is None or asked(launch, instead.plan.bare()).answers[0].passes
        return
    assert instead is not None
    assert launch["instead"] in instead.plan.bare()
    for command in (instead.plan.bare(), instead.plan.docker()):
        assert command is None or asked(launch, command).answers[0].passes, command
