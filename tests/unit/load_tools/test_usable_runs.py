"""A disturbed run is refused with its reason, and a report that we write is read as the same run."""

import json
from dataclasses import replace
from pathlib import Path
from shutil import copy, copytree

import pytest
import yaml
from click.testing import CliRunner

from load_results import CLOSED_LOOPS, FOLDER, sample_run
from penstock.api.results import load_runs, results
from penstock.cli.root import app
from penstock.errors import UnreadableFile
from penstock.load_tools.benchmark_report import benchmark_report, read_benchmark_report
from penstock.load_tools.load_run import CountedBy, LatencyStatistics, LoadRun, TokenLength
from penstock.load_tools.usable_runs import refusals
from penstock.reading.json_tree import JsonTree

GOOD = LoadRun(
    tool="aiperf",
    where="run.json",
    duration_s=10,
    completed=100,
    failed=0,
    asked_requests=100,
    asked_rate_per_s=10,
    input_length=TokenLength(mean=512, counted_by=CountedBy.SERVER, asked=512),
    output_length=TokenLength(mean=128, counted_by=CountedBy.SERVER, asked=128),
    ttft=LatencyStatistics(mean_s=0.2, p50_s=0.15, p99_s=0.9),
    tpot=LatencyStatistics(mean_s=0.02),
    output_tokens_per_s=1280,
)


def test_an_undisturbed_run_is_used() -> None:
    assert refusals(GOOD) == ()


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (replace(GOOD, completed=0, failed=100), "No request was answered."),
        (replace(GOOD, completed=98, failed=2), "2 of 100 requests failed"),
        (replace(GOOD, completed=60, duration_s=6), "The run ended early after 60 of 100 requests"),
        (replace(GOOD, stopped_early=True), "The run ended early"),
        (replace(GOOD, lateness_s=0.02), "sent requests 20 ms late on average, at a gap of 100 ms"),
        (replace(GOOD, cached_prompt_fraction=0.95), "95% of the prompt tokens came from the prefix cache"),
        (
            replace(GOOD, output_length=replace(GOOD.output_length, mean=90), output_tokens_per_s=900),
            "Answers had 90 tokens, not the 128",
        ),
        (replace(GOOD, duration_s=20, output_tokens_per_s=640), "Requests arrived at 5 per second, not at the 10"),
        (replace(GOOD, tpot=LatencyStatistics(mean_s=0)), "The TPOT of 0 ms is below that of any server"),
        (replace(GOOD, tpot=LatencyStatistics(mean_s=2e-5)), "check the unit in the file"),
        (replace(GOOD, ttft=LatencyStatistics(mean_s=-0.002)), "a TTFT of -2 ms, which no server has"),
        (
            replace(GOOD, output_length=TokenLength(mean=0, counted_by=CountedBy.SERVER), output_tokens_per_s=0),
            "Answers had 0 tokens",
        ),
        (replace(GOOD, request_latency=LatencyStatistics(mean_s=27)), "TTFT and 128 tokens take 2.74 s"),
        (replace(GOOD, output_tokens_per_s=12800), "its tokens and its duration give 1,280"),
        (replace(GOOD, users=4, asked_rate_per_s=None), "4 users had 27.4 requests in flight"),
        (replace(GOOD, users=100, asked_rate_per_s=None), "100 users had 27.4 requests in flight"),
        (replace(GOOD, most_in_flight=40), "At most 40 requests were in flight (27.4 on average)"),
        (
            replace(
                GOOD, completed=1, asked_requests=1, duration_s=2.74, output_tokens_per_s=46.7, asked_rate_per_s=None
            ),
            "Only 1 requests were answered",
        ),
    ],
)
def test_a_disturbed_run_is_refused(run: LoadRun, reason: str) -> None:
    (only,) = refusals(run)
    assert reason in only


def test_a_limit_far_above_the_load_delays_no_request() -> None:
    assert refusals(replace(GOOD, most_in_flight=100)) == ()


def test_a_closed_loop_has_no_more_users_than_requests(shared: Path, tmp_path: Path) -> None:
    document = json.loads((shared / FOLDER / "vllm-bench-0.33.0/c16.json").read_text())
    path = tmp_path / "c1000.json"
    path.write_text(json.dumps({**document, "max_concurrency": 1000}))
    (run,) = load_runs(path)
    assert run.users == run.completed == 60
    assert "60 users had" in refusals(run)[0]


def test_a_rate_with_a_limit_is_an_open_loop_with_that_limit(shared: Path, tmp_path: Path) -> None:
    document = json.loads((shared / FOLDER / "vllm-bench-0.33.0/c16.json").read_text())
    unlisted = {key: value for key, value in document.items() if key != "start_times"}
    path = tmp_path / "capped.json"
    path.write_text(json.dumps({**unlisted, "request_rate": 8.0}))
    (run,) = load_runs(path)
    assert (run.users, run.asked_rate_per_s, run.most_in_flight) == (None, 8.0, 16)
    assert any("At most 16 requests were in flight" in reason for reason in refusals(run))


def test_cache_hits_are_accepted_where_prefixes_are_shared_on_purpose() -> None:
    assert refusals(replace(GOOD, cached_prompt_fraction=0.95), cache_is_stated=True) == ()


def test_a_written_report_is_read_as_the_same_run() -> None:
    good = replace(GOOD, model="llama-3.1-70b", engine="vllm", engine_version="0.32.0", accelerator="H100", devices=2)
    report = yaml.safe_load(yaml.safe_dump(benchmark_report(good, "1")))
    read = read_benchmark_report(JsonTree(report, "report.yaml"))
    for name in (
        "duration_s",
        "completed",
        "failed",
        "asked_rate_per_s",
        "ttft",
        "tpot",
        "output_tokens_per_s",
        "tool",
        "model",
        "engine",
        "engine_version",
        "accelerator",
        "devices",
    ):
        assert getattr(read, name) == getattr(good, name)
    unknown = read_benchmark_report(JsonTree(benchmark_report(GOOD, "1"), "report.yaml"))
    assert (unknown.model, unknown.engine, unknown.accelerator, unknown.devices) == (None, None, None, None)


def test_a_report_of_guidellm_gives_the_latency_between_tokens() -> None:
    report = benchmark_report(replace(GOOD, tool="guidellm"), "1")
    latency = report["results"]["request_performance"]["aggregate"]["latency"]
    latency["inter_token_latency"] = {"units": "ms/token", "mean": 17.3}
    assert read_benchmark_report(JsonTree(report, "report.yaml")).tpot.mean_s == pytest.approx(0.0173)


def test_the_command_prints_reads_and_writes_reports(shared: Path, tmp_path: Path) -> None:
    files = [str(shared / FOLDER / name) for name in CLOSED_LOOPS.values()]
    asked = CliRunner().invoke(app, ["results", *files, "--report-to", str(tmp_path)], env={"COLUMNS": "80"})
    assert asked.exit_code == 0, asked.output
    assert "guidellm 0.8.1" in asked.output
    runs = {run.tool: run for run in load_runs(tmp_path)}
    for tool, name in CLOSED_LOOPS.items():
        assert runs[tool].tpot == sample_run(shared, name).tpot


def test_a_file_of_no_load_tool_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(UnreadableFile, match="is not a result file of a known load tool"):
        load_runs(tmp_path / "other.json")


def test_a_folder_of_several_tools_is_read_whole_and_other_files_are_named(shared: Path, tmp_path: Path) -> None:
    for name in ("vllm", "evalscope", "aiperf"):
        source = shared / FOLDER / CLOSED_LOOPS[name]
        target = tmp_path / "mix" / name
        if source.is_dir():
            copytree(source, target)
        else:
            target.mkdir(parents=True)
            copy(source, target / source.name)
    (tmp_path / "mix" / "notes.json").write_text("{}")
    answer = results([tmp_path / "mix"])
    assert {judged.run.tool for judged in answer.runs} == {"vllm", "evalscope", "aiperf"}
    (skipped,) = answer.skipped
    assert "notes.json: is not a result file" in skipped


def test_a_result_of_vllm_without_tpot_says_what_is_missing(shared: Path, tmp_path: Path) -> None:
    document = json.loads((shared / FOLDER / CLOSED_LOOPS["vllm"]).read_text())
    kept = {key: value for key, value in document.items() if "tpot" not in key}
    (tmp_path / "run.json").write_text(json.dumps(kept))
    with pytest.raises(UnreadableFile, match="states no TPOT; repeat `vllm bench serve` with `--percentile-metrics"):
        load_runs(tmp_path / "run.json")
