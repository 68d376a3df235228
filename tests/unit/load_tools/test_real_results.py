"""Result files of seven load tools say what the endpoint that they measured sent."""

import gzip
import json
from pathlib import Path

import pytest

from load_results import CLOSED_LOOPS, FOLDER, sample_run
from penstock.load_tools.load_run import CountedBy
from penstock.load_tools.result_files import read_runs
from penstock.load_tools.usable_runs import refusals

_SENT = {
    "vllm": "vllm-{}",
    "aiperf": "aiperf-{}",
    "guidellm": "guide-{}",
    "inference-perf": "ip-{}",
    "evalscope": "es-{}",
}
"""Names under which the emulator recorded what it sent to each tool. SGLang's record has its warm-up request inside."""


@pytest.mark.parametrize("load", ["c4", "c16", "r3"])
@pytest.mark.parametrize("tool", _SENT)
def test_times_rates_and_lengths_are_those_that_were_sent(shared: Path, tool: str, load: str) -> None:
    sent = json.loads((shared / FOLDER / "bench-ground/truth.json").read_text())[_SENT[tool].format(load)]
    run = sample_run(shared, CLOSED_LOOPS[tool].replace("c16", load))
    assert run.completed == 60
    assert run.tpot.mean_s * 1e3 == pytest.approx(sent["sent_tpot"], rel=0.006)
    assert run.ttft.mean_s * 1e3 == pytest.approx(sent["sent_ttft"], abs=20)
    assert run.output_tokens_per_s == pytest.approx(sent["tok_s"], rel=0.013)
    assert run.input_length.mean == pytest.approx(sent["inp"][1], abs=1)
    assert run.input_length.counted_by is CountedBy.SERVER
    assert (run.users, run.asked_rate_per_s) == ((int(load[1:]), None) if load != "r3" else (None, 3.0))
    assert not refusals(run)


@pytest.mark.parametrize(("name", "tpot_ms"), [("sglang", 18.72), ("genai-bench", 18.7)])
def test_the_other_tools_state_the_tpot_that_was_sent(shared: Path, name: str, tpot_ms: float) -> None:
    run = sample_run(shared, CLOSED_LOOPS[name])
    assert run.tpot.mean_s * 1e3 == pytest.approx(tpot_ms, rel=0.012)


def test_the_tpot_of_guidellm_leaves_the_first_token_out(shared: Path) -> None:
    """guidellm's own `time_per_output_token_ms` is the latency divided by all tokens: 4.51 ms instead of 3.17 ms."""
    text = gzip.decompress((shared / FOLDER / "guidellm-0.8.1.json.gz").read_bytes()).decode()
    run = read_runs(text, "guidellm.json")[0]
    assert run.tpot.mean_s * 1e3 == pytest.approx(3.17, rel=0.01)


def test_waiting_for_a_turn_in_a_closed_loop_is_not_lateness(shared: Path) -> None:
    assert sample_run(shared, "inference-perf-0.7.0/c16").lateness_s is None
    late_s = sample_run(shared, "inference-perf-0.7.0/r3").lateness_s
    assert late_s is not None
    assert 0 < late_s < 0.001


def test_a_run_with_shorter_answers_than_asked_is_refused(shared: Path) -> None:
    (reason,) = refusals(sample_run(shared, "genai-bench-0.0.5/c4"))
    assert reason.startswith("Answers had 92 tokens, not the 128 that were asked for")


def test_lengths_that_only_the_client_states_are_marked(shared: Path) -> None:
    run = sample_run(shared, "sglang-bench-0.5.23/c16.jsonl")
    assert run.input_length.counted_by is CountedBy.ASKED
    assert any("asked for" in caution for caution in run.cautions)


def test_the_prompt_tokens_of_aiperf_are_the_servers(shared: Path) -> None:
    run = sample_run(shared, "aiperf-0.13.0/c16.json")
    assert (run.input_length.mean, run.input_length.asked) == (518, 1024)


def test_listed_starts_are_relative_and_in_order(shared: Path) -> None:
    run = sample_run(shared, "vllm-bench-0.32.0.json")
    starts = [record.start_s for record in run.records]
    assert run.has_all_records
    assert starts[0] == 0
    assert starts == sorted(starts)
    assert run.arrivals_per_s == pytest.approx(40, rel=0.15)
    tpots = [record.tpot_s for record in run.records if record.tpot_s is not None]
    assert sum(tpots) / len(tpots) == pytest.approx(run.tpot.mean_s, rel=0.01)
