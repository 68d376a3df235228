"""One verdict: what does not run for `fit` and `preflight` does not run for `predict` and `simulate`."""

from typing import Any

import pytest
from rich.console import Console

import penstock
from conftest import Run
from penstock.api.answer import ApiAnswer
from printed import words


def shown(answer: ApiAnswer) -> str:
    console = Console(width=140, color_system=None)
    with console.capture() as captured:
        console.print(answer.render(140))
    return words(captured.get())


def verdicts(model: str, on: str, more: dict[str, Any]) -> dict[str, bool]:
    answers: dict[str, ApiAnswer] = {
        "fit": penstock.fit(model, on, context=2048, **more),
        "predict": penstock.predict(model, on, **more),
        "preflight": penstock.preflight(model, on, context=2048, **more),
        "simulate": penstock.simulate(model, on, users=8, requests=8, **more),
    }
    return {name: answer.good for name, answer in answers.items()}


@pytest.mark.parametrize("engine", [{}, {"engine": "sglang"}, {"engine": "vllm"}])
def test_seventy_billion_in_bf16_exceed_one_h200(engine: dict[str, str]) -> None:
    """Attack: `predict` chose SGLang with --mem-fraction-static 0.95, ran 2 of 64 requests, and exited with 0."""
    assert set(verdicts("llama-3.3-70b", "h200", engine).values()) == {False}


def test_seventy_billion_in_bf16_exit_with_one(penstock: Run) -> None:
    for command in ("fit", "predict", "preflight"):
        assert penstock(command, "llama-3.3-70b", "--on", "h200").returncode == 1, command


def test_unasked_settings_turn_no_verdict() -> None:
    """SGLang's default share of an H100 is too little for 70B in FP8; 0.88 would do, and `fit` names it."""
    made = verdicts("llama-3.3-70b-fp8-dynamic", "h100", {"engine": "sglang"})
    assert set(made.values()) == {False}
    report = penstock.fit("llama-3.3-70b-fp8-dynamic", "h100", engine="sglang", context=2048).reports[0]
    assert any(remedy.change.startswith("--memory-fraction 0.8") for remedy in report.remedies)


def test_measured_setup_is_never_refused() -> None:
    """InferenceX ran DeepSeek-R1 in FP8 on four B200 with a larger share of memory than SGLang takes by default."""
    load: dict[str, Any] = {"input_tokens": 7373, "output_tokens": 922, "concurrency": 8}
    assert penstock.predict("deepseek-r1", "b200:4", precision="fp8", engine="sglang", **load).good


def test_too_small_is_the_result() -> None:
    # 70 GB of weights leave room on an H100 for 1 request of 9,000 tokens; two H100 hold 15 of 64, four hold all.
    answer = penstock.predict(
        "llama-3.3-70b", "h100", precision="fp8", engine="vllm", input_tokens=8000, concurrency=64
    )
    assert not answer.good
    text = shown(answer)
    assert "Result: h100_sxm is too small for 64 in flight: 1 runs; use 4 devices." in text
    assert "delivers" not in text
    few = penstock.predict("llama-3.3-70b", "h100", precision="fp8", engine="vllm", input_tokens=8000, concurrency=2)
    assert few.good
    assert "too small" not in shown(few)


def test_hint_names_devices_and_format() -> None:
    answer = penstock.predict("llama-3.3-70b", "h200", concurrency=64)
    said = "Result: h200_sxm is too small for 64 in flight: the weights do not fit; use 2 devices or --precision fp8."
    assert said in shown(answer)
