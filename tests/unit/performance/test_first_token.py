"""The first token: its closed form against single steps, what is fitted beyond it, and how each row was measured."""

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from examples import SLOWDOWNS as SLOW
from penstock.catalog import load_accelerator
from penstock.catalog.measurement import Measurement
from penstock.performance.calibration.benchmark_harness import Sending, harness_of
from penstock.performance.calibration.first_token_waits import (
    first_row,
    first_token_rows,
    fit_first_tokens,
)
from penstock.performance.calibration.measured_runs import measured_deployment, runs
from penstock.performance.prediction.predict_deployment import predict
from penstock.performance.prediction.serving_stack import stack_of
from penstock.performance.shipped.shipped_runs import model_of, shipped_efficiencies
from penstock.performance.step.first_token import LoopLoad, first_token_work
from penstock.performance.step.prompt_queue import PromptLoop, run_prompt_loop
from penstock.performance.step.step_cost import step_cost
from penstock.performance.step.step_work import COMPONENTS, ReplicaWork

pytestmark = pytest.mark.refit

ROW = Measurement(
    id="one",
    source="inferencex",
    ref="1",
    scenario="online",
    model="deepseek-r1",
    weights="fp8",
    accelerator="mi300x",
    engine="sglang",
    date=date(2026, 1, 1),
    tp=8,
    input_tokens=921.6,
    output_tokens=921.6,
    concurrency=32.0,
    ttft_statistic="median",
)


@pytest.fixture(scope="module")
def work() -> ReplicaWork:
    return ReplicaWork(measured_deployment(ROW, model_of, load_accelerator))


def test_alone_it_is_the_step_that_carries_the_prompt(work: ReplicaWork) -> None:
    loop = LoopLoad(users=np.array([1.0]), input_tokens=1000, output_tokens=500)
    one_step_s = step_cost(work, SLOW).seconds((), ((0, 1000),))
    assert float(first_token_work(work, loop)[0] @ SLOW) == pytest.approx(one_step_s, rel=0.01)


def test_others_decode_beside_it(work: ReplicaWork) -> None:
    loop = LoopLoad(users=np.array([33.0]), input_tokens=1000, output_tokens=500)
    one_step_s = step_cost(work, SLOW).seconds((1250,) * 32, ((0, 1000),))
    assert float(first_token_work(work, loop)[0] @ SLOW) == pytest.approx(one_step_s, rel=0.01)


def test_a_prompt_longer_than_a_step_takes_several(work: ReplicaWork) -> None:
    whole = LoopLoad(users=np.array([9.0]), input_tokens=8000, output_tokens=500)
    cut = replace(whole, batched_tokens=2000)
    column = COMPONENTS.index("weights")
    assert first_token_work(work, cut)[0][column] == pytest.approx(4 * first_token_work(work, whole)[0][column])
    assert first_token_work(work, cut)[0][COMPONENTS.index("prefill")] == pytest.approx(
        first_token_work(work, whole)[0][COMPONENTS.index("prefill")]
    )


def test_a_known_overhead_and_ratio_are_recovered() -> None:
    rows = [
        replace(ROW, id=str(users), concurrency=float(users), input_tokens=200.0 + 150 * users, tpot_s=0.01, ttft_s=1.0)
        for users in range(1, 65)
    ]
    unmeasured = first_token_rows(runs(rows, model_of, load_accelerator))
    waits = [replace(item, seconds=0.05 + 1.5 * item.loop_s(SLOW)) for item in unmeasured]
    fitted = fit_first_tokens(waits, lambda _: SLOW)
    errors = [fitted.seconds(first_row(item, SLOW)) / item.seconds - 1 for item in waits]
    assert np.max(np.abs(errors)) < 0.05


def test_a_load_far_from_all_measurements_gets_the_closed_loop_of_its_stack(work: ReplicaWork) -> None:
    efficiencies = shipped_efficiencies()
    stack = stack_of(work, "sglang", efficiencies)
    found = predict(
        work.deployment, "sglang", input_tokens=64, output_tokens=16, concurrency=3, efficiencies=efficiencies
    )
    loop = PromptLoop(
        users=3,
        input_tokens=64,
        output_tokens=16,
        batched_tokens=work.deployment.engine.max_batched_tokens,
        prompts_first=True,
    )
    loop_s = float(run_prompt_loop(step_cost(work, stack.slowdowns), loop).ttft_s.mean())
    assert found.ttft_s is not None
    assert found.ttft_tier == "calibrated"
    assert found.ttft_s.value == pytest.approx(stack.request_s + stack.first_ratio * loop_s, rel=0.02)
    assert found.ttft_s.low < found.ttft_s.value < found.ttft_s.high


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_first_tokens_come_later_and_rates_grow_with_users_and_prompts(work: ReplicaWork, engine: str) -> None:
    """At lengths without measurements. Measured curves need not be monotone."""
    efficiencies = shipped_efficiencies()
    for outputs in (16, 300):
        found = [
            [
                predict(
                    work.deployment,
                    engine,
                    input_tokens=inputs,
                    output_tokens=outputs,
                    concurrency=users,
                    efficiencies=efficiencies,
                )
                for users in (1, 2, 5, 16, 50, 200)
            ]
            for inputs in (100, 3_000, 30_000)
        ]
        ttft_s = np.array([[each.ttft_s.value if each.ttft_s else np.nan for each in row] for row in found])
        rate = np.array([[each.output_tokens_per_s.value for each in row] for row in found])
        assert (np.diff(ttft_s, axis=0) > 0).all()
        assert (np.diff(ttft_s, axis=1) > -0.01 * ttft_s[:, :-1]).all()
        assert (np.diff(rate, axis=1) > -0.01 * rate[:, :-1]).all()


def test_users_wait_for_a_first_token_or_decode(work: ReplicaWork) -> None:
    """Little's law: the rate of requests times the seconds of a request is the number of users."""
    found = predict(
        work.deployment,
        "vllm",
        input_tokens=16_000,
        output_tokens=64,
        concurrency=128,
        efficiencies=shipped_efficiencies(),
    )
    assert found.ttft_s is not None
    inside = found.output_tokens_per_s.value / 64 * (found.ttft_s.value + 64 * found.tpot_s.value)
    assert inside == pytest.approx(128, rel=1e-6)


def test_every_stack_with_many_rows_takes_about_as_long_as_its_steps_or_longer() -> None:
    # SGLang with ATOM (0.82) starts prompts earlier than the loop says; so do the nine rows of ATOM on MI300X (0.5).
    for path, fitted in shipped_efficiencies().first.by_path.items():
        request_s, ratio, held = fitted.slowdowns
        assert 0 <= request_s < 0.2, path
        assert (0.8 if fitted.rows >= 100 else 0.5) <= ratio < 4, path
        assert held >= 0


def test_the_app_publishes_medians_and_the_other_file_means() -> None:
    assert harness_of(ROW).sending.statistic == "median"
    assert harness_of(replace(ROW, source="inferencex-via-aiconfigurator")).sending == Sending()
    assert harness_of(replace(ROW, source="aiconfigurator-silicon")).sending == Sending(length_spread=0.0)


def test_nightly_lengths_are_drawn_if_they_are_a_nominal_length_times_nine_tenths() -> None:
    nightly = replace(ROW, source="rocm-atom-nightly", engine="vllm-atom")
    assert harness_of(nightly).sending.length_spread > 0
    assert harness_of(replace(nightly, input_tokens=5000.0)).sending.length_spread == 0
    assert harness_of(nightly).batched_tokens == 16_384


def test_a_row_states_its_own_chunk_and_requests() -> None:
    stated = harness_of(replace(ROW, source="sglang-cookbook", chunk_tokens=8192, dp=4, requests=96))
    assert (stated.batched_tokens, stated.sending.requests_per_user) == (2048, 3)


def test_sglang_on_blackwell_polls_every_thirty_steps_under_load() -> None:
    b200 = replace(ROW, accelerator="b200_sxm")
    assert harness_of(b200).held_steps == (30 - 1) / 2
    assert harness_of(replace(b200, concurrency=8.0)).held_steps == (10 - 1) / 2
    assert harness_of(replace(b200, engine="vllm")).held_steps == 0


def test_tensorrt_holds_prompts_where_its_scripts_say() -> None:
    llama = replace(ROW, engine="trtllm", model="llama-3.1-70b", accelerator="b200_sxm", tp=4)
    assert harness_of(llama).held_steps == 20
    assert harness_of(replace(llama, output_tokens=7372.8)).held_steps == 0
    assert harness_of(replace(llama, tp=8)).held_steps == 0
    assert harness_of(replace(ROW, engine="trtllm", tp=1, dp=8)).held_steps == 60
