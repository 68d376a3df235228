"""Where no engine is named, the fastest of several guesses is the most wrong one: how wrong, on measured cells."""

from statistics import median

import numpy as np
import pytest

from penstock.catalog import load_accelerator, load_measurements
from penstock.catalog.measurement import Measurement
from penstock.performance.calibration.measured_runs import measured_deployment
from penstock.performance.prediction.choose_engine import BEST, predict_on
from penstock.performance.shipped.shipped_runs import model_of, shipped_efficiencies

SAMPLE = 120


def test_an_engine_nobody_tried_with_the_model_on_the_part_does_not_compete_with_those_somebody_did() -> None:
    efficiencies, llama = shipped_efficiencies(), model_of("llama-3.3-70b")
    served = efficiencies.engines("mi355x", llama)
    rows = [row for row in load_measurements() if row.accelerator == "mi355x" and row.scenario == "online"]
    tried = {row.engine for row in rows if row.model.startswith("llama-3") and "70b" in row.model}
    assert set(served) <= tried
    assert set(served) < set(efficiencies.engines("mi355x"))


def test_a_model_nobody_served_on_a_part_is_compared_over_all_engines_of_the_part() -> None:
    efficiencies = shipped_efficiencies()
    assert efficiencies.engines("mi355x", model_of("phi-4")) == efficiencies.engines("mi355x")


@pytest.fixture(scope="module")
def errors() -> list[tuple[float, bool]]:
    """Predicted over the fastest engine measured in the same cell, and whether that lay within P10-P90."""
    cells: dict[tuple[object, ...], Measurement] = {}
    for row in load_measurements():
        served = row.scenario == "online" and row.tpot_s and row.concurrency and row.nodes == 1
        if served and not row.drafted and row.dp == 1 and row.source == "inferencex-cells" and not row.flag:
            lengths = round(row.input_tokens), round(row.output_tokens)
            cell = (row.model, row.weights, row.accelerator, row.tp, row.ep, *lengths, row.concurrency)
            cells[cell] = min(cells.get(cell, row), row, key=lambda one: one.tpot_s or 0.0)
    fastest = [cells[cell] for cell in sorted(cells, key=str)]
    chosen = np.random.default_rng(3).permutation(len(fastest))[:SAMPLE]
    return [_error(fastest[index]) for index in chosen]


def _error(row: Measurement) -> tuple[float, bool]:
    deployment = measured_deployment(row, model_of, load_accelerator)
    answer = predict_on(
        deployment.model,
        deployment.accelerator,
        deployment.parallelism,
        cache_dtype=deployment.cache_dtype,
        measured_engine=BEST,
        load=(round(row.input_tokens), round(row.output_tokens), round(row.concurrency or 1)),
        efficiencies=shipped_efficiencies(),
    )
    measured_s = row.tpot_s or 0.0
    return answer.tpot_s.value / measured_s - 1, answer.tpot_s.low <= measured_s <= answer.tpot_s.high


def test_the_engine_chosen_is_about_as_fast_as_the_fastest_that_was_measured(errors: list[tuple[float, bool]]) -> None:
    assert abs(median(error for error, _ in errors)) < 0.08
    assert sum(inside for _, inside in errors) > 0.72 * len(errors)
