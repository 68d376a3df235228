import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import TraceError
from penstock.workload import AsRecorded, Requests, SloClass, Trace, Workload, read_trace
from penstock.workload.recorded import _database as database
from penstock.workload.recorded._table_file import look_at
from workloads import assert_prefixes_are_a_causal_tree, joined, paths

PLAIN = "arrival_s,input_tokens,output_tokens"


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str | bytes, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


Write = Callable[..., Path]


def read(path: Path) -> tuple[Trace, Requests]:
    trace = read_trace(path)
    return trace, joined(trace.blocks())


def parquet(path: Path, query: str) -> Path:
    import duckdb  # noqa: PLC0415 - only the tests that write Parquet need it

    duckdb.connect().execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    return path


def test_azure_timestamps_become_seconds_from_the_first(written: Write) -> None:
    trace, requests = read(
        written(
            "TIMESTAMP,ContextTokens,GeneratedTokens\n"
            "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
        )
    )
    assert trace.format == "Azure LLM inference"
    assert "CC-BY 4.0" in trace.source
    assert requests.arrival_s.tolist() == pytest.approx([0.0, 0.052], abs=1e-9)
    assert requests.input_tokens.tolist() == [4808, 3180]
    assert requests.output_tokens.tolist() == [10, 8]
    assert trace.segment_tokens is None


def test_azure_of_2024_has_offsets(written: Write) -> None:
    _, requests = read(
        written(
            "TIMESTAMP,ContextTokens,GeneratedTokens\n"
            "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 02:00:01.009930+02:00,2,5\n"
        )
    )
    assert requests.arrival_s.tolist() == pytest.approx([0.0, 1.0])


def test_failed_requests_of_burstgpt_are_counted_not_read(written: Write) -> None:
    trace, requests = read(
        written(
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
            "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n"
            '110.5,GPT-4,417,276,693,"API log, v2"\n'
        )
    )
    assert trace.format == "BurstGPT"
    assert trace.dropped == {"no output tokens": 1}
    assert requests.arrival_s.tolist() == [0.0, 105.5]
    assert requests.output_tokens.tolist() == [18, 276]


def mooncake(*rows: tuple[int, int, list[int]]) -> str:
    lines = [
        json.dumps({"timestamp": at, "input_length": length, "output_length": 7, "hash_ids": ids})
        for at, length, ids in rows
    ]
    return "\n".join(lines) + "\n"


def test_mooncake_blocks_seen_twice_are_shared_and_runs_of_them_are_one_segment(written: Write) -> None:
    # Blocks of 512. Ids 0-1 are in three prompts, 2 in two; 5 ends two prompts after 100 tokens.
    trace, requests = read(
        written(
            mooncake(
                (0, 1600, [0, 1, 2, 3]),
                (3000, 1600, [0, 1, 2, 4]),
                (3000, 1124, [0, 1, 5]),
                (6000, 1124, [0, 1, 5]),
                (9000, 400, [6]),
            ),
            "mooncake.jsonl",
        )
    )
    assert requests.prefixes is not None
    by_length = {tuple(requests.prefixes.segment_tokens[path].tolist()): path for path in paths(requests)}
    assert set(by_length) == {(1024, 512), (1024, 100), ()}
    assert paths(requests)[0] == paths(requests)[1]
    assert paths(requests)[0][0] == paths(requests)[2][0]
    assert requests.prefixes.shared_tokens().tolist() == [1536, 1536, 1124, 1124, 0]
    assert set(requests.prefixes.own.tolist()) == {-1}
    assert trace.contradictions == 0
    assert requests.arrival_s.tolist() == [0.0, 3.0, 3.0, 6.0, 9.0]
    assert_prefixes_are_a_causal_tree(requests)


@pytest.mark.parametrize(
    ("rows", "shared", "contradictions"),
    [
        # Id 2 follows 1 once and 9 once: nothing from there on is called shared, whatever follows.
        ([(0, 1536, [1, 2, 3]), (0, 1536, [1, 2, 3]), (0, 1024, [9, 2]), (0, 512, [9])], [512, 512, 512, 512], 1),
        # Id 2 is a whole block once and 76 tokens once.
        ([(0, 1024, [1, 2]), (0, 588, [1, 2])], [512, 512], 1),
        # More ids than the prompt has blocks.
        ([(0, 600, [1, 2, 3]), (0, 600, [1, 2, 3])], [600, 600], 1),
        # An id follows itself.
        ([(0, 1024, [1, 1]), (0, 1024, [1, 1])], [0, 0], 1),
        # No id below zero is known.
        ([(0, 512, [-7]), (0, 512, [-7])], [0, 0], 1),
    ],
)
def test_hash_ids_that_contradict_themselves_end_the_path(
    written: Write, rows: list[tuple[int, int, list[int]]], shared: list[int], contradictions: int
) -> None:
    trace, requests = read(written(mooncake(*rows), "mooncake.jsonl"))
    assert requests.prefixes is not None
    assert requests.prefixes.shared_tokens().tolist() == shared
    assert trace.contradictions == contradictions
    assert_prefixes_are_a_causal_tree(requests)


def test_mooncake_without_hashes_shares_nothing_known(written: Write) -> None:
    trace, requests = read(written('{"timestamp": 27, "input_length": 9, "output_length": 4}\n'))
    assert trace.format == "Mooncake"
    assert requests.prefixes is None


def test_a_plain_trace_may_be_in_any_order_with_more_columns_than_needed(written: Write) -> None:
    _, requests = read(
        written(
            "\ufeffnote, output_tokens ,arrival_s,input_tokens\r\nx,3,7.5,30\r\n'; DROP TABLE arrivals; --,1,5,10\r\n"
        )
    )
    assert requests.arrival_s.tolist() == [0.0, 2.5]
    assert requests.input_tokens.tolist() == [10, 30]


def test_blank_lines_are_nothing(written: Write) -> None:
    for lines in (f"\n\n{PLAIN}\n0,1,1\n", f"{PLAIN}\n\n0,1,1\n\n", f"\r\n{PLAIN}\r\n0,1,1"):
        trace = read_trace(written(lines))
        assert (trace.requests, trace.dropped) == (1, {})


def test_equal_arrivals_stay_in_the_order_of_the_file(written: Write) -> None:
    rows = "".join(f"{row % 3},{row + 1},1\n" for row in range(5000))
    _, requests = read(written(f"{PLAIN}\n{rows}"))
    expected = [row + 1 for at in range(3) for row in range(5000) if row % 3 == at]
    assert requests.input_tokens.tolist() == expected


def test_classes_are_named_and_have_their_shares(written: Write) -> None:
    trace, requests = read(written(f"{PLAIN},class\n0,1,1,chat\n1,1,1,batch\n2,1,1,chat\n3,1,1,\n"))
    assert trace.classes == (
        SloClass(name="unnamed", share_fraction=0.25),
        SloClass(name="batch", share_fraction=0.25),
        SloClass(name="chat", share_fraction=0.5),
    )
    assert requests.slo_class.tolist() == [2, 1, 2, 0]
    replayed = Workload(name="x", arrivals=AsRecorded(), lengths=trace, classes=trace.classes)
    assert joined(replayed.blocks(seed=1, requests=8)).slo_class.tolist() == [2, 1, 2, 0] * 2


def test_a_turn_of_a_session_continues_the_turn_before(written: Write) -> None:
    # Session a: 10 + 5, then 20 (15 of history), then 12: shorter than the 28 before it, so its history was cut.
    _, requests = read(written(f"{PLAIN},session\n0,10,5,a\n1,7,1,b\n2,20,8,a\n3,12,1,a\n4,13,1,a\n5,9,9,\n6,18,9,\n"))
    assert paths(requests) == [[], [], [0], [], [1], [], []]
    assert requests.prefixes is not None
    assert requests.prefixes.own.tolist() == [0, -1, -1, 1, -1, -1, -1]
    assert requests.prefixes.segment_tokens.tolist() == [15, 13]
    assert_prefixes_are_a_causal_tree(requests)


def test_sessions_begin_with_their_prefix_and_the_shortest_claim_counts(written: Write) -> None:
    _, requests = read(
        written(
            f"{PLAIN},session,prefix,prefix_tokens\n"
            "0,100,5,a,sys,40\n1,130,5,a,sys,50\n2,60,5,b,sys,40\n3,60,5,c,alone,40\n4,140,5,a,other,9\n"
            "5,60,5,,bad,0\n6,60,5,,bad,61\n7,60,5,,bad,\n8,60,5,,other,9\n"
        )
    )
    assert requests.prefixes is not None
    # sys has 40 tokens, other 9; the first turn of a leaves 105 - 40.
    assert requests.prefixes.segment_tokens.tolist() == [40, 9, 65]
    assert paths(requests) == [[0], [0, 2], [0], [], [1], [1]]
    assert len(requests) == 6
    assert_prefixes_are_a_causal_tree(requests)


def test_long_conversations_of_many_users_form_a_causal_tree(written: Write) -> None:
    lines, history = [], dict.fromkeys(range(7), 0)
    for row in range(2000):
        user = row * row % 7
        prompt, answer = history[user] + 1 + row % 13, 1 + row % 5
        history[user] = 0 if row % 31 == 0 else prompt + answer
        lines.append(f"{row / 8},{prompt},{answer},u{user}")
    _, requests = read(written("\n".join([f"{PLAIN},session", *lines])))
    assert_prefixes_are_a_causal_tree(requests)
    assert requests.prefixes is not None
    assert (requests.prefixes.own >= 0).sum() > 1500


def test_rows_that_cannot_be_used_are_counted_by_reason(written: Write) -> None:
    huge, most = 2**30, 2**30 - 1
    trace, requests = read(
        written(
            f"{PLAIN}\n0,1,1\nnan,1,1\ninf,1,1\n,1,1\n-1,1,1\n1e300,1,1\n1,x,1\n1,1.5,1\n1,nan,1\n1,0,1\n1,-3,1\n1,1,\n"
            f"1,1,0\n1,{huge},1\n1,1,{huge}\n1,1e400,1\n2,{most},{most}\n1,1\n1,1,1,1\n9,2.0, 3 \n"
        )
    )
    assert trace.dropped == {
        "arrival is not a time": 4,
        "arrival is before zero": 1,
        "input tokens are not a whole number": 4,
        "input tokens below zero": 1,
        "no input tokens": 1,
        "output tokens are not a whole number": 1,
        "no output tokens": 1,
        "more tokens than any context holds": 2,
        "malformed line": 2,
    }
    assert requests.arrival_s.tolist() == [0.0, 2.0, 9.0]
    assert requests.input_tokens.tolist() == [1, most, 2]


def test_lines_that_are_not_objects_are_counted_too(written: Write) -> None:
    good = '{"arrival_s": 1, "input_tokens": 2, "output_tokens": 3}'
    bad = [
        "nonsense",
        "[1, 2]",
        '{"arrival_s": 1}',
        '{"arrival_s": {"a": 1}, "input_tokens": 2, "output_tokens": 3}',
        "{",
    ]
    trace, requests = read(written("\n".join([good, *bad, "", good])))
    assert len(requests) == 2
    assert sum(trace.dropped.values()) == len(bad)


def test_bad_hash_lists_are_counted(written: Write) -> None:
    row = '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": %s}'
    trace, _ = read(written("\n".join(row % ids for ids in ("[1, 2]", '["a"]', '"x"', "[1, null]", "{}"))))
    assert trace.requests == 1
    assert trace.dropped == {"hash ids are not a list of whole numbers": 4}


def test_parquet_holds_any_of_the_layouts(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "a",
        "SELECT TIMESTAMP '2024-05-10 00:00:00' + to_milliseconds(i * 250) AS TIMESTAMP, 10 + i AS ContextTokens, "
        "5.0::DOUBLE AS GeneratedTokens FROM range(4) r(i)",
    )
    _, requests = read(path)
    assert requests.arrival_s.tolist() == [0.0, 0.25, 0.5, 0.75]
    path = parquet(
        tmp_path / "b",
        "SELECT 0 AS timestamp, 1024 AS input_length, 1 AS output_length, [1, 2] AS hash_ids FROM range(3)",
    )
    _, requests = read(path)
    assert requests.prefixes is not None
    assert requests.prefixes.shared_tokens().tolist() == [1024] * 3


def test_a_compressed_trace_is_read(written: Write) -> None:
    csv, jsonl = f"{PLAIN}\n0,1,1\n1,2,1\n", '{"arrival_s": 0, "input_tokens": 1, "output_tokens": 1}\n'
    assert read_trace(written(gzip.compress(csv.encode()))).requests == 2
    assert read_trace(written(gzip.compress(jsonl.encode()))).requests == 1


@pytest.mark.parametrize(
    "name",
    [
        "a[1].csv",
        "b*.csv",
        "c?.csv",
        "d'); DROP TABLE arrivals; --.csv",
        'e".csv',
        "f{1,2}.csv",
        "https:x.csv",
        "g.parquet",
    ],
)
def test_a_name_is_only_a_name(written: Write, name: str) -> None:
    written(f"{PLAIN}\n0,1,1\n1,1,1\n", "b1.csv")
    written(f"{PLAIN}\n0,1,1\n1,1,1\n", "a1.csv")
    assert read_trace(written(f"{PLAIN}\n0,1,1\n", name)).requests == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "unknown file format"),
        (b"\n\n", "unknown file format"),
        (bytes(range(256)) * 20, "unknown file format"),
        (b"\x00" * 100, "unknown file format"),
        (b"\x1f\x8b\x08\x00junk", "cannot be read"),
        (b"\x1f\x8b\x08" + b"\x00" * 12, "cannot be read"),
        (gzip.compress(f"{PLAIN}\n0,1,1\n".encode(), mtime=0)[:-12], "trace.csv: "),
        (b"\n" * 1000 + f"{PLAIN}\n0,1,1\n".encode(), "unknown file format"),
        (b"PAR1" + b"\x00" * 50, "trace.csv: "),
        (b"a,b,c\n1,2,3\n", r"known trace \(Azure LLM inference: TIMESTAMP, ContextTokens, GeneratedTokens"),
        (b"1,2,3\n1,2,3\n", "are not those of a known trace"),
        (b"," * 2000 + b"\n", "unknown file format"),
        (b'"arrival_s', "unknown file format"),
        (b"{nonsense\n", "not a JSON object"),
        (b'{"a": ' + b"[" * 5000 + b"\n", "not a JSON object"),
        (b'{"x": 1}\n', "are not those of a known trace"),
        (f"{PLAIN}\n".encode(), "no request can be used: it has no rows"),
        (f"{PLAIN}\n0,0,0\n".encode(), "no request can be used: 1 x no input tokens"),
        (
            f"{PLAIN},class\n".encode() + b"".join(b"%d,1,1,%d\n" % (row, row) for row in range(300)),
            "300 classes, but at most 256",
        ),
    ],
)
def test_a_file_that_is_no_trace_is_refused_in_one_line(written: Write, content: bytes, message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(written(content))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_what_is_not_a_file_is_refused_in_one_line(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path, tmp_path / "absent.csv", fifo, Path("/dev/zero"), Path("x\0y")):
        with pytest.raises(TraceError, match="name one CSV, JSONL or Parquet file") as caught:
            read_trace(path)
        assert "\n" not in str(caught.value)


def test_the_database_reaches_no_other_file(written: Write) -> None:
    other = written(f"{PLAIN}\n0,1,1\n", "other.csv")
    guarded = database.Database(look_at(written(f"{PLAIN}\n0,1,1\n")))
    for query, bound in (
        ("SELECT * FROM read_csv(?)", [str(other)]),
        ("SELECT * FROM read_text(?)", [str(other)]),
        (f"COPY (SELECT 1) TO '{other}.out'", []),
        (f"ATTACH '{other}.db'", []),
        ("INSTALL httpfs", []),
        ("SET enable_external_access = true", []),
    ):
        with pytest.raises(TraceError, match=r"(?i)permission|disabled|locked"):
            guarded.run(query, bound)


def test_progress_runs_from_little_to_all(written: Write) -> None:
    told: list[tuple[int, int | None]] = []
    path = written(f"{PLAIN}\n" + "".join(f"{row},1,1\n" for row in range(100_000)))
    trace = read_trace(path, progress=lambda done, total: told.append((done, total)))
    size = path.stat().st_size
    assert trace.requests == 100_000
    assert told[-1] == (size, size)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_reader_that_is_interrupted_stops(written: Write) -> None:
    def stop(_done: int, _total: int | None) -> None:
        raise KeyboardInterrupt

    path = written(f"{PLAIN}\n" + "".join(f"{row},1,1\n" for row in range(100_000)))
    with pytest.raises(KeyboardInterrupt):
        read_trace(path, progress=stop)


def test_an_error_while_progress_is_watched_is_the_same_error(written: Write) -> None:
    guarded = database.Database(look_at(written(f"{PLAIN}\n0,1,1\n")))
    with pytest.raises(TraceError, match="nonexistent") as caught:
        guarded.watch("SELECT ? FROM nonexistent", [1], lambda _done, _total: None)
    assert "\n" not in str(caught.value)


def test_a_trace_larger_than_memory_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "MEMORY_LIMIT", "64MB")
    path = parquet(
        tmp_path / "big.parquet",
        "SELECT (1000000 - i)::DOUBLE AS arrival_s, 1 + i % 1000 AS input_tokens, 1 AS output_tokens, "
        "'user-' || (i % 50000) AS session FROM range(1000000) r(i)",
    )
    trace = read_trace(path)
    spilled, spilled_bytes = trace._database.row(  # noqa: SLF001 - where the rest went is the point
        "SELECT min(path), sum(size) FROM duckdb_temporary_files()"
    )
    assert spilled_bytes > 0
    assert sum(len(block) for block in trace.blocks()) == 1_000_000
    assert trace.span_s == 1_000_000 - 1
    folder = Path(spilled).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    del trace
    assert not folder.exists()


def test_two_readers_of_one_trace_do_not_disturb_each_other(written: Write) -> None:
    trace = read_trace(written(f"{PLAIN}\n" + "".join(f"{row},{row + 1},1\n" for row in range(70_000))))
    pairs = list(zip(trace.blocks(), trace.blocks(), strict=True))
    assert len(pairs) == 2
    assert all(left.input_tokens.tolist() == right.input_tokens.tolist() for left, right in pairs)
