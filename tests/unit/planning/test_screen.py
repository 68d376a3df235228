"""The quick screen says what `predict` says of a step, and of a first token for which no prompt waits."""

from dataclasses import replace
from math import exp

import numpy as np
import pytest

from examples import deployment
from penstock.performance.prediction.measured_load import RequestedLoad, time_per_token_at
from penstock.performance.prediction.predict_deployment import Prediction, predict
from penstock.performance.shipped.shipped_drafts import own_drafts
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.performance.step.first_token import LoopLoad
from penstock.performance.step.step_work import ReplicaWork
from penstock.planning.candidates.queueless_screen import QueuelessScreen
from penstock.planning.candidates.replica_capacity import Option
from penstock.planning.spec.plan_types import Bucket
from penstock.workload.slo import Slo

EFFICIENCIES = shipped_efficiencies()
CASES = [("gpt-oss-120b", "h200", 1), ("llama-3.1-70b", "mi300x", 8), ("deepseek-r1", "h200", 8)]


def both(name: str, accelerator: str, tp: int, bucket: Bucket) -> tuple[QueuelessScreen, Prediction]:
    screen, placed = QueuelessScreen(EFFICIENCIES), deployment(name, accelerator, tp=tp)
    predicted = predict(
        placed,
        "vllm",
        input_tokens=bucket.input_tokens,
        output_tokens=bucket.output_tokens,
        concurrency=8,
        efficiencies=EFFICIENCIES,
    )
    return screen, predicted


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("input_tokens", [512, 20_000])
def test_the_largest_loop_kept_is_the_one_whose_predicted_first_token_meets_the_slo(
    case: tuple[str, str, int], input_tokens: int
) -> None:
    name, accelerator, tp = case
    bucket = Bucket(input_tokens=input_tokens, output_tokens=256)
    screen, predicted = both(name, accelerator, tp, bucket)
    assert predicted.ttft_s is not None
    assert predicted.running == 8
    option = Option(id="one", weights="", deployment=deployment(name, accelerator, tp=tp), measured_engine="vllm")
    # In the screen no prompt waits for another prompt, and no measurement of the setup corrects the time.
    work, load = ReplicaWork(predicted.deployment), RequestedLoad(8, input_tokens, 256)
    assert predicted.stack is not None
    tpot = time_per_token_at(predicted.stack, work, "vllm", EFFICIENCIES, load).log_factor
    loop = LoopLoad(
        users=np.array([8.0]),
        input_tokens=input_tokens,
        output_tokens=256,
        batched_tokens=predicted.deployment.batched_tokens,
    )
    alone_s = float(predicted.stack.unqueued_first_token_s(work, loop)[0])
    kept = screen.alone(option, bucket, Slo(ttft_s=alone_s * (1 + 1e-9)))
    assert "closed loop of 8, no queue" in kept.grounds
    assert kept.requests_per_s.value == pytest.approx(8 / (predicted.tpot_s.value / exp(tpot)) / 256, rel=1e-9)
    less = screen.alone(option, bucket, Slo(ttft_s=alone_s * (1 - 1e-9)))
    assert "closed loop of 7, no queue" in less.grounds


def test_a_step_that_drafts_is_screened_as_it_is_predicted_with_the_doubt_about_its_drafts() -> None:
    bucket = Bucket(input_tokens=1024, output_tokens=512)
    plain = deployment("deepseek-r1", "h200", tp=8)
    placed = replace(plain, speculative=True)
    drafts = own_drafts(placed.model, "vllm", "nvidia")
    assert drafts is not None
    predicted = predict(
        placed,
        "vllm",
        input_tokens=bucket.input_tokens,
        output_tokens=bucket.output_tokens,
        concurrency=8,
        efficiencies=EFFICIENCIES,
        speculation=drafts,
    )
    screen = QueuelessScreen(EFFICIENCIES)
    option = Option(id="one", weights="", deployment=placed, measured_engine="vllm", speculation=drafts)
    # The screen and the simulator scale a drafting step as at typical loads, and `predict` as at this load.
    typical, here = screen.compiled(option).speculation, predicted.speculation
    assert typical is not None
    assert here is not None
    tpot_s = predicted.tpot_s.value * exp(typical.log_factor - here.log_factor)
    kept = screen.alone(option, bucket, Slo(tpot_s=tpot_s * (1 + 1e-9)))
    without = screen.alone(
        Option(id="two", weights="", deployment=plain, measured_engine="vllm"), bucket, Slo(tpot_s=1.0)
    )
    assert kept.requests_per_s.value == pytest.approx(8 / tpot_s / 512, rel=1e-9)
    rate, other = kept.requests_per_s, without.requests_per_s
    assert rate.low / rate.value < other.low / other.value
    assert "multi-token prediction, acceptance" in kept.grounds


def test_a_length_is_served_where_its_longest_row_fits() -> None:
    """The mean of a bucket fits beside the weights of a model that its longest request does not."""
    placed = Option(id="one", weights="bf16", deployment=deployment("qwen3-32b", "h100"), measured_engine="vllm")
    rows = np.array([[500, 100], [39_000, 500]], np.int32)
    slo = Slo(ttft_s=60.0, tpot_s=1.0, attainment_fraction=0.95)
    short = Bucket(input_tokens=1000, output_tokens=100)
    seen = replace(short, rows=rows.tobytes())
    screen = QueuelessScreen(EFFICIENCIES)
    assert screen.alone(placed, short, slo).meets_slo
    assert not screen.alone(placed, seen, slo).meets_slo
