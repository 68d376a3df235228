"""What devices draw: laws of the model, and how wrong it is where it never looked."""

from dataclasses import replace
from itertools import pairwise
from math import isclose
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.catalog import load_accelerator
from penstock.fleet import Deployment, Parallelism, engine_defaults
from penstock.performance.power.power_document import from_document, to_document
from penstock.performance.power.power_fit import fit_power, predicted_share
from penstock.performance.power.power_model import Draw, Utilisation
from penstock.performance.prediction.energy_per_token import Energy, energy_of
from penstock.performance.prediction.predict_deployment import predict
from penstock.performance.shipped.shipped_energy import (
    PredictedDraw,
    held_out_draws,
    power_under_load,
    shipped_draws,
    shipped_power,
)
from penstock.performance.shipped.shipped_runs import model_of, shipped_efficiencies

law = settings(max_examples=200, deadline=None)
shares = st.floats(0.0, 1.0)
draws = st.builds(Draw, idle=st.floats(0.05, 0.8), memory=st.floats(0.05, 5.0), arithmetic=st.floats(0.05, 30.0))
factors = st.floats(0.5, 2.0)


def share(draw: Draw, memory: float, arithmetic: float, factor: float = 1.0) -> float:
    return float(draw.shares(Utilisation(memory=np.array([memory]), arithmetic=np.array([arithmetic])), factor)[0])


@law
@given(draw=draws, memory=shares, arithmetic=shares, factor=factors)
def test_power_lies_between_idle_and_the_limit(draw: Draw, memory: float, arithmetic: float, factor: float) -> None:
    assert draw.idle <= share(draw, memory, arithmetic, factor) <= 1.0


@law
@given(draw=draws, low=st.tuples(shares, shares), more=st.tuples(shares, shares), factor=factors)
def test_a_busier_device_never_draws_less(
    draw: Draw, low: tuple[float, float], more: tuple[float, float], factor: float
) -> None:
    busier = low[0] + more[0], low[1] + more[1]
    assert share(draw, *busier, factor) >= share(draw, *low, factor) - 1e-12


@law
@given(draw=draws)
def test_a_device_without_work_draws_idle(draw: Draw) -> None:
    assert isclose(share(draw, 0.0, 0.0), draw.idle)


def predicted(accelerator: str, users: int, *, model: str = "llama-3.1-70b", tp: int = 8) -> Energy:
    on = load_accelerator(accelerator)
    placed = Deployment(
        model=model_of(model),
        accelerator=on,
        engine=replace(engine_defaults("vllm", on, tp=tp), max_sequences=4096),
        parallelism=Parallelism(tp=tp),
    )
    answer = predict(
        placed, "vllm", input_tokens=512, output_tokens=512, concurrency=users, efficiencies=shipped_efficiencies()
    )
    energy = energy_of(answer, shipped_power())
    assert energy is not None
    assert isclose(
        energy.joules_per_output_token.value,
        energy.device_watts.value * tp / answer.output_tokens_per_s.value,
        rel_tol=1e-9,
    )
    return energy


@settings(max_examples=30, deadline=None)
@given(
    users=st.integers(1, 256),
    more=st.integers(1, 256),
    accelerator=st.sampled_from(("mi300x", "mi355x", "h100", "b200", "gaudi3")),
    model=st.sampled_from(("llama-3.1-70b", "qwen3-30b-a3b")),
)
def test_a_larger_batch_never_takes_more_joules_per_token(users: int, more: int, accelerator: str, model: str) -> None:
    small, large = predicted(accelerator, users, model=model), predicted(accelerator, users + more, model=model)
    assert large.joules_per_output_token.value <= small.joules_per_output_token.value * (1 + 1e-9)


def test_what_is_farther_from_what_was_measured_is_less_sure() -> None:
    spreads = shipped_power().spreads
    ordered = [spreads["split"], spreads["model"], spreads["accelerator"], spreads["vendor"]]
    assert all(near[0] >= far[0] and near[1] <= far[1] for near, far in pairwise(ordered))
    assert predicted("mi300x", 64).unseen == "model"
    assert predicted("mi350x", 64).unseen == "accelerator"
    assert predicted("gaudi3", 64).unseen == "vendor"


def test_no_board_power_is_undetermined() -> None:
    on = load_accelerator("tpu_v5e")
    assert on.tdp_watts is None
    placed = Deployment(
        model=model_of("llama-3.2-1b"),
        accelerator=on,
        engine=engine_defaults("vllm", on),
        parallelism=Parallelism(),
    )
    answer = predict(
        placed, "vllm", input_tokens=512, output_tokens=64, concurrency=4, efficiencies=shipped_efficiencies()
    )
    assert energy_of(answer, shipped_power()) is None


def test_shipped_power_is_what_the_shipped_cells_give() -> None:
    shipped = shipped_power()
    again = from_document(to_document(fit_power(shipped_draws(), dict(shipped.spreads))))
    assert again == shipped


def test_no_row_uses_a_rate_that_makes_most_devices_exceed_their_limit() -> None:
    beyond = [row for row in shipped_draws() if row.share > 1.02]
    assert len(beyond) <= 0.02 * len(shipped_draws())


def test_devices_of_a_measured_part_draw_what_they_were_measured_at() -> None:
    seen = power_under_load(load_accelerator("mi355x"))
    cells = [
        row.share
        for row in shipped_draws()
        if row.path[1] == "mi355x" and row.steady and (row.measurement.concurrency or 0) >= 32
    ]
    assert isclose(seen.median_fraction, median(cells), rel_tol=1e-3)
    assert seen.low_fraction < seen.median_fraction < seen.high_fraction <= 1


@pytest.fixture(scope="module")
def held_out() -> tuple[PredictedDraw, ...]:
    return held_out_draws()


def errors(held: tuple[PredictedDraw, ...], vendor: str, *, speed_known: bool) -> float:
    chosen = [entry for entry in held if entry.row.path[0] == vendor]
    assert len(chosen) >= 500
    return median(abs(entry.joules_error_at_its_speed if speed_known else entry.joules_error) for entry in chosen)


@pytest.mark.parametrize(("vendor", "most"), [("amd", 0.13), ("nvidia", 0.115)])
def test_joules_per_output_token_with_the_curve_held_out(
    held_out: tuple[PredictedDraw, ...], vendor: str, most: float
) -> None:
    """Speed and draw both predicted: what a user meets. Most of it is the error of the speed."""
    assert errors(held_out, vendor, speed_known=False) <= most


@pytest.mark.parametrize("vendor", ["amd", "nvidia"])
def test_joules_per_output_token_at_a_known_speed_with_the_curve_held_out(
    held_out: tuple[PredictedDraw, ...], vendor: str
) -> None:
    assert errors(held_out, vendor, speed_known=True) <= 0.08


def test_measured_joules_at_a_known_speed_lie_in_their_interval(held_out: tuple[PredictedDraw, ...]) -> None:
    inside = [
        entry.at_its_speed.joules_per_output_token.low
        <= (entry.row.measurement.joules_per_output_token or 0)
        <= entry.at_its_speed.joules_per_output_token.high
        for entry in held_out
    ]
    assert 0.72 <= sum(inside) / len(inside) <= 0.88


def test_each_row_is_predicted_once_and_never_by_its_own_curve(held_out: tuple[PredictedDraw, ...]) -> None:
    assert sorted(entry.row.measurement.id for entry in held_out) == sorted(
        row.measurement.id for row in shipped_draws()
    )
    alone = [row for row in shipped_draws() if row.kernels.startswith("mi300x")]
    unseen = fit_power([row for row in shipped_draws() if row.path[1] != "mi300x"])
    assert ("amd", "mi300x") not in unseen.draws
    assert all(0 < predicted_share(unseen, row) <= 1 for row in alone)
