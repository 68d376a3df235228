"""The newer measurements that ship with the package: their uses, labels and traps."""

from collections import Counter
from datetime import date

import pytest

from measurement_files import FIRST_ROWS as EVIDENCE
from measurement_files import NEWER_ROWS as LEARNT
from penstock.catalog import accelerator_ids, load_measurements, measurement_sources, model_ids
from penstock.catalog.measurement import QUEUED, UNMERGED, Measurement, Use

QUEUES, HELD_OUT = (load_measurements(use=use) for use in ("queued", "held_out"))
NEWER = (*LEARNT, *QUEUES, *HELD_OUT)


def test_predictions_are_learnt_from_the_newer_files() -> None:
    assert set(LEARNT) <= set(load_measurements())


def of(rows: tuple[Measurement, ...], source: str) -> list[Measurement]:
    return [row for row in rows if row.source == source]


def test_every_source_has_the_rows_that_data_md_says() -> None:
    assert Counter(row.source for row in LEARNT) == {
        "rocm-atom-nightly": 1763 - 34 - 15 - 7,
        "rocm-atomesh": 33 - 8,
        "inferencex-cells": 444 - 14,
        "sglang-cookbook": 351 - 242,
        "vllm-recipes": 9 - 2,
    }
    assert Counter(row.source for row in QUEUES) == {"sglang-cookbook": 226, "rocm-atom-nightly": 7}
    assert Counter(row.source for row in HELD_OUT) == {
        "inferencex-experimental": 104,
        "llm-d-blog-2026-08-17": 19,
        "llm-d-matrix": 4,
        "sglang-cookbook": 242 + 17,
        "rocm-atom-nightly": 39,
        "rocm-atomesh": 9,
    }


def test_rows_of_september_are_newer_than_the_fit() -> None:
    fresh = [row for row in HELD_OUT if row.date > date(2026, 9, 1)]
    assert len(fresh) == 65
    assert not {row.id for row in fresh} & {row.id for row in LEARNT}
    pinned = [row for row in fresh if "acceptance_pinned" in row.flags]
    assert len(pinned) == 10
    assert {row.accepted_length for row in pinned} == {2.0, 3.5}
    mesh = [row for row in fresh if row.stack == "atomesh"]
    assert {(row.accelerator, row.scenario, row.tpot_statistic) for row in mesh} == {
        ("mi350x", "disaggregated", "median")
    }


def test_every_id_is_its_own_in_all_uses() -> None:
    ids = [row.id for row in (*EVIDENCE, *NEWER)]
    assert len(set(ids)) == len(ids)


def test_every_row_names_things_the_catalog_knows() -> None:
    assert {row.accelerator for row in NEWER} <= set(accelerator_ids())
    assert {row.model for row in NEWER} <= set(model_ids())
    assert {row.source for row in NEWER} <= set(measurement_sources())


@pytest.mark.parametrize("use", ["evidence", "queued", "held_out"])
def test_one_accelerator_is_read_alone(use: Use) -> None:
    every = load_measurements(use=use)
    assert load_measurements("mi355x", use=use) == tuple(row for row in every if row.accelerator == "mi355x")


def test_a_time_is_a_mean_or_a_median_as_its_source_says() -> None:
    means = {"rocm-atom-nightly", "rocm-atomesh", "vllm-recipes"}
    for row in NEWER:
        said = None if row.source == "llm-d-blog-2026-08-17" else "mean" if row.source in means else "median"
        if row.source == "rocm-atomesh" and row.date == date(2026, 9, 8):
            said = "median"
        assert row.tpot_statistic == (None if row.tpot_s is None else said)
        assert row.ttft_statistic == (None if row.ttft_s is None else said)


def test_a_drafting_row_says_how_many_tokens_it_drafts_unless_its_source_is_silent() -> None:
    silent = {(row.source, row.drafted) for row in NEWER if row.drafted and row.draft_tokens is None}
    assert silent == {("inferencex-cells", "mtp"), ("sglang-cookbook", "dspark")}
    assert not any(row.draft_tokens for row in NEWER if not row.drafted)


def test_an_accepted_length_lies_between_one_and_all_drafts() -> None:
    accepted = [row for row in NEWER if row.accepted_length is not None]
    assert len(accepted) > 100
    for row in accepted:
        assert 1 <= (row.accepted_length or 0) <= 1 + (row.draft_tokens or 0)


def test_atom_lengths_are_what_was_served() -> None:
    # 1,024 and 8,192 are drawn from 80 to 100%; the others are exact.
    assert {row.input_tokens for row in of(LEARNT, "rocm-atom-nightly")} <= {921.6, 7372.8, 1000, 5000, 10000, 2048}


def test_attention_dp_of_atom_splits_the_experts_by_tensor_parallelism() -> None:
    found = {(row.engine, row.tp, row.dp, row.ep) for row in of(LEARNT, "rocm-atom-nightly") if row.dp > 1}
    assert found == {("atom", 1, 8, False), ("sglang-atom", 1, 4, True)}


def test_two_batch_overlap_is_a_label() -> None:
    overlapping = [row for row in (*LEARNT, *QUEUES) if row.overlap]
    assert {(row.overlap, row.model, row.dp, row.drafted) for row in overlapping} == {("tbo", "deepseek-v4-pro", 8, "")}


def test_users_beyond_what_the_server_admits_are_queued() -> None:
    limited = [row for row in (*LEARNT, *QUEUES) if row.max_running == 24 and row.source == "rocm-atom-nightly"]
    assert len(limited) == 15
    assert all((QUEUED in row.flags) == ((row.concurrency or 0) > 24) for row in limited)


def test_atomesh_rows_are_disaggregated_and_the_first_of_mi350x() -> None:
    mesh = of(LEARNT, "rocm-atomesh")
    assert {(row.scenario, row.stack, row.engine) for row in mesh} == {("disaggregated", "atomesh", "atom")}
    assert all(row.prefill is not None and row.devices == 2 * row.tp for row in mesh)
    assert Counter(row.accelerator for row in mesh) == {"mi350x": 16, "mi355x": 9}
    assert not any(row.accelerator == "mi350x" for row in EVIDENCE)
    # Those of 2026-07-10 answered wrongly and are left out.
    assert {row.date for row in mesh if row.accelerator == "mi350x"} == {date(2026, 8, 7), date(2026, 8, 8)}


def test_a_broken_drafter_is_flagged() -> None:
    broken = [row for row in LEARNT if "drafter_broken" in row.flags]
    assert len(broken) == 54
    assert {row.model for row in broken} == {"deepseek-r1"}


def test_released_cells_name_the_dated_run_that_is_evidence() -> None:
    released, runs = of(LEARNT, "inferencex-cells"), {row.id: row for row in EVIDENCE}
    twins = [row for row in released if row.twin]
    assert len(twins) == 124
    for row in twins:
        run = runs[row.twin]
        assert (row.model, row.weights, row.engine, row.concurrency) == (
            run.model,
            run.weights,
            run.engine,
            run.concurrency,
        )
    configurations = {row.ref for row in EVIDENCE if row.source == "inferencex-cells"}
    assert not configurations & {row.ref for row in released}


def test_configurations_that_share_a_description_are_flagged() -> None:
    # 1696 is described as 1698 is, and took up to 48% longer.
    twice = [row for row in LEARNT if "described_twice" in row.flags]
    assert {row.ref for row in twice} == {"1696"}
    other = {row.id: row for row in EVIDENCE}
    longer = [(row.tpot_s or 0) / (other[row.id.replace("1696", "1698")].tpot_s or 1) for row in twice]
    assert max(longer) > 1.4
    assert min(longer) > 1.05


def test_queued_rows_are_no_evidence_of_a_step() -> None:
    assert not any(QUEUED in row.flags for row in LEARNT)
    assert all(QUEUED in row.flags and not row.plain for row in QUEUES)
    few = [row for row in of(QUEUES, "sglang-cookbook") if (row.concurrency or 0) < 1024]
    assert all((row.ttft_s or 0) > min(10, 0.5 * row.output_tokens * (row.tpot_s or 0)) for row in few)


def test_the_cookbook_states_limits_of_its_server_and_says_what_was_never_merged() -> None:
    cookbook = [row for row in NEWER if row.source == "sglang-cookbook"]
    assert {row.engine for row in cookbook} == {"sglang"}
    assert sum(row.max_running is not None for row in cookbook) > 80
    assert sum(row.chunk_tokens is not None for row in cookbook) > 100
    assert sum(UNMERGED in row.flags for row in cookbook) == 242 + 168


def test_no_prediction_is_learnt_from_figures_that_were_never_accepted() -> None:
    assert not any(UNMERGED in row.flags for row in LEARNT)
    before = [row for row in of(HELD_OUT, "sglang-cookbook") if row.date < date(2026, 9, 1)]
    assert all(UNMERGED in row.flags for row in before)


def test_output_rates_of_the_cookbook_agree_with_its_times() -> None:
    # The rate is in + out in some files and output only in others; as read, it is output of all devices.
    for row in (*of(LEARNT, "sglang-cookbook"), *of(HELD_OUT, "sglang-cookbook")):
        if row.output_tokens_per_s and row.tpot_s and row.ttft_s and row.concurrency:
            latency_s = row.ttft_s + row.tpot_s * (row.output_tokens - 1)
            assert 0.6 < row.output_tokens_per_s / (row.concurrency * row.output_tokens / latency_s) < 1.34


def test_long_prompts_wait_for_prompts() -> None:
    long = of(HELD_OUT, "inferencex-experimental")
    assert {row.accelerator for row in long} == {"h200_sxm"}
    assert all(row.requests == 10 * (row.concurrency or 0) for row in long)
    assert Counter(row.flag for row in long) == {"": 59, "release_week_software": 45}
    glm = {row.concurrency: row for row in long if row.model == "glm-5" and row.input_tokens == 16384}
    assert (glm[64].ttft_s or 0) > 10 * (glm[16].ttft_s or 0)
    assert (glm[64].tpot_s or 0) < 1.1 * (glm[16].tpot_s or 0)


def test_unloaded_prompts_have_one_time_to_first_token_and_nothing_else() -> None:
    prefill = [row for row in HELD_OUT if row.scenario == "prefill"]
    assert {(row.concurrency, row.output_tokens, row.tpot_s) for row in prefill} == {(1, 1, None)}
    assert not any(row.plain for row in prefill)
    assert sum("beyond_native_context" in row.flags for row in prefill) == 14
    # Months are upper bounds of a day.
    assert {(row.date, row.dated) for row in of(HELD_OUT, "llm-d-matrix")} == {(date(2026, 8, 31), "up_to")}


def test_no_amd_row_is_borrowed_from_h100() -> None:
    assert not any(row.accelerator.startswith("mi") for row in HELD_OUT if row.scenario == "prefill")


def test_the_ladder_of_a_dense_model_on_mi300x_is_whole() -> None:
    ladder = [row for row in LEARNT if row.model == "mistral-medium-3.5-128b"]
    assert sorted(row.tp for row in ladder) == [1, 2, 4, 8]
    assert {(row.flag, row.requests) for row in ladder} == {("weights_inferred", 100)}
    by_tp = sorted(ladder, key=lambda row: row.tp)
    assert [row.tpot_s for row in by_tp] == sorted((row.tpot_s or 0 for row in ladder), reverse=True)
