"""The skill file's commands exist, and its evaluations have the answers that it states."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from penstock.cli.root import app

SKILL = Path(__file__).parents[2] / "skills" / "penstock"
EVALUATIONS = yaml.safe_load((SKILL / "evaluations.yaml").read_text(encoding="utf-8"))


def field(document: Any, path: str) -> object:  # noqa: ANN401 - a JSON document
    for key in path.split("."):
        document = document[int(key)] if isinstance(document, list) else document[key]
    return document


@pytest.mark.parametrize("evaluation", EVALUATIONS, ids=lambda evaluation: evaluation["question"])
def test_a_question_has_its_answer(evaluation: dict[str, Any]) -> None:
    words = shlex.split(evaluation["command"])
    assert words[0] == "penstock"
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *words[1:]], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == evaluation["exit"], done.stderr
    expected = evaluation.get("expected", {})
    document = json.loads(done.stdout) if expected else {}
    assert {path: field(document, path) for path in expected} == expected
    assert evaluation.get("says", "") in done.stdout + done.stderr


def test_the_skill_is_described_and_names_commands_that_exist() -> None:
    text = (SKILL / "SKILL.md").read_text(encoding="utf-8")
    head = yaml.safe_load(text.split("---")[1])
    assert head["name"] == SKILL.name
    assert 0 < len(head["description"]) <= 1024
    named = set(re.findall(r"`penstock ([a-z0-9]+)", text))
    assert len(named) > 6
    assert named <= set(app.list_commands(click.Context(app)))
