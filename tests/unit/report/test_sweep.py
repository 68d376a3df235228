"""Curves of throughput per device over speed per user."""

from functools import cache

import pytest
from rich.console import Console

import penstock
from penstock.performance.prediction.predict_deployment import Range
from penstock.report.drawing.curve_plot import CurvePoint, PlottedCurve, plot

LOADS = [1, 4, 16, 64]
INPUTS = {"model", "weights", "kv_cache", "input_tokens", "output_tokens", "drafted_tokens", "accelerator", "devices"}


@cache
def curves() -> penstock.SweepAnswer:
    return penstock.sweep(
        "llama-3.3-70b",
        "h200:2,mi355x",
        precision="fp8",
        input_tokens="2k",
        output_tokens=400,
        engine="vllm",
        concurrency=LOADS,
    )


def shown() -> str:
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(curves().render(80))
    return captured.get()


def test_rows_carry_every_input_so_that_frames_can_be_stacked() -> None:
    rows = curves().rows()
    assert [row["concurrency"] for row in rows] == [load for load in LOADS for _ in range(2)]
    assert all(row.keys() >= INPUTS | {"split", "engine", "concurrency"} for row in rows)
    assert {(row["weights"], row["input_tokens"], row["output_tokens"]) for row in rows} == {("fp8", 2048, 400)}


def test_a_point_of_the_curve_is_the_prediction_at_that_load() -> None:
    alone = penstock.predict(
        "llama-3.3-70b",
        "h200:2,mi355x",
        precision="fp8",
        input_tokens="2k",
        output_tokens=400,
        engine="vllm",
        concurrency=16,
    )
    assert alone.rows() == [row for row in curves().rows() if row["concurrency"] == 16]


def test_the_answer_opens_with_its_setup_and_ends_with_the_next_command() -> None:
    lines = shown().splitlines()
    assert lines[0].startswith("llama-3.3-70b, fp8 weights, bf16 KV cache; 2,048 in, 400 out; 1, 4, 16, 64 in")
    command = shown().partition("Next: ")[2].partition("\n")[2].replace("\\\n", " ")
    assert command.split() == curves().follow_up.split()
    assert command.startswith("  penstock simulate llama-3.3-70b --on h200:2,mi355x ")
    assert "--precision fp8" in command
    assert sum(line.startswith("Result: at equal speed per user") for line in lines) == 1


def test_throughput_between_two_points_lies_between_theirs() -> None:
    for line in curves().series:
        slow, fast = (line.predictions[at] for at in (-1, 0))
        speeds = sorted(1 / one.tpot_s.value for one in line.predictions)
        middle = line.throughput_at((speeds[0] * speeds[1]) ** 0.5)
        assert middle is not None
        per_device = sorted(one.output_tokens_per_s_per_device for one in line.predictions)
        assert per_device[-2] <= middle <= per_device[-1]
        assert line.throughput_at(speeds[0] / 2) is None
        assert slow.output_tokens_per_s_per_device > fast.output_tokens_per_s_per_device


@pytest.mark.parametrize("width", [20, 60, 80, 100])
def test_a_plot_shows_every_point_and_keeps_its_width(width: int) -> None:
    points = tuple(
        CurvePoint(x=float(x), y=Range(value=y, low=y / 2, high=y * 1.2)) for x, y in ((3, 900.0), (80, 9.0))
    )
    lines = plot([PlottedCurve("@", "cyan", points)], width).plain.splitlines()
    assert sum(line.count("@") for line in lines) == 2
    assert max(map(len, lines)) <= max(width, 30)
