"""The first screen of `predict` answers the question; `--explain` adds the evidence."""

from typing import Any

import pytest
from rich.console import Console

import penstock
from penstock.api.sweep import predict_loads
from penstock.errors import UsageError
from printed import words


def answered(model: str, on: str, **options: Any) -> str:  # noqa: ANN401
    answer = predict_loads(model=model, on=on, **options)
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(answer.render(80))
    return captured.get()


def shown(*, explain: bool) -> str:
    return answered("llama-3.3-70b", "h200:2,mi355x", precision="fp8", engine="vllm", explain=explain)


def test_the_first_screen_has_the_answer_and_points_to_the_evidence() -> None:
    short = shown(explain=False)
    assert len(short.splitlines()) <= 32
    for part in ("rent, $ per Mtok out", "Result:", "Cheapest at catalog rents:", "Uncertain:", "--explain", "Next:"):
        assert part in short
    for evidence in ("ms per step", "nearest public measurements", "W per device", "specialised clouds"):
        assert evidence not in short
        assert evidence in shown(explain=True)


def test_explain_is_refused_where_it_would_change_nothing() -> None:
    with pytest.raises(UsageError, match="--explain"):
        penstock.predict("llama-3.3-70b", "h200:2", explain=True, prefill=1)
    with pytest.raises(UsageError, match="--explain"):
        penstock.sweep("llama-3.3-70b", "h200:2", explain=True, concurrency=[1, 4])


def test_software_of_another_year_is_no_ranking() -> None:
    """Attack: MI350X, the same chip with less power, "delivers the most" before MI355X with software a year older."""
    text = words(answered("llama-3.3-70b", "mi350x,mi355x", precision="mxfp4", engine="vllm"))
    said = "software of 2025-10 on mi355x and of 2026-09 on mi350x: no ranking of the accelerators"
    assert f"Result: mi350x delivers 3,335 tok/s per device; mi355x delivers 34% less, with {said}." in text
    assert "the most of those compared" not in text
    curve = words(answered("llama-3.3-70b", "mi350x,mi355x", precision="mxfp4", engine="vllm", concurrency=[1, 16, 64]))
    assert said in curve.partition("Result:")[2].partition("Uncertain:")[0]


def test_software_of_one_year_is_ranked() -> None:
    text = words(answered("llama-3.3-70b", "h200:2,mi355x", precision="fp8", engine="vllm"))
    assert "the most of those compared" in text
    assert "no ranking" not in text
