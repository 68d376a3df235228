"""The error we publish: every row predicted by a model that never saw its shape, its model or its accelerator."""

import pytest

from penstock.benchmark.shipped_rows import measured_pairs, model_of
from penstock.catalog import load_accelerator
from penstock.performance.evidence.accuracy import FOLDS, HeldOut, Pair, Refit, contests, coverage, refits, summarise
from penstock.performance.evidence.waits import waited

CORE = ("mi300x", "mi325x", "mi355x", "h100_sxm", "h200_sxm", "b200_sxm")


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return list(measured_pairs())


@pytest.fixture(scope="module")
def refits_by_shape(pairs: list[Pair]) -> list[Refit]:
    return list(refits(pairs, waited(pairs, model_of, load_accelerator), FOLDS["shape"]))


@pytest.fixture(scope="module")
def refits_by_model(pairs: list[Pair]) -> list[Refit]:
    return list(refits(pairs, waited(pairs, model_of, load_accelerator), FOLDS["model"]))


@pytest.fixture(scope="module")
def by_shape(refits_by_shape: list[Refit]) -> list[HeldOut]:
    return [entry for refit in refits_by_shape for entry in refit.steps()]


@pytest.fixture(scope="module")
def by_model(refits_by_model: list[Refit]) -> list[HeldOut]:
    return [entry for refit in refits_by_model for entry in refit.steps()]


def online(held: list[HeldOut], accelerator: str | None = None) -> list[HeldOut]:
    chosen = [entry for entry in held if entry.measurement.scenario == "online"]
    return [entry for entry in chosen if accelerator in {None, entry.measurement.accelerator}]


def test_time_per_token_held_out_by_shape(by_shape: list[HeldOut]) -> None:
    overall = summarise(online(by_shape))
    assert overall.rows >= 3000
    assert overall.median <= 0.10
    assert overall.p90 <= 0.30


@pytest.mark.parametrize("accelerator", CORE)
def test_every_core_accelerator_is_within_its_bound(by_shape: list[HeldOut], accelerator: str) -> None:
    held = online(by_shape, accelerator)
    assert len(held) >= 15
    assert summarise(held).median <= 0.15


def test_intervals_cover_what_they_say(by_shape: list[HeldOut]) -> None:
    held = online(by_shape)
    assert 0.75 <= sum(coverage(held, FOLDS["shape"])) / len(held) <= 0.85


def test_time_per_token_held_out_by_model(by_model: list[HeldOut]) -> None:
    assert summarise(online(by_model)).median <= 0.20


def test_saturated_throughput_held_out_by_model(by_model: list[HeldOut]) -> None:
    saturated = [entry for entry in by_model if entry.measurement.scenario == "saturated"]
    assert len(saturated) >= 2500
    assert summarise(saturated).median <= 0.20


def test_the_right_winner_is_named(by_shape: list[HeldOut]) -> None:
    found = contests(by_shape, lambda name: load_accelerator(name).vendor)
    crossed = [contest for contest in found if contest.cross_vendor]
    assert len(crossed) >= 1000
    assert sum(contest.named_right for contest in crossed) / len(crossed) >= 0.95


def test_time_to_first_token_held_out_by_shape(refits_by_shape: list[Refit]) -> None:
    held = [entry for refit in refits_by_shape for entry in refit.first_tokens()]
    overall = summarise(held)
    assert overall.rows >= 3000
    assert overall.median <= 0.21
    assert 0.75 <= sum(coverage(held, FOLDS["shape"])) / len(held) <= 0.85


def test_time_to_first_token_held_out_by_model(refits_by_model: list[Refit]) -> None:
    assert summarise([entry for refit in refits_by_model for entry in refit.first_tokens()]).median <= 0.33
