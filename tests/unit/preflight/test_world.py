"""The labelled world: what others ran must not be refused, and what others saw break must be caught."""

from result_tables import RESULTS, csv_text

from labelled_world import (
    GUIDE,
    confusion_table,
    known_breaks,
    measured_runs,
    missed_table,
    outcomes,
    score_sentence,
    verified_recipes,
)
from penstock.catalog import load_accelerators, load_models
from penstock.preflight.rules.rule import Reference

MODELS = {known.id for known in load_models()}
ACCELERATORS = {accelerator.id for accelerator in load_accelerators()}


def test_the_world_is_large_enough_to_contradict() -> None:
    runs = [case for case in measured_runs() if case.release]
    assert len({case.id for case in measured_runs()}) > 400
    assert len(runs) + len(list(verified_recipes())) >= 500
    assert {case.engine for case in runs} == {"vllm", "sglang", "trtllm", "atom"}
    assert len({case.id for case in known_breaks()}) >= 100
    asked = [outcome.case for outcome in outcomes()]
    assert sum(not case.expected for case in asked) >= 1_450
    assert sum(bool(case.expected) for case in asked) >= 200


def test_every_case_names_a_model_a_part_and_who_says_so() -> None:
    for case in (*measured_runs(), *verified_recipes(), *known_breaks()):
        assert case.model in MODELS, case.id
        assert case.accelerator in ACCELERATORS, case.id
        # A configuration file is named with the key inside it, a database with the entry.
        cited = case.source.partition("#")[0] if case.source.startswith("inferencex@") else case.source
        assert Reference(cited.partition(" (")[0]).url, case.id


def test_nothing_that_others_ran_is_refused() -> None:
    refused = {(outcome.case.id, outcome.case.release): outcome.named
               for outcome in outcomes() if not outcome.case.expected and not outcome.right}  # fmt: skip
    assert refused == {}


def test_what_others_saw_break_is_caught_for_its_reason() -> None:
    breaks = [outcome for outcome in outcomes() if outcome.case.expected]
    caught = [outcome for outcome in breaks if outcome.right]
    assert len(caught) >= 0.92 * len(breaks)
    fewest = [outcome for outcome in breaks if outcome.place == ("sglang", "amd")]
    assert sum(outcome.right for outcome in fewest) >= 0.8 * len(fewest) >= 16
    # Whatever is missed is known to be, with why.
    assert {outcome.case.id for outcome in breaks if not outcome.right} == {
        outcome.case.id for outcome in breaks if outcome.case.missed
    }


def test_the_note_prints_these_figures() -> None:
    found = outcomes()
    tables = {"preflight-world": confusion_table(found), "preflight-missed": missed_table(found)}
    for name, table in tables.items():
        assert (RESULTS / f"{name}.csv").read_text(encoding="utf-8") == csv_text(table)
    assert score_sentence(found) in GUIDE.read_text(encoding="utf-8")
