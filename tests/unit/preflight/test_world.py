"""The labelled world: what others ran must not be refused, and what others saw break must be caught."""

from labelled_world import known_breaks, measured_runs, verified_recipes
from penstock.catalog import load_accelerators, load_models
from penstock.preflight.rules.rule import Reference

MODELS = {known.id for known in load_models()}
PARTS = {part.id for part in load_accelerators()}


def test_the_world_is_large_enough_to_contradict() -> None:
    runs = [case for case in measured_runs() if case.release]
    assert len({case.id for case in measured_runs()}) > 400
    assert len(runs) + len(list(verified_recipes())) >= 500
    assert {case.engine for case in runs} == {"vllm", "sglang", "trtllm", "atom"}
    assert len({case.id for case in known_breaks()}) >= 80


def test_every_case_names_a_model_a_part_and_who_says_so() -> None:
    for case in (*measured_runs(), *verified_recipes(), *known_breaks()):
        assert case.model in MODELS, case.id
        assert case.accelerator in PARTS, case.id
        # A configuration file is named with the key inside it, a database with the entry.
        cited = case.source.partition("#")[0] if case.source.startswith("inferencex@") else case.source
        assert Reference(cited.partition(" (")[0]).url, case.id
