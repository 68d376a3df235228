"""Launch lines people publish: what preflight says of each, and what is known of those it refuses."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.api.options.preflight_options import PreflightOptions
from penstock.api.preflight import LaunchQuestions
from penstock.checkpoint import open_checkpoint
from penstock.preflight import Preflight, check, load_knowledge
from penstock.preflight.facts.subject import subject_of
from penstock.preflight.rules.rule import Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

KNOWLEDGE = load_knowledge()
STOPPING = (Severity.BLOCKER, Severity.SILENT_WRONG)
with (Path(__file__).parents[2] / "data" / "world" / "commands.csv").open(newline="", encoding="utf-8") as file:
    PUBLISHED = list(csv.DictReader(file))


def ask(line: "Mapping[str, str]") -> Preflight:
    """Ask as `penstock preflight --on CHIP --command LINE` does."""
    options = LaunchQuestions(PreflightOptions(command=line["command"]), KNOWLEDGE)
    assert options.model is not None
    subject = subject_of(open_checkpoint(options.model), options.model)
    (question,) = options.questions(subject, line["on"])
    return check(question, KNOWLEDGE)


@pytest.mark.parametrize("line", PUBLISHED, ids=lambda line: f"{line['on']}:{line['source'].rpartition('/')[2]}")
def test_a_published_line_is_refused_only_where_the_file_says_so_and_why(line: "Mapping[str, str]") -> None:
    answer = ask(line)
    rules = (finding for severity in STOPPING for finding in answer.assessment.of(severity))
    reasons = {obstacle.kind for obstacle in answer.obstacles} | {finding.rule.id for finding in rules}
    assert reasons == set(line["refused"].split())
    assert answer.passes != bool(line["refused"])
    assert bool(line["refused"]) == bool(line["why"])


def test_lines_are_not_chosen_by_their_verdict() -> None:
    """Every line of a recipe on every one of four chips it verifies is here, refused or not."""
    recipes = [line for line in PUBLISHED if "recipes" in line["source"]]
    assert (len(recipes), sum(bool(line["refused"]) for line in recipes)) == (167, 25)
