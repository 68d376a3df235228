"""Published closed loops, run again request by request with everything fitted to other lengths only."""

from dataclasses import replace
from itertools import chain

import pytest

from penstock.benchmark.rerun import Rerun, Reruns
from penstock.benchmark.shipped_rows import measured_pairs, model_of
from penstock.catalog import load_accelerator
from penstock.performance.evidence.accuracy import FOLDS, HeldOut, Refit, refits, summarise
from penstock.performance.evidence.waits import waited

EVERY = 8
"""One in so many rows, by id: a sample that is the same everywhere."""

Again = tuple[Refit, dict[str, Rerun]]


@pytest.fixture(scope="module")
def again() -> list[Again]:
    pairs = measured_pairs()
    waits = waited(pairs, model_of, load_accelerator)
    published = sorted(item.measurement.id for item in waits if item.measurement.source.startswith("inferencex"))
    chosen = set(published[::EVERY])
    shapes = {FOLDS["shape"](item.measurement, item.row) for item in waits if item.measurement.id in chosen}
    reruns = Reruns(model_of, load_accelerator)
    found = []
    for refit in refits(pairs, waits, FOLDS["shape"], only=shapes):
        sample = replace(refit, waits=[item for item in refit.waits if item.measurement.id in chosen])
        runs = {i.measurement.id: reruns(i.measurement, refit.fitted.step.slowdowns(i.row)) for i in sample.waits}
        found.append((sample, runs))
    return found


def steps(refit: Refit, runs: dict[str, Rerun]) -> list[HeldOut]:
    return [entry for entry in refit.steps() if entry.measurement.id in runs]


def test_the_first_token_comes_when_it_was_measured(again: list[Again]) -> None:
    held = [refit.first_tokens(lambda item, runs=runs: runs[item.measurement.id].ttft_s) for refit, runs in again]  # type: ignore[misc]
    simulated = summarise(list(chain.from_iterable(held)))
    assert simulated.rows >= 350
    assert simulated.median <= 0.22
    assert abs(simulated.bias) <= 0.10


def test_time_per_token_is_that_of_the_closed_form(again: list[Again]) -> None:
    closed = list(chain.from_iterable(steps(refit, runs) for refit, runs in again))
    runs = {ident: run for _, each in again for ident, run in each.items()}
    simulated = [replace(entry, predicted_s=runs[entry.measurement.id].tpot_s) for entry in closed]
    assert summarise(simulated).median <= summarise(closed).median + 0.005
    for entry in closed:
        assert runs[entry.measurement.id].tpot_s == pytest.approx(entry.predicted_s, rel=0.1)


def test_without_what_lies_beyond_the_steps_the_first_token_comes_too_early(again: list[Again]) -> None:
    early = [runs[item.measurement.id].ttft_s < item.seconds for refit, runs in again for item in refit.waits]
    assert sum(early) / len(early) >= 0.9
