"""The public traces kept beside the checkout, against sums made with the standard library alone."""

import csv
import json
from datetime import datetime
from pathlib import Path

import pytest

from penstock.workload import AsRecorded, Trace, Workload, describe, fit_empirical, fit_log_normal, read_trace
from workloads import as_bytes, assert_prefixes_are_a_causal_tree, joined

pytestmark = pytest.mark.shared

AZURE = [("azure_llm_2023_conv.csv", 19_366), ("azure_llm_2023_code.csv", 8_819)]
MOONCAKE = [("mooncake_conversation.jsonl", 12_031), ("mooncake_synthetic.jsonl", 3_993)]


@pytest.fixture
def traces(shared: Path) -> Path:
    return shared / "traces"


@pytest.mark.parametrize(("name", "count"), AZURE)
def test_azure_is_read_whole(traces: Path, name: str, count: int) -> None:
    with (traces / name).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    # Python's datetime has microseconds; the seventh digit is always 0.
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]) for row in rows]
    requests = joined(read_trace(traces / name).blocks())
    assert len(requests) == len(rows) == count
    assert int(requests.input_tokens.sum()) == sum(int(row["ContextTokens"]) for row in rows)
    assert int(requests.output_tokens.sum()) == sum(int(row["GeneratedTokens"]) for row in rows)
    assert requests.arrival_s.tolist() == pytest.approx([(at - times[0]).total_seconds() for at in times], abs=1e-9)


@pytest.mark.parametrize(("name", "count"), MOONCAKE)
def test_mooncake_is_read_whole_and_shares_what_its_hashes_say(traces: Path, name: str, count: int) -> None:
    rows = [json.loads(line) for line in (traces / name).read_text(encoding="utf-8").splitlines()]
    seen: dict[int, int] = {}
    for row in rows:
        for block in row["hash_ids"]:
            seen[block] = seen.get(block, 0) + 1
    shared_tokens = [
        sum(
            min(512, row["input_length"] - 512 * place)
            for place, block in enumerate(row["hash_ids"])
            if seen[block] > 1
        )
        for row in rows
    ]
    trace = read_trace(traces / name)
    requests = joined(trace.blocks())
    assert len(requests) == len(rows) == count
    assert requests.input_tokens.tolist() == [row["input_length"] for row in rows]
    assert requests.output_tokens.tolist() == [row["output_length"] for row in rows]
    assert requests.arrival_s.tolist() == pytest.approx([row["timestamp"] / 1000 for row in rows])
    assert trace.contradictions == 0
    assert trace.dropped == {}
    assert requests.prefixes is not None
    assert requests.prefixes.shared_tokens().tolist() == shared_tokens
    assert_prefixes_are_a_causal_tree(requests)


@pytest.mark.parametrize(("name", "_count"), MOONCAKE)
def test_reusable_tokens_are_those_whose_block_was_seen_before(traces: Path, name: str, _count: int) -> None:
    known: set[int] = set()
    reused = total = 0
    for line in (traces / name).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        total += row["input_length"]
        for place, block in enumerate(row["hash_ids"]):
            reused += min(512, row["input_length"] - 512 * place) if block in known else 0
        known.update(row["hash_ids"])
    summary = describe(read_trace(traces / name).blocks())
    assert summary is not None
    assert summary.sharing is not None
    assert summary.sharing.reusable_fraction == pytest.approx(reused / total, abs=1e-12)


def conversation(traces: Path) -> Trace:
    return read_trace(traces / "azure_llm_2023_conv.csv")


def test_a_trace_is_replayed_past_its_end_at_another_rate(traces: Path) -> None:
    trace = read_trace(traces / "mooncake_conversation.jsonl")
    workload = Workload(name="replay", arrivals=AsRecorded(), lengths=trace)
    twice = joined(workload.blocks(seed=1, requests=2 * trace.requests, rate_per_s=10.0, block_requests=5000))
    summary = describe([twice])
    assert summary is not None
    assert summary.rate_per_s == pytest.approx(10.0, rel=1e-4)
    first, second = twice.rows(0, trace.requests), twice.rows(trace.requests, 2 * trace.requests)
    assert first.input_tokens.tolist() == second.input_tokens.tolist()
    assert first.prefixes is not None
    assert second.prefixes is not None
    assert not set(first.prefixes.path.tolist()) & set(second.prefixes.path.tolist())
    assert_prefixes_are_a_causal_tree(twice)


def test_reading_twice_gives_the_same_bytes(traces: Path) -> None:
    path = traces / "mooncake_synthetic.jsonl"
    assert as_bytes(joined(read_trace(path).blocks())) == as_bytes(joined(read_trace(path).blocks()))


def test_chat_lengths_are_not_log_normal_and_the_fit_says_so(traces: Path) -> None:
    trace = conversation(traces)
    fit = fit_log_normal(trace)
    assert fit.requests == trace.requests
    assert not fit.close
    assert fit.input_distance > 0.1
    pairs = fit_empirical(trace)
    assert len(pairs.input_tokens) == trace.requests
