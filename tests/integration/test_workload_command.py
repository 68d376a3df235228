"""`penstock workload describe` as a user runs it."""

import json
import shlex
from pathlib import Path

import pytest

from conftest import Run

PLAIN = "arrival_s,input_tokens,output_tokens\n0,10,5\n1,20,6\n4,2000,7\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "requests.csv"
    path.write_text(PLAIN, encoding="utf-8")
    return path


@pytest.mark.wheel
def test_a_trace_of_ones_own_is_described(penstock: Run, trace: Path) -> None:
    result = penstock("workload", "describe", str(trace))
    assert result.returncode == 0, result.stderr
    assert "3 requests in 4 s" in result.stdout
    assert result.stderr == ""


@pytest.mark.wheel
def test_the_commands_it_shows_are_understood(penstock: Run, trace: Path) -> None:
    shown = penstock("workload", "describe", str(trace)).stdout.replace("\\\n", " ")
    commands = [shlex.split(line)[1:] for line in shown.splitlines() if line.startswith("  penstock simulate")]
    assert len(commands) == 2
    for command in commands:
        result = penstock(*command, "--requests", "50")
        assert result.returncode in {0, 1}, result.stderr


@pytest.mark.wheel
def test_json_has_the_figures(penstock: Run, trace: Path) -> None:
    document = json.loads(penstock("workload", "describe", str(trace), "--json").stdout)
    assert document["requests"]["requests"] == 3
    assert document["requests"]["rate_per_s"] == 2 / 4
    assert document["requests"]["input_tokens"]["total"] == 10 + 20 + 2000
    assert document["dropped"] == {}


@pytest.mark.parametrize("suffix", ["svg", "png", "html"])
def test_a_chart_is_written(penstock: Run, trace: Path, tmp_path: Path, suffix: str) -> None:
    result = penstock("workload", "describe", str(trace), "--chart", str(tmp_path / f"chart.{suffix}"))
    assert result.returncode == 0, result.stderr
    start = (tmp_path / f"chart.{suffix}").read_bytes()[:15]
    assert start.startswith({"svg": b"<svg", "png": b"\x89PNG", "html": b"<!doctype html>"}[suffix])


@pytest.mark.wheel
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "name one CSV, JSONL or Parquet file"),
        ("# Notes\n", "are not those of a known trace (Azure LLM inference"),
        ("arrival_s,input_tokens,output_tokens\n0,0,0\n", "no request can be used: 1 x no input tokens"),
    ],
)
def test_what_is_no_trace_is_one_line(penstock: Run, tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "notes.csv"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    result = penstock("workload", "describe", str(path))
    assert result.returncode == 3
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.shared
def test_the_public_traces_are_described(penstock: Run, shared: Path) -> None:
    conversation = penstock("workload", "describe", str(shared / "traces" / "azure_llm_2023_conv.csv"))
    assert "19,366 of 19,366 can be used" in conversation.stdout
    assert "the trace does not record shared prefixes" in conversation.stdout
    mooncake = penstock("workload", "describe", str(shared / "traces" / "mooncake_conversation.jsonl"), "--json")
    document = json.loads(mooncake.stdout)
    assert document["requests"]["requests"] == 12_031
    assert document["contradictions"] == 0
    # 0.374 is what an infinite cache hits by the trace's own hashes; tests/integration/test_traces.py counts it.
    assert document["requests"]["sharing"]["reusable_fraction"] == pytest.approx(0.374, abs=0.001)
