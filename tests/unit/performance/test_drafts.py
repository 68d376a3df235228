"""Multi-token prediction: laws of a drafting step, what is accepted, and how wrong it is where it never looked."""

from collections import Counter
from dataclasses import replace
from math import isclose, log
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.catalog import load_accelerator, load_measurements
from penstock.errors import DeploymentError
from penstock.fleet import Deployment, Parallelism, engine_defaults
from penstock.performance.calibration.benchmark_harness import drafted_tokens
from penstock.performance.calibration.draft_acceptance import (
    fit_drafts,
    from_document,
    predicted_log_gain,
    to_document,
    without_each_draft,
)
from penstock.performance.calibration.first_token_waits import measured_loop
from penstock.performance.calibration.measured_runs import measured_deployment
from penstock.performance.power.power_model import Utilisation, kernels_of
from penstock.performance.prediction.choose_engine import predict_on
from penstock.performance.prediction.multi_token_prediction import multi_token_prediction, usual_drafted
from penstock.performance.prediction.predict_deployment import Prediction
from penstock.performance.shipped.shipped_drafts import held_out_drafts, shipped_drafted_rows, shipped_drafts
from penstock.performance.shipped.shipped_energy import shipped_power
from penstock.performance.shipped.shipped_runs import model_of, shipped_efficiencies
from penstock.performance.similarity.cases import shape_of
from penstock.performance.step.drafting_step import drafting_cost, drafting_step, expected_tokens
from penstock.performance.step.first_token import LoopLoad
from penstock.performance.step.step_work import COMPONENTS, PHYSICAL, ReplicaWork

law = settings(max_examples=100, deadline=None)
R1 = "deepseek-r1"


def replica(name: str = R1, *, tp: int = 8) -> ReplicaWork:
    accelerator = load_accelerator("mi355x")
    return ReplicaWork(
        Deployment(
            model=model_of(name),
            accelerator=accelerator,
            engine=engine_defaults("vllm", accelerator, tp=tp),
            parallelism=Parallelism(tp=tp),
        )
    )


WORK = replica()


def loop(users: float, drafted: int) -> LoopLoad:
    return LoopLoad(users=np.array([users]), input_tokens=1024, output_tokens=1024, drafted_tokens=drafted)


@law
@given(acceptance=st.floats(0.0, 1.0), drafted=st.integers(0, 16))
def test_a_step_yields_between_one_token_and_all_it_drafted(acceptance: float, drafted: int) -> None:
    assert 1.0 <= expected_tokens(acceptance, drafted) <= drafted + 1


def test_two_drafts_accepted_two_times_of_three() -> None:
    assert isclose(expected_tokens(2 / 3, 2), 1 + 2 / 3 + 4 / 9)


@law
@given(users=st.floats(1, 512), drafted=st.integers(1, 8), accepted=st.floats(1.0, 2.0))
def test_drafting_is_never_free(users: float, drafted: int, accepted: float) -> None:
    plain = WORK.roofline(loop(users, 0).average(accepted))[0]
    drafting = drafting_step(WORK, loop(users, drafted), accepted)[0]
    assert (drafting >= plain * (1 - 1e-12)).all()
    assert drafting.sum() > plain.sum()


@law
@given(users=st.floats(1, 512), drafted=st.integers(1, 8))
def test_a_step_that_drafts_nothing_is_the_plain_one(users: float, drafted: int) -> None:
    assert drafted
    assert np.allclose(drafting_step(WORK, loop(users, 0), 1.0), WORK.roofline(loop(users, 0).average()))


@law
@given(users=st.integers(1, 64), drafted=st.integers(1, 4), accepted=st.floats(1.0, 2.0))
def test_a_share_of_a_drafting_step_is_what_the_average_step_has_for_a_token(
    users: int, drafted: int, accepted: float
) -> None:
    """Without prompts: the two ways to a figure agree, but for experts that only a draft pass visits."""
    slowdowns = np.linspace(1.0, 2.0, len(COMPONENTS))
    slowdowns[PHYSICAL:] = 1e-5
    asked = replace(loop(users, drafted), input_tokens=1e-9, output_tokens=2048)
    average_s = float((drafting_step(WORK, asked, accepted) @ slowdowns)[0]) / accepted
    concrete_s = drafting_cost(WORK, slowdowns, drafted, accepted).seconds(contexts=(1024,) * users)
    assert isclose(concrete_s, average_s, rel_tol=0.05)


def predicted(users: int, *, mtp: bool, drafted: int = 3, name: str = R1) -> Prediction:
    spec = model_of(name)
    return predict_on(
        spec,
        load_accelerator("mi355x"),
        Parallelism(tp=8),
        cache_dtype=None,
        measured_engine="sglang",
        load=(1024, 1024, users),
        efficiencies=shipped_efficiencies(),
        speculate=(lambda engine: multi_token_prediction(spec, engine, shipped_drafts(), drafted_tokens=drafted))
        if mtp
        else None,
    )


def test_drafts_gain_most_where_few_users_wait_for_weights() -> None:
    gains = [
        predicted(users, mtp=True).tpot_s.value / predicted(users, mtp=False).tpot_s.value for users in (1, 16, 256)
    ]
    assert gains == sorted(gains)
    assert gains[0] < 0.65
    assert gains[-1] < 1.0


def test_a_draft_takes_memory_and_is_less_sure() -> None:
    plain, drafting = predicted(16, mtp=False), predicted(16, mtp=True)
    assert plain.memory.capacity is not None
    assert drafting.memory.capacity is not None
    assert drafting.memory.capacity.tokens < plain.memory.capacity.tokens
    assert drafting.tpot_s.high / drafting.tpot_s.value > plain.tpot_s.high / plain.tpot_s.value
    assert drafting.tier != "measured"
    assert drafting.speculation is not None
    assert "378 pairs" in drafting.speculation.grounds


def test_a_model_without_draft_layers_is_refused_in_one_line() -> None:
    with pytest.raises(DeploymentError, match="has no multi-token-prediction layers"):
        multi_token_prediction(model_of("llama-3.1-70b"), "vllm", shipped_drafts(), drafted_tokens=3)


def test_where_nobody_says_as_many_are_drafted_as_in_measured_runs_of_such_a_setup() -> None:
    rows = [row for row in load_measurements() if row.drafted and row.scenario == "online"]
    usual = Counter(
        usual_drafted(model_of(row.model), row.engine, load_accelerator(row.accelerator).vendor, row.dp)
        == drafted_tokens(row)
        for row in rows
    )
    # DeepSeek-V4 on TensorRT-LLM with long prompts and many users drafts one less than with few.
    assert usual[False] < 0.03 * len(rows)
    assert usual_drafted(model_of(R1), "trtllm", "nvidia", 8) == 1


def test_a_model_nobody_measured_drafting_borrows_and_is_less_sure() -> None:
    drafts = shipped_drafts()
    kin = multi_token_prediction(model_of("glm-4.7"), "vllm", drafts, drafted_tokens=3)
    seen = multi_token_prediction(model_of(R1), "vllm", drafts, drafted_tokens=3)
    assert kin.tier == "transferred"
    assert "of other models" in kin.grounds
    assert kin.spread[1] - kin.spread[0] > seen.spread[1] - seen.spread[0]


def test_shipped_acceptances_are_what_the_shipped_pairs_give() -> None:
    """Near them: they also stand on the slowdowns, which are fitted apart."""
    shipped, again = shipped_drafts(), fit_drafts(shipped_drafted_rows())
    assert from_document(to_document(shipped)) == shipped
    assert shipped.pairs == again.pairs
    for shape, acceptance in again.acceptance.items():
        assert isclose(shipped.acceptance[shape], acceptance, abs_tol=0.05)


def test_acceptances_agree_with_what_was_counted_directly() -> None:
    """InferenceX counts 2.49 tokens a step of DeepSeek-V4 with 3 drafted, 2.97 without thinking (golden lengths)."""
    acceptance = shipped_drafts().acceptance[shape_of(model_of("deepseek-v4-pro"))]
    assert 0.9 * 2.49 <= expected_tokens(acceptance, 3) <= 1.1 * 2.97


def test_the_gain_of_drafts_with_the_curve_held_out() -> None:
    """Beside the same runs without drafts, so that the error of the plain time is not in it."""
    off = [
        abs(row.measured_log_gain - predicted_log_gain(model, row))
        for model, held in without_each_draft(shipped_drafted_rows(), "split")
        for row in held
        if row.pair is not None
    ]
    assert len(off) >= 1_000
    assert median(off) <= 0.12


def test_time_per_token_of_drafting_runs_with_their_drafting_curve_held_out() -> None:
    held = held_out_drafts("without drafts")
    assert len(held) == len(shipped_drafted_rows()) >= 1_500
    assert median(abs(entry.error) for entry in held) <= 0.15


def test_time_per_token_of_drafting_runs_with_all_of_their_setup_held_out() -> None:
    """Most of it is the error of the time without drafts."""
    held = held_out_drafts("nothing")
    assert median(abs(entry.error) for entry in held) <= 0.18


@pytest.mark.parametrize("vendor", ["amd", "nvidia"])
def test_joules_of_drafting_runs_follow_from_a_draw_fitted_without_them(vendor: str) -> None:
    """At their own speed, with the work of a drafting step."""
    errors = []
    placed: dict[tuple[str, str], ReplicaWork] = {}
    for row in shipped_drafted_rows():
        seen, accelerator = row.measurement, load_accelerator(row.measurement.accelerator)
        if accelerator.vendor != vendor or not seen.joules_per_output_token or not seen.output_tokens_per_s:
            continue
        key = row.curve, seen.kv
        work = placed.get(key) or ReplicaWork(measured_deployment(seen, model_of, load_accelerator))
        placed[key] = work
        accepted = expected_tokens(shipped_drafts().acceptance[row.shape], row.drafted)
        drafting = replace(measured_loop(seen)[0], drafted_tokens=row.drafted)
        seconds = (seen.concurrency or 1.0) / seen.output_tokens_per_s
        draw, factor, _ = shipped_power().of(
            accelerator, kernels_of(accelerator.id, seen.engine, row.shape, seen.weights)
        )
        busy = Utilisation.of(drafting_step(work, drafting, accepted) / accepted, np.array([seconds]))
        watts = float(draw.shares(busy, factor)[0]) * (accelerator.tdp_watts or 0.0)
        joules = watts * seen.devices / seen.output_tokens_per_s
        errors.append(abs(joules / seen.joules_per_output_token - 1))
    assert len(errors) >= 300
    assert median(errors) <= 0.10


def test_each_gain_lies_in_its_interval_as_often_as_it_says() -> None:
    spread = shipped_drafts().spreads["split"]
    model = shipped_drafts()
    rows = [row for row in shipped_drafted_rows() if row.pair is not None]
    inside = [spread[0] <= row.measured_log_gain - predicted_log_gain(model, row) <= spread[1] for row in rows]
    assert 0.72 <= sum(inside) / len(inside) <= 0.9
    assert spread[0] < 0 < spread[1] < log(2)
