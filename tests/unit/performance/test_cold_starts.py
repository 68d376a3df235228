"""Times to first token that contain a cold start are no evidence, and nights are merged by their median."""

from dataclasses import replace
from datetime import date

from penstock.catalog import load_measurements
from penstock.catalog.measurement import Measurement
from penstock.performance.calibration.cold_starts import without_cold_starts
from penstock.performance.calibration.measured_runs import merge_nightly, setup_of

ROW = Measurement(
    id="one",
    source="rocm-atom-nightly",
    ref="1",
    scenario="online",
    model="deepseek-r1",
    weights="fp8",
    accelerator="mi355x",
    engine="atom",
    date=date(2026, 5, 1),
    tp=8,
    input_tokens=922.0,
    output_tokens=922.0,
    concurrency=32.0,
    tpot_s=0.02,
    ttft_s=0.2,
)


def first_tokens(*rows: Measurement) -> list[float | None]:
    return [row.ttft_s for row in without_cold_starts(rows, setup_of)]


def test_a_time_several_times_that_of_a_higher_load_is_left_out() -> None:
    cold, higher = replace(ROW, ttft_s=5.0), replace(ROW, concurrency=64.0, ttft_s=0.4)
    assert first_tokens(ROW, cold, higher) == [0.2, None, 0.4]


def test_a_queue_at_the_highest_load_is_kept() -> None:
    """A full cache makes users wait, so the time may rise by any factor with the load."""
    assert first_tokens(ROW, replace(ROW, concurrency=256.0, ttft_s=55.0)) == [0.2, 55.0]


def test_other_lengths_and_setups_say_nothing() -> None:
    others = replace(ROW, input_tokens=7373.0, ttft_s=5.0), replace(ROW, tp=4, ttft_s=5.0)
    assert first_tokens(ROW, *others) == [0.2, 5.0, 5.0]


def test_few_shipped_rows_have_a_cold_start() -> None:
    rows = [row for row in load_measurements() if not row.twin and row.ttft_s and row.scenario == "online"]
    kept = without_cold_starts(rows, setup_of)
    left_out = [row for row, after in zip(rows, kept, strict=True) if after.ttft_s is None]
    assert 0 < len(left_out) < 0.015 * len(rows)
    assert any((row.accelerator, row.weights, row.concurrency) == ("b200_sxm", "nvfp4", 64) for row in left_out)


def test_nights_of_a_month_have_the_median_time_to_first_token() -> None:
    """The night with the median time per token may be the one with a slow start."""
    nights = [
        replace(ROW, id=str(number), tpot_s=tpot_s, ttft_s=ttft_s, date=date(2026, 5, number))
        for number, (tpot_s, ttft_s) in enumerate(((0.019, 0.20), (0.02, 0.55), (0.021, 0.22)), start=1)
    ]
    (merged,) = merge_nightly(nights)
    assert (merged.tpot_s, merged.ttft_s) == (0.02, 0.22)
