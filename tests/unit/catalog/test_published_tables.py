"""Tables that ship next to the measurements: acceptance lengths, MLPerf results and fleets, with their traps."""

from collections import Counter, defaultdict
from datetime import date
from statistics import median
from typing import get_args

import pytest

from penstock.catalog import (
    accelerator_ids,
    load_acceptance_lengths,
    load_energy_runs,
    load_fleet_points,
    load_measurements,
    load_mlperf_results,
    measurement_sources,
)
from penstock.catalog._csv_columns import read_table
from penstock.catalog.measurement import Use
from penstock.catalog.published_tables import AcceptanceLength
from penstock.errors import CatalogError

LENGTHS, RESULTS, POINTS = load_acceptance_lengths(), load_mlperf_results(), load_fleet_points()
ENERGY = load_energy_runs()


def test_every_source_is_used_and_every_row_has_one() -> None:
    used = {row.source for use in get_args(Use) for row in load_measurements(use=use)}
    used |= {row.source for row in LENGTHS} | {row.source for row in POINTS} | {row.source for row in ENERGY}
    used |= {"mlperf-v6.1"}
    assert used == set(measurement_sources())


def test_every_table_is_whole() -> None:
    assert (len(LENGTHS), len(RESULTS), len(POINTS)) == (203, 382 - 10 - 25 - 2 - 2 - 47, 116)
    for table in (LENGTHS, RESULTS, POINTS):
        assert len({row.id for row in table}) == len(table)


def test_energy_runs_add_up() -> None:
    assert len(ENERGY) == 280
    assert len({row.id for row in ENERGY}) == 280
    for row in ENERGY:
        assert row.concurrency <= row.max_running
        assert row.step_s == pytest.approx(row.concurrency / row.output_tokens_per_s, rel=0.01)
        assert row.joules_per_output_token == pytest.approx(row.watts / row.output_tokens_per_s, rel=0.01)
        assert row.date == date(2026, 2, 27)
    models = {row.model for row in ENERGY}
    assert len(models - {""}) == 12
    assert {row.repo for row in ENERGY if not row.model} == {
        "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8",
        "nvidia/NVIDIA-Nemotron-Nano-9B-v2",
    }


def test_an_accepted_length_counts_the_models_own_token() -> None:
    for row in LENGTHS:
        assert 1 < row.accepted_length <= 1 + row.draft_tokens
        if row.min_accepted_length is not None and row.max_accepted_length is not None:
            assert row.min_accepted_length <= row.accepted_length <= row.max_accepted_length


def test_no_accepted_length_is_of_a_broken_drafter() -> None:
    assert min(row.accepted_length for row in LENGTHS) > 1.05


def test_the_workload_decides_how_much_is_accepted() -> None:
    # DeepSeek-V4-Pro with three drafted tokens: 2.49 thinking and 2.97 not thinking on code, 2.94 on GSM8K.
    same = [row for row in LENGTHS if (row.model, row.drafted, row.draft_tokens) == ("deepseek-v4-pro", "mtp", 3)]
    code = {row.thinking: row.accepted_length for row in same if row.workload == "speed_bench_coding"}
    assert (code[True], code[False]) == (2.49, 2.97)
    assert median(row.accepted_length for row in same if row.workload == "gsm8k") == pytest.approx(2.94, abs=0.03)


def test_each_golden_curve_has_one_to_eight_drafted_tokens() -> None:
    curves = defaultdict(list)
    for row in LENGTHS:
        if row.source == "inferencex-golden" and row.model != "qwen3.8-27b":
            curves[row.model, row.drafted, row.ref, row.thinking].append(row.draft_tokens)
    assert len(curves) == 14
    assert all(sorted(drafted) == list(range(1, 9)) for drafted in curves.values())


def test_mlperf_states_no_input_length_and_is_no_row() -> None:
    assert not any(hasattr(row, "input_tokens") for row in RESULTS)
    assert not any(row.source.startswith("mlperf") for row in load_measurements())
    assert {row.accelerator for row in RESULTS} <= set(accelerator_ids())


def test_mlperf_results_of_one_device_and_model_agree_within_a_third() -> None:
    offline = defaultdict(list)
    for row in RESULTS:
        if row.scenario == "offline" and not row.flag and row.devices == 8:
            offline[row.model, row.weights, row.accelerator].append(row.output_tokens_per_s_per_device)
    assert len(offline) > 15
    assert all(max(rates) < 1.34 * min(rates) for rates in offline.values())


def test_mlperf_latencies_meet_their_limits_and_each_other() -> None:
    timed = [row for row in RESULTS if row.ttft_s is not None]
    assert len(timed) == 31
    for row in timed:
        assert (row.tpot_p99_s or 0) <= (row.tpot_p99_limit_s or 1) <= 0.2
        assert (row.ttft_s or 0) < (row.ttft_p99_s or 0) <= (row.ttft_p99_limit_s or 9)
        # Users in flight are the rate times the time of a request.
        request_s = (row.ttft_s or 0) + (row.tpot_s or 0) * ((row.output_tokens or 0) - 1)
        in_flight = row.output_tokens_per_s / (row.output_tokens or 1) * request_s
        assert row.users == pytest.approx(in_flight, rel=0.03)


def test_mlperf_weights_that_are_doubtful_are_flagged() -> None:
    assert Counter(row.flag for row in RESULTS if row.flag) == {"weights_as_filed_doubtful": 28}
    assert {row.model for row in RESULTS if row.flag} == {"gpt-oss-120b", "llama-3.1-8b"}


def test_fleet_rates_count_the_start_and_the_drain_of_a_stage() -> None:
    for row in POINTS:
        share = row.output_tokens_per_s / (row.offered_requests_per_s * row.output_tokens)
        assert share < (0.8 if row.offered_requests_per_s == 3 else 1)


def test_a_fleet_that_its_router_limits_is_flagged() -> None:
    bound = [row for row in POINTS if "picker_bound" in row.flag]
    assert {row.pools for row in bound} == {"h100_nvl x4 + mi325x x8 + gaudi3 x8"}
    assert min(row.offered_requests_per_s for row in bound) == 25


def test_what_is_wrong_in_a_table_is_one_line_with_file_line_and_column() -> None:
    header = "id,source,model,weights,engine,date,drafted,draft_tokens,workload,accepted_length"
    line = "a,b,m,fp8,vllm,2026-01-02,mtp,3,gsm8k,2.5"
    (row,) = read_table(AcceptanceLength, f"{header}\n{line}\n", "table.csv")
    assert (row.draft_tokens, row.accepted_length, row.thinking, row.runs) == (3, 2.5, None, 1)
    for wrong, message in (
        (line.replace("mtp", "guess"), "table.csv: line 2: drafted: 'guess' is not one of mtp, eagle3, dspark"),
        (line.replace(",3,", ",none,"), "table.csv: line 2: draft_tokens: 'none' must be a whole number above zero"),
    ):
        with pytest.raises(CatalogError) as failure:
            read_table(AcceptanceLength, f"{header}\n{wrong}\n", "table.csv")
        assert str(failure.value) == message
    assert read_table(AcceptanceLength, f"{header}\n", "table.csv") == ()
