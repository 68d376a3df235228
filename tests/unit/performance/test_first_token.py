"""The first token: its closed form against single steps, what is fitted beyond it, and how each row was measured."""

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from examples import SLOWDOWNS as SLOW
from penstock.catalog import load_accelerator
from penstock.catalog.measurement import Measurement
from penstock.performance.calibration.benchmark_harness import Harness, harness_of
from penstock.performance.calibration.first_token_waits import (
    first_row,
    first_token_rows,
    fit_first_tokens,
    measured_loop,
)
from penstock.performance.calibration.measured_runs import measured_deployment, runs
from penstock.performance.prediction.measured_load import RequestedLoad, first_token_at
from penstock.performance.prediction.predict_deployment import predict
from penstock.performance.prediction.serving_stack import stack_of
from penstock.performance.shipped.shipped_runs import model_of, shipped_efficiencies
from penstock.performance.step.first_token import LoopLoad, first_token_work
from penstock.performance.step.step_cost import step_cost
from penstock.performance.step.step_work import COMPONENTS, ReplicaWork

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


def test_a_mean_holds_its_share_of_the_burst(work: ReplicaWork) -> None:
    steady = LoopLoad(users=np.array([64.0]), input_tokens=1024, output_tokens=500, batched_tokens=8192)
    burst = replace(steady, burst_share=1.0)
    mean = replace(steady, burst_share=0.1)
    # 64 prompts of 1,024 in steps of 8,192 are 8 steps; on average a prompt waits for (8 + 1) / 2 of them.
    assert first_token_work(work, burst)[0][COMPONENTS.index("step")] == pytest.approx(4.5)
    assert first_token_work(work, mean) == pytest.approx(
        0.9 * first_token_work(work, steady) + 0.1 * first_token_work(work, burst)
    )


def test_a_known_overhead_and_ratio_are_recovered(work: ReplicaWork) -> None:
    rows = []
    for users in range(1, 65):
        row = replace(ROW, id=str(users), concurrency=float(users), input_tokens=200.0 + 150 * users, tpot_s=0.01)
        loop, _ = measured_loop(row)
        rows.append(replace(row, ttft_s=0.05 + 1.5 * float(first_token_work(work, loop)[0] @ SLOW)))
    waits = first_token_rows(runs(rows, model_of, load_accelerator))
    fitted = fit_first_tokens(waits, lambda _: SLOW)
    errors = [fitted.seconds(first_row(item, SLOW)) / item.seconds - 1 for item in waits]
    assert np.max(np.abs(errors)) < 0.05


def test_closed_form_and_stack_agree_with_what_is_predicted(work: ReplicaWork) -> None:
    efficiencies = shipped_efficiencies()
    stack = stack_of(work, "sglang", efficiencies)
    found = predict(
        work.deployment, "sglang", input_tokens=1024, output_tokens=1024, concurrency=16, efficiencies=efficiencies
    )
    tokens = work.deployment.engine.max_batched_tokens
    loop = LoopLoad(users=np.array([16.0]), input_tokens=1024, output_tokens=1024, batched_tokens=tokens)
    assert found.ttft_s is not None
    closed_form_s = stack.request_s + stack.first_ratio * float(first_token_work(work, loop)[0] @ stack.slowdowns)
    corrected = first_token_at(stack, work, "sglang", efficiencies, RequestedLoad(16, 1024, 1024))
    assert found.ttft_s.value == pytest.approx(closed_form_s * np.exp(corrected.log_factor))
    assert found.ttft_s.low < found.ttft_s.value < found.ttft_s.high


def test_every_stack_takes_longer_than_its_steps() -> None:
    for path, fitted in shipped_efficiencies().first.by_path.items():
        request_s, ratio, held = fitted.slowdowns
        assert 0 <= request_s < 0.2, path
        assert 1 <= ratio < 4, path
        assert held >= 0


def test_the_app_publishes_medians_and_the_other_file_means() -> None:
    assert harness_of(ROW).burst_share == 0
    assert harness_of(replace(ROW, source="inferencex-via-aiconfigurator")).burst_share == pytest.approx(1 / 10)
    assert harness_of(replace(ROW, source="aiconfigurator-silicon")) == Harness()


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
