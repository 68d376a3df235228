"""What must hold for every workload; each test's name is the law."""

from itertools import islice
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import TraceError
from penstock.workload import (
    Arrivals,
    AsRecorded,
    ClosedLoop,
    Conversations,
    Diurnal,
    Empirical,
    Fixed,
    Gamma,
    LogNormal,
    Poisson,
    Records,
    SystemPrompts,
    Trace,
    Uniform,
    Workload,
    day_curve,
    describe,
    read_trace,
)
from penstock.workload.recorded.splice import repeat
from penstock.workload.synthetic.lengths import Lengths
from penstock.workload.synthetic.sharing import Sharing
from workloads import as_bytes, assert_prefixes_are_a_causal_tree, joined, recorded

law = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 2**63)
tokens = st.integers(1, 2000)
rates = st.floats(0.01, 1000.0)
counts = st.integers(0, 70_000)

renewals: st.SearchStrategy[Arrivals] = st.one_of(
    st.builds(Poisson, rate_per_s=rates), st.builds(Gamma, cv=st.floats(0.2, 3.0), rate_per_s=rates)
)
open_loops: st.SearchStrategy[Arrivals] = st.one_of(
    renewals,
    st.builds(
        Diurnal,
        weights=st.floats(1.0, 20.0).map(day_curve),
        cv=st.floats(0.2, 3.0),
        start_hour=st.floats(0, 23.9),
        rate_per_s=rates,
    ),
)
arrivals = st.one_of(open_loops, st.builds(ClosedLoop, users=st.integers(1, 500)))
lengths: st.SearchStrategy[Lengths] = st.one_of(
    st.builds(Fixed, input_tokens=tokens, output_tokens=tokens),
    st.tuples(tokens, tokens, tokens, tokens).map(
        lambda four: Uniform(
            input_low_tokens=min(four[:2]),
            input_high_tokens=max(four[:2]),
            output_low_tokens=min(four[2:]),
            output_high_tokens=max(four[2:]),
        )
    ),
    st.builds(
        LogNormal,
        input_median_tokens=st.floats(1, 5000),
        input_sigma=st.floats(0, 3),
        output_median_tokens=st.floats(1, 500),
        output_sigma=st.floats(0, 3),
        correlation=st.floats(-1, 1),
    ),
    st.lists(st.tuples(tokens, tokens), min_size=1).map(
        lambda pairs: Empirical(
            input_tokens=np.array([pair[0] for pair in pairs], np.int32),
            output_tokens=np.array([pair[1] for pair in pairs], np.int32),
        )
    ),
)
prompts = st.builds(SystemPrompts, prompts=st.integers(1, 50), tokens=tokens, zipf_exponent=st.floats(0.0, 3.0))
sharings: st.SearchStrategy[Sharing | None] = st.one_of(
    st.none(),
    prompts,
    st.builds(
        Conversations,
        mean_turns=st.floats(1.0, 30.0),
        turn_gap_s=st.floats(0.1, 300.0),
        max_history_tokens=st.integers(1, 20_000),
        max_turns=st.integers(1, 50),
        system=st.one_of(st.none(), prompts),
    ),
)
workloads = st.builds(Workload, name=st.just("any"), arrivals=arrivals, lengths=lengths, sharing=sharings)

rows = st.lists(st.tuples(st.floats(0, 100), tokens, tokens), min_size=1, max_size=60)


def recording(drawn: list[tuple[float, int, int]]) -> Records:
    ordered = sorted(drawn)
    return recorded([row[0] for row in ordered], [row[1] for row in ordered], [row[2] for row in ordered])


@law
@given(workload=workloads, seed=seeds, count=counts)
def test_as_many_requests_come_as_were_asked_for_in_ascending_order(workload: Workload, seed: int, count: int) -> None:
    last_s, seen = 0.0, 0
    for block in workload.blocks(seed=seed, requests=count):
        assert block.arrival_s[0] >= last_s
        last_s, seen = float(block.arrival_s[-1]), seen + len(block)
    assert seen == count


@law
@given(workload=workloads, seed=seeds, count=counts, size=st.integers(500, 100_000))
def test_the_size_of_blocks_changes_no_byte(workload: Workload, seed: int, count: int, size: int) -> None:
    blocks = list(workload.blocks(seed=seed, requests=count, block_requests=size))
    assert all(len(block) == size for block in blocks[:-1])
    assert as_bytes(joined(blocks)) == as_bytes(joined(workload.blocks(seed=seed, requests=count)))


@law
@given(workload=workloads, seed=seeds, count=st.integers(1, 300), more=st.integers(0, 300))
def test_the_number_asked_for_changes_no_request(workload: Workload, seed: int, count: int, more: int) -> None:
    fewer = joined(workload.blocks(seed=seed, requests=count))
    assert as_bytes(joined(workload.blocks(seed=seed, requests=count + more)).rows(0, count)) == as_bytes(fewer)


@law
@given(workload=workloads, seed=seeds)
def test_another_seed_is_another_workload(workload: Workload, seed: int) -> None:
    if isinstance(workload.arrivals, ClosedLoop):
        return
    first, second = (joined(workload.blocks(seed=each, requests=50)) for each in (seed, seed + 1))
    assert first.arrival_s.tolist() != second.arrival_s.tolist()


@law
@given(sharing=sharings.filter(lambda sharing: sharing is not None), lengths=lengths, arrivals=arrivals, seed=seeds)
def test_shared_prefixes_are_a_causal_tree(sharing: Sharing, lengths: Lengths, arrivals: Arrivals, seed: int) -> None:
    workload = Workload(name="any", arrivals=arrivals, lengths=lengths, sharing=sharing)
    assert_prefixes_are_a_causal_tree(joined(workload.blocks(seed=seed, requests=3000)))


@law
@given(arrivals=renewals, seed=seeds, count=st.integers(100, 65_536))
def test_the_rate_is_the_one_asked_for_within_its_statistical_error(
    arrivals: Poisson | Gamma, seed: int, count: int
) -> None:
    workload = Workload(name="any", arrivals=arrivals, lengths=Fixed(input_tokens=1, output_tokens=1))
    last_s = joined(workload.blocks(seed=seed, requests=count)).arrival_s[-1]
    cv = arrivals.cv if isinstance(arrivals, Gamma) else 1.0
    assert arrivals.rate_per_s is not None
    # The time of the n-th arrival has a relative standard error of cv / sqrt(n). Gamma tails are a little heavier
    # than normal ones, and hypothesis looks for the worst.
    assert abs(last_s * arrivals.rate_per_s / count - 1) < 6 * cv / sqrt(count) + 10 * cv**2 / count


@law
@given(arrivals=renewals, lengths=lengths, seed=seeds, rate=rates, factor=st.floats(0.1, 10.0))
def test_another_rate_changes_time_alone(
    arrivals: Arrivals, lengths: Lengths, seed: int, rate: float, factor: float
) -> None:
    workload = Workload(name="any", arrivals=arrivals, lengths=lengths)
    slow, fast = (joined(workload.blocks(seed=seed, requests=200, rate_per_s=each)) for each in (rate, rate * factor))
    assert as_bytes(slow.at(fast.arrival_s)) == as_bytes(fast)
    np.testing.assert_allclose(fast.arrival_s * factor, slow.arrival_s, rtol=1e-9)


@law
@given(drawn=rows, rate=rates)
def test_a_recording_at_another_rate_keeps_its_requests_and_its_burstiness(
    drawn: list[tuple[float, int, int]], rate: float
) -> None:
    original = recording(drawn)
    if original.span_s < 1e-3:
        return
    workload = Workload(name="any", arrivals=AsRecorded(), lengths=original)
    scaled = joined(workload.blocks(seed=1, requests=original.requests, rate_per_s=rate))
    assert as_bytes(original.columns.at(scaled.arrival_s)) == as_bytes(scaled)
    before, after = describe(original.blocks()), describe([scaled])
    assert before is not None
    assert after is not None
    assert after.rate_per_s is not None
    assert before.gap_cv is not None
    assert after.gap_cv is not None
    np.testing.assert_allclose(after.rate_per_s, rate, rtol=1e-6)
    np.testing.assert_allclose(after.gap_cv, before.gap_cv, rtol=1e-5, atol=1e-6)


@law
@given(drawn=rows, passes=st.integers(1, 5))
def test_splicing_repeats_every_request_and_keeps_the_rate(drawn: list[tuple[float, int, int]], passes: int) -> None:
    original = recording(drawn)
    spliced = joined(islice(repeat(original), passes))
    assert spliced.input_tokens.tolist() == original.columns.input_tokens.tolist() * passes
    assert spliced.output_tokens.tolist() == original.columns.output_tokens.tolist() * passes
    before, after = describe(original.blocks()), describe([spliced])
    assert before is not None
    assert after is not None
    if before.rate_per_s is not None and original.span_s > 1e-3:
        assert after.rate_per_s is not None
        np.testing.assert_allclose(after.rate_per_s, before.rate_per_s, rtol=1e-6)


cells = st.one_of(
    st.integers(-5, 5).map(str),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(["", " ", "NaN", "-inf", "1e400", "0x10", "1_000", "null", "'", ";", "2024-05-10 00:00:00"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters='",\r\n\0'), max_size=8),
)


def trace_or_refusal(path: Path) -> Trace | str:
    try:
        return read_trace(path)
    except TraceError as error:
        return str(error)


@law
@given(table=st.lists(st.tuples(cells, cells, cells, cells), min_size=1, max_size=30))
def test_every_row_is_read_or_counted(tmp_path_factory: pytest.TempPathFactory, table: list[tuple[str, ...]]) -> None:
    path = tmp_path_factory.mktemp("cells") / "trace.csv"
    lines = [",".join(row) for row in table]
    path.write_text("\n".join(["arrival_s,input_tokens,output_tokens,session", *lines, ""]), encoding="utf-8")
    trace = trace_or_refusal(path)
    if isinstance(trace, str):
        assert "no request can be used" in trace
        return
    requests = joined(trace.blocks())
    assert len(requests) + sum(trace.dropped.values()) == len(table)
    if requests.prefixes is not None:
        assert_prefixes_are_a_causal_tree(requests)


@law
@given(
    content=st.one_of(
        st.binary(max_size=400),
        st.binary(max_size=200).map(lambda junk: b"PAR1" + junk + b"PAR1"),
        st.binary(max_size=200).map(lambda junk: b"\x1f\x8b\x08\x00" + junk),
        st.binary(max_size=200).map(lambda junk: b"arrival_s,input_tokens,output_tokens\n0,1,1\n" + junk),
        st.binary(max_size=200).map(lambda junk: b'{"timestamp": 0, "input_length": 1, "output_length": 1}\n' + junk),
    )
)
def test_any_bytes_are_a_trace_or_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "trace"
    path.write_bytes(content)
    trace = trace_or_refusal(path)
    if isinstance(trace, str):
        assert "\n" not in trace
    else:
        assert sum(len(block) for block in trace.blocks()) == trace.requests >= 1
