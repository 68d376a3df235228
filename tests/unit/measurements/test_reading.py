"""What the raw files say, and what is made of it."""

from dataclasses import replace
from datetime import date

import pytest
from measurements.aiconfigurator import Sample
from measurements.cells import with_twins
from measurements.filters import WHY, flags_of, reason_to_leave
from measurements.ledger import Ledger
from measurements.names import weight_format
from measurements.physics import Physics
from measurements.split import Split, inferencex_split, nodes_of
from measurements.write import csv_files, file_of

from penstock.catalog._measurement_rows import read_rows
from penstock.catalog.measurement import Measurement, Side

RUN = Measurement(
    id="a",
    source="inferencex",
    ref="1",
    scenario="online",
    model="llama-3.3-70b",
    weights="fp8",
    accelerator="mi300x",
    engine="vllm",
    date=date(2026, 3, 1),
    tp=8,
    input_tokens=921.6,
    output_tokens=921.6,
    concurrency=64.0,
    tpot_s=0.02,
    ttft_s=0.2,
)


def sample(note: str, tp: str = "1", engine: str = "trtllm", **more: str) -> dict[str, str]:
    named = {"source_id": "inferencex-via-aiconfigurator", "notes": "run; id=some_run_7", "accelerator": "b200_sxm"}
    dated = {"weights_precision": "fp8", "date": "2026-02-03", "tpot_ms": "9.5", "model": "deepseek-r1"}
    return {**named, **dated, "parallel_note": note, "tp": tp, "engine": engine, **more}


@pytest.mark.parametrize(
    ("raw", "split"),
    [
        (sample("attention_dp=1 moe_tp=8 moe_ep=1", "8"), Split(ranks=8)),
        (sample("attention_dp=1 moe_tp=8 moe_ep=8", "64"), Split(ranks=8, expert_ranks=8)),
        (sample("attention_dp=1 moe_tp=1 moe_ep=4", "4"), Split(ranks=4, expert_ranks=4)),
        (sample("attention_dp=64 moe_tp=8 moe_ep=8"), Split(ranks=8, expert_ranks=8, attention_dp=True)),
        (sample("attention_dp=8 moe_tp=1 moe_ep=8"), Split(ranks=8, expert_ranks=8, attention_dp=True)),
        (sample("attention_dp=4 moe_tp=1 moe_ep=16", "4", "vllm"), Split(ranks=4, expert_ranks=4)),
        (sample("attention_dp=1 moe_tp=72 moe_ep=1", "72"), None),
    ],
)
def test_ranks_that_were_counted_twice_are_counted_once(raw: dict[str, str], split: Split | None) -> None:
    assert Sample([], set()).split_of(raw) == split


def test_a_cited_configuration_says_whether_vllm_replicates_attention() -> None:
    raw = sample("attention_dp=2 moe_tp=1 moe_ep=4", "2", "vllm", notes="run; id=minimax_cfg727")
    assert Sample([], {"727"}).split_of(raw) == Split(ranks=2, expert_ranks=2, attention_dp=True)
    assert Sample([], {"726"}).split_of(raw) == Split(ranks=2, expert_ranks=2)


def test_days_on_which_every_known_run_drafts_are_drafted_days() -> None:
    note = "attention_dp=1 moe_tp=8 moe_ep=1"
    assert Sample([], set()).drafts(sample(note, "8", date="2026-02-06"))
    assert not Sample([], set()).drafts(sample(note, "8", date="2026-02-03"))


def test_a_run_that_is_also_there_under_a_plain_configuration_does_not_draft() -> None:
    note = "attention_dp=1 moe_tp=8 moe_ep=1"
    known = sample(note, "8", "sglang", date="2026-03-25", notes="run; id=dsr1_cfg87", tpot_ms="8.76")
    file = Sample([known], set())
    assert not file.drafts(sample(note, "8", "sglang", date="2026-03-25", tpot_ms="8.76"))
    assert file.drafts(sample(note, "8", "sglang", date="2026-03-25", tpot_ms="6.7032"))


def test_attention_data_parallelism_replicates_attention_over_all_ranks() -> None:
    split = inferencex_split("8", "8", "1")
    assert (split.tp, split.dp, split.ep, split.partial) == (1, 8, True, False)
    assert inferencex_split("1", "16", "True").side(2) == Side(workers=2, tp=1, dp=16, ep=True)
    assert inferencex_split("8", "2", "0").partial


def test_a_tray_of_grace_blackwell_has_four_devices() -> None:
    assert nodes_of("gb200", 36, several=True) == 36 // 4
    assert nodes_of("mi355x", 24, several=True) == 24 // 8
    assert nodes_of("b200_sxm", 16, several=False) == 1


def test_four_bits_are_those_of_the_vendor_unless_the_model_has_its_own() -> None:
    assert weight_format("fp4", "deepseek-r1", "b200_sxm") == "nvfp4"
    assert weight_format("fp4", "deepseek-r1", "mi355x") == "mxfp4"
    assert weight_format("fp4", "gpt-oss-120b", "b200_sxm") == "mxfp4"


def test_what_a_flag_says_in_brackets_is_not_a_flag() -> None:
    raw = {"flag": "gpu_label_ambiguous(VRAM 252; MI350X/MI355X runner);engine_with_ATOM_model_plugin"}
    assert flags_of(raw) == ["gpu_label_ambiguous", "engine_with_ATOM_model_plugin"]


def test_the_first_filter_that_fits_names_the_row() -> None:
    raw = {"source_id": "mlperf-v6.0", "flag": "interpolated"}
    assert reason_to_leave(raw) == "mlperf"
    assert "mlperf" in WHY


def test_the_twin_of_a_cell_is_the_nearest_run_of_the_same_setup() -> None:
    far, near = replace(RUN, id="far", tpot_s=0.03), replace(RUN, id="near", tpot_s=0.021)
    other = replace(RUN, id="other", drafted="mtp")
    cell, alone = replace(RUN, id="cell", dated="up_to"), replace(RUN, id="alone", dated="up_to", concurrency=128.0)
    assert [row.twin for row in with_twins([cell, alone], [far, near, other])] == ["near", ""]


def test_what_light_cannot_do_is_quarantined() -> None:
    # 70 GB of FP8 weights over 8 x 5.3 TB/s take 1.7 ms; nothing does it in 1 ms.
    ledger = Ledger()
    kept = list(Physics().passed([RUN, replace(RUN, id="b", tpot_s=0.001)], ledger))
    assert [row.id for row in kept] == ["a"]
    assert [(entry.id, entry.filter) for entry in ledger.left] == [("b", "faster_than_light")]


def test_a_draft_may_be_faster_than_one_token_a_step() -> None:
    quick = replace(RUN, tpot_s=0.0015, concurrency=1.0)
    assert Physics().share_of_light(quick) > 1
    assert Physics().share_of_light(replace(quick, drafted="mtp")) == pytest.approx(Physics().share_of_light(quick) / 4)


def test_seven_drafts_may_yield_eight_tokens_a_step() -> None:
    quick = replace(RUN, tpot_s=0.0015, concurrency=1.0)
    drafting = replace(quick, drafted="dspark", draft_tokens=7)
    assert Physics().share_of_light(drafting) == pytest.approx(Physics().share_of_light(quick) / 8)


def test_a_load_that_waited_in_a_queue_is_not_the_load_that_ran() -> None:
    # 921.6 tokens at 20 ms take 18.4 s; the first one took 30.
    ledger = Ledger()
    assert not list(Physics().passed([replace(RUN, ttft_s=30.0)], ledger))
    assert [entry.filter for entry in ledger.left] == ["queued"]


def test_a_queue_that_is_kept_is_flagged_and_not_held_against_the_roofline() -> None:
    ledger = Ledger()
    limited = replace(RUN, id="b", max_running=24, tpot_s=0.0001)
    kept = list(
        Physics().passed([RUN, limited, replace(RUN, id="c", flag="unmerged", ttft_s=30.0)], ledger, with_queued=True)
    )
    assert [row.flag for row in kept] == ["", "queued", "unmerged;queued"]
    assert not ledger.left


def test_an_engine_that_cannot_hold_its_weights_is_not_that_engine() -> None:
    ledger = Ledger()
    one = replace(RUN, model="deepseek-r1", tp=8, prefill=Side(workers=4), scenario="disaggregated")
    assert not list(Physics().passed([one], ledger))
    assert [entry.filter for entry in ledger.left] == ["does_not_fit"]


def test_what_is_written_is_read_back() -> None:
    rows = [
        replace(RUN, id="b"),
        replace(RUN, id="c", prefill=Side(workers=2, dp=4, ep=True), flag="gpu_unnamed"),
    ]
    ((name, text),) = csv_files({file_of(RUN.source): rows}).items()
    assert name == "inferencex_runs.csv"
    assert "joules_per_output_token" not in text
    assert {row.id: row for row in read_rows(text, name)} == {row.id: row for row in rows}
