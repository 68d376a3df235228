"""Launch lines people publish: those a recipe verified pass, and those that no longer start stop for their reason."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.api.preflight import _Options
from penstock.checkpoint import open_checkpoint
from penstock.preflight import Preflight, check, load_knowledge
from penstock.preflight.facts.subject import subject_of

if TYPE_CHECKING:
    from collections.abc import Mapping

KNOWLEDGE = load_knowledge()
with (Path(__file__).parents[2] / "data" / "world" / "commands.csv").open(newline="", encoding="utf-8") as file:
    PUBLISHED = list(csv.DictReader(file))


def ask(line: "Mapping[str, str]") -> Preflight:
    """Ask as `penstock preflight --on CHIP --command LINE` does."""
    options = _Options("vllm", None, None, 1, 1, "auto", None, line["command"], [], ep=False)
    assert options.model is not None
    subject = subject_of(open_checkpoint(options.model), options.model)
    (question,) = options.questions(subject, line["on"])
    return check(question, KNOWLEDGE)


@pytest.mark.parametrize("line", PUBLISHED, ids=lambda line: f"{line['on']}:{line['source'].rpartition('/')[2]}")
def test_a_published_line_is_judged_as_the_world_does(line: "Mapping[str, str]") -> None:
    answer = ask(line)
    if line["outcome"] == "runs":
        assert answer.passes, (line["command"], answer.obstacles)
    else:
        assert line["outcome"] in {obstacle.kind for obstacle in answer.obstacles}


def test_there_are_enough_of_them_for_both_engines_and_vendors() -> None:
    runs = [line for line in PUBLISHED if line["outcome"] == "runs"]
    assert len(runs) >= 60
    assert sum("sglang" in line["source"] for line in runs) >= 20
    assert sum(line["on"].startswith("mi") for line in runs) >= 20
