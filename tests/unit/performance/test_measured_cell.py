"""Where a setup was measured at a load, rate and energy are the measured ones, with and without drafts."""

import pytest

from penstock.api.predict import PredictAnswer, predict
from penstock.catalog import load_measurements
from penstock.catalog.measurement import Measurement

CELLS = [
    ("minimax-m3", "nvfp4", "b200_sxm", "vllm", 4, 7373, 64, "mtp"),
    ("qwen3.5-397b-a17b", "nvfp4", "b300_sxm", "sglang", 4, 922, 32, "mtp"),
    ("deepseek-v4-pro", "mxfp4", "mi355x", "atom", 1, 922, 256, ""),
]


def newest(cell: tuple[str, str, str, str, int, int, int, str]) -> Measurement:
    model, weights, accelerator, engine, tp, inputs, users, drafted = cell
    rows = [
        row
        for row in load_measurements(accelerator)
        if (row.model, row.weights, row.engine, row.tp, row.drafted) == (model, weights, engine, tp, drafted)
        and (round(row.input_tokens), round(row.output_tokens), row.concurrency) == (inputs, 922, users)
        and row.joules_per_output_token
        and row.output_tokens_per_s
        and not row.overlap
    ]
    return max(rows, key=lambda row: row.date)


def answer_of(row: Measurement, users: int) -> PredictAnswer:
    answer = predict(
        row.model,
        f"{row.accelerator}:{row.devices}",
        engine=row.engine,
        dp=row.dp,
        ep=row.ep,
        mtp=bool(row.drafted),
        precision=row.weights,
        input_tokens=round(row.input_tokens),
        output_tokens=round(row.output_tokens),
        concurrency=users,
    )
    assert isinstance(answer, PredictAnswer)
    return answer


@pytest.mark.parametrize("cell", CELLS)
def test_rate_and_energy_of_a_measured_cell_are_measured(cell: tuple[str, str, str, str, int, int, int, str]) -> None:
    row = newest(cell)
    answer = answer_of(row, cell[6])
    (prediction,), (energy,) = answer.predictions, answer.energies
    assert prediction.tier == "measured"
    assert prediction.output_tokens_per_s.value == pytest.approx(row.output_tokens_per_s, rel=0.01)
    assert energy is not None
    assert energy.tier == "measured"
    assert energy.joules_per_output_token.value == pytest.approx(row.joules_per_output_token, rel=0.01)
    watts = (row.joules_per_output_token or 0.0) * (row.output_tokens_per_s or 0.0) / row.devices
    assert energy.device_watts.value == pytest.approx(watts, rel=0.02)


def test_beside_the_measured_load_energy_is_that_of_the_power_model() -> None:
    (energy,) = answer_of(newest(CELLS[1]), 45).energies
    assert energy is not None
    assert energy.tier != "measured"


def test_median_of_all_runs_overrules_one_run() -> None:
    """Attack: one day's 15.8 ms at 32 users, between 5.8 at 16 and 9.7 at 64, hid the median of all runs, 8.5."""
    answer = predict("gpt-oss-120b", "h100:4", engine="vllm", input_tokens=922, output_tokens=922, concurrency=32)
    assert isinstance(answer, PredictAnswer)
    (prediction,) = answer.predictions
    run, median = (
        next(
            row
            for row in load_measurements("h100_sxm")
            if (row.model, row.engine, row.tp, row.concurrency) == ("gpt-oss-120b", "vllm", 4, 32)
            and (round(row.input_tokens), round(row.output_tokens), row.dated) == (922, 922, dated)
            and not row.drafted
        )
        for dated in ("day", "up_to")
    )
    assert run.tpot_s is not None
    assert median.tpot_s is not None
    assert run.tpot_s > 1.15 * median.tpot_s
    assert prediction.tier == "measured"
    assert prediction.tpot_s.value == pytest.approx(median.tpot_s, rel=0.02)
    assert prediction.tpot_s.low < median.tpot_s < run.tpot_s <= prediction.tpot_s.high * 1.01
    assert prediction.output_tokens_per_s.value == pytest.approx(median.output_tokens_per_s, rel=0.02)


@pytest.mark.parametrize("cell", CELLS[1:2])
def test_rate_is_continuous_around_a_measured_load(cell: tuple[str, str, str, str, int, int, int, str]) -> None:
    row = newest(cell)
    fewer, at, more = (answer_of(row, cell[6] + users).predictions[0].output_tokens_per_s.value for users in (-1, 0, 1))
    assert abs(more / at - 1) < 0.05
    assert abs(fewer / at - 1) < 0.05


def test_rate_rises_from_user_to_user() -> None:
    """Attack: DeepSeek-R1 in FP8 on MI355X made 2,487 tok/s with 63 users, 2,354 with 64 and 2,534 with 65."""
    rates = [
        answer.predictions[0].output_tokens_per_s.value
        for users in (63, 64, 65)
        if isinstance(
            answer := predict("deepseek-r1", "mi355x:8", precision="fp8", engine="vllm-atom", concurrency=users),
            PredictAnswer,
        )
    ]
    assert rates[0] < rates[1] < rates[2]
    assert rates[2] / rates[0] < 1.03 * 65 / 63
