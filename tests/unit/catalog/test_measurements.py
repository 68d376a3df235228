"""The shipped measurements, and the traps of their sources as tests."""

from collections import Counter
from datetime import date
from time import process_time

import pytest

from measurement_files import FIRST_ROWS as ROWS
from penstock.catalog import accelerator_ids, load_measurements, measurement_sources, model_ids
from penstock.catalog.measurement import MeasurementSource

BY_ID = {row.id: row for row in ROWS}
TENSORRT_LLM = {
    "0.6.1": 25,
    "0.8.0": 63,
    "0.9.0": 79,
    "0.11.0": 187,
    "0.12.0": 289,
    "0.14.0": 622,
    "0.15.0": 547,
    "0.17": 373,
    "0.19": 184,
    "0.20": 180,
    "0.21": 131,
    "1.0": 232,
    "1.1": 70 + 69,  # the 69 rows with attention data parallelism
}


def test_every_source_has_the_rows_that_data_md_says() -> None:
    assert Counter(row.source for row in ROWS) == {
        "inferencex": 1770,
        "inferencex-cells": 7355 - 170,
        "inferencex-via-aiconfigurator": 1915,
        "inferencex-blog": 61,
        "aiconfigurator-silicon": 430,
        "rocm-atom-nightly": 9787,
        "rocm-vllm-devdocker": 360,
        "amd-perf-page": 16,
        "dstack-h100-mi300x": 74,
        "dstack-pd-ratio": 56,
        "github-pr": 14,
        **{f"trtllm-{version}": rows for version, rows in TENSORRT_LLM.items()},
    }


def test_every_row_has_an_id_of_its_own() -> None:
    assert len(BY_ID) == len(ROWS)


def test_every_row_names_things_the_catalog_knows() -> None:
    assert {row.accelerator for row in ROWS} <= set(accelerator_ids())
    assert {row.model for row in ROWS} <= set(model_ids())
    assert {row.source for row in ROWS} <= set(measurement_sources())
    assert {row.engine for row in ROWS} == {"vllm", "sglang", "trtllm", "atom", "vllm-atom", "sglang-atom"}


def test_all_rows_are_read_in_a_moment() -> None:
    load_measurements.cache_clear()
    start_s = process_time()
    load_measurements()
    assert process_time() - start_s < 1.5


def test_inferencex_lengths_are_what_was_served_not_what_was_asked() -> None:
    # Lengths are drawn from 80 to 100% of the nominal 1,024 and 8,192, so they average nine tenths.
    drawn = {"inferencex", "inferencex-cells", "inferencex-via-aiconfigurator", "inferencex-blog"}
    lengths = {row.input_tokens for row in ROWS if row.source in drawn}
    assert lengths == {0.9 * 1024, 0.9 * 8192}


def test_one_engine_has_as_many_devices_as_ranks_and_never_more_than_a_machine() -> None:
    # Rows with tp 8 and ep 8 were filed as 64 devices by two sources; they ran on eight.
    engines = [row for row in ROWS if row.scenario != "disaggregated"]
    assert max(row.devices for row in engines) == 8
    assert {(row.prefill, row.decode_workers, row.nodes, row.stack) for row in engines} == {(None, 1, 1, "")}


def test_a_disaggregated_row_states_both_sides() -> None:
    for row in ROWS:
        if row.scenario == "disaggregated":
            assert row.prefill is not None
            assert row.devices == row.prefill.devices + row.decode_workers * row.tp * row.dp
            assert row.prefill.devices >= 1
            assert row.nodes * 8 >= row.devices


def test_attention_data_parallelism_is_on_whole_engines() -> None:
    replicated = [row for row in ROWS if row.dp > 1]
    assert len(replicated) >= 1000
    assert {row.tp for row in replicated} == {1}


def test_latency_rows_state_their_load_and_offline_ones_their_throughput() -> None:
    for row in ROWS:
        if row.scenario in {"online", "disaggregated"}:
            assert row.tpot_s is not None
            assert row.concurrency is not None
            assert 1e-3 < row.tpot_s < 3
        else:
            assert row.output_tokens_per_s is not None


def test_a_median_over_months_has_no_day() -> None:
    cells = [row for row in ROWS if row.source == "inferencex-cells"]
    assert {(row.dated, row.date) for row in cells} == {("up_to", date(2026, 7, 19))}
    # The day of aiconfigurator's file is not the day of its runs.
    others = {(row.source, row.date) for row in ROWS if row.dated == "up_to"} - {
        (row.source, row.date) for row in cells
    }
    assert others == {("aiconfigurator-silicon", date(2026, 8, 21))}


def test_a_time_is_a_mean_or_a_median_as_its_source_says() -> None:
    said = {
        "inferencex": {"median"},
        "inferencex-cells": {"median"},
        "inferencex-via-aiconfigurator": {"mean"},
        "rocm-atom-nightly": {"mean"},
    }
    for source in measurement_sources():
        times = [row for row in ROWS if row.source == source and row.tpot_s is not None]
        assert {row.tpot_statistic for row in times} <= said.get(source, {None})
    assert all(row.ttft_statistic == row.tpot_statistic for row in ROWS if row.ttft_s is not None)
    assert {row.ttft_statistic for row in ROWS if row.ttft_s is None} == {None}


def test_a_twin_is_a_dated_run_of_the_same_setup_and_load() -> None:
    twins = [row for row in ROWS if row.twin]
    assert {row.source for row in twins} == {"inferencex-cells"}
    for row in twins:
        run = BY_ID[row.twin]
        assert run.dated == "day"
        same = (
            "model",
            "weights",
            "accelerator",
            "engine",
            "stack",
            "drafted",
            "tp",
            "dp",
            "ep",
            "prefill",
            "concurrency",
        )
        assert [getattr(row, name) for name in same] == [getattr(run, name) for name in same]
        assert (row.input_tokens, row.output_tokens) == (run.input_tokens, run.output_tokens)


def test_energy_is_on_cells_and_twins_keep_theirs() -> None:
    measured = [row for row in ROWS if row.joules_per_output_token is not None]
    assert {row.source for row in measured} == {"inferencex-cells"}
    assert sum(bool(row.twin) for row in measured) >= 300


def test_only_plain_rows_of_one_engine_are_plain() -> None:
    plain = [row for row in ROWS if row.plain]
    assert {row.scenario for row in plain} == {"online", "static_batch", "saturated"}
    assert {(row.drafted, row.twin) for row in plain} == {("", "")}
    assert len(plain) < len(ROWS)


@pytest.mark.parametrize("source", measurement_sources().values(), ids=lambda source: source.id)
def test_every_source_says_where_and_under_which_terms(source: MeasurementSource) -> None:
    assert source.url.startswith("https://")
    assert source.terms


def test_inferencex_is_credited_by_its_name() -> None:
    titles = [source.title for ident, source in measurement_sources().items() if ident.startswith("inferencex")]
    assert all(title.startswith("SemiAnalysis InferenceX") for title in titles)
