"""`predict` and `simulate --users` answer the same question with the same figures."""

import pytest

from penstock import predict, simulate
from penstock.report.simulate.terminal import tpot_of, ttft_of

CASES = (
    ("llama-3.1-70b", "h200:2", 1024, 1024, 64),
    ("gpt-oss-120b", "mi355x", 1024, 1024, 64),
    ("deepseek-r1", "mi355x:8", 1024, 1024, 64),
    ("deepseek-r1", "b200:8", 7373, 922, 64),
    ("deepseek-r1", "mi355x:8", 7373, 922, 16),
    ("gpt-oss-120b", "h100", 922, 922, 32),
    ("llama-3.3-70b", "mi300x", 922, 922, 32),
    ("gpt-oss-120b", "mi300x", 7373, 922, 16),
)


@pytest.mark.parametrize(("model", "on", "inputs", "outputs", "users"), CASES)
def test_a_closed_loop_takes_as_long_as_predicted(model: str, on: str, inputs: int, outputs: int, users: int) -> None:
    (predicted,) = predict(model, on=on, input_tokens=inputs, output_tokens=outputs, concurrency=users).predictions
    answer = simulate(
        model, on=on, input_tokens=inputs, output_tokens=outputs, users=users, requests=max(640, 10 * users)
    )
    outcome = answer.scenarios[0].outcome
    ttft, tpot = predicted.ttft_s, predicted.tpot_s
    assert ttft is not None
    assert outcome is not None
    ttft_s, tpot_s = ttft_of(outcome).mean_s, tpot_of(outcome).mean_s
    assert ttft_s is not None
    assert tpot_s == pytest.approx(tpot.value, rel=0.15)
    # With equal lengths the users of a closed loop move in convoys, and TTFT was 2 to 11 times that of `predict`.
    assert ttft.value / 1.7 <= ttft_s <= ttft.value * 1.7
