"""Traces that are not what they seem: nothing of them goes missing in silence."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.api.arguments.workload_argument import arrivals_choice, trace_choice
from penstock.api.progress import LOG
from penstock.errors import TraceError, UsageError
from penstock.workload import Gamma, Poisson, read_trace, require_whole
from penstock.workload.recorded.trace_formats import recognise
from workloads import joined

PLAIN = "arrival_s,input_tokens,output_tokens"
ROWS = [f"{row},{100 + row},10" for row in range(1000)]
Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    def write(text: str, *, gzipped: bool = False) -> Path:
        path = tmp_path / "trace.csv"
        path.write_bytes(gzip.compress(text.encode()) if gzipped else text.encode())
        return path

    return write


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(("closed_at", "kept"), [(None, 10), (500, 10 + 499)])
def test_lines_inside_an_open_quote_are_counted(
    written: Write, closed_at: int | None, kept: int, end: str, *, gzipped: bool
) -> None:
    rows = list(ROWS)
    rows[10] = '10,"110,10'
    if closed_at is not None:
        rows[closed_at] = '500,"110,10'
    trace = read_trace(written(end.join([PLAIN, *rows]), gzipped=gzipped))
    assert trace.requests == kept
    assert trace.requests + sum(trace.dropped.values()) == len(rows)
    assert trace.dropped["inside a quote that is not closed"] == len(rows) - kept - 1


@given(
    rows=st.lists(
        st.sampled_from(
            ['{0},5,5,"a"', '{0},5,5,"a\nb"', '{0},5,5,"a\n\n b\n"', "{0},5,5,", "", "{0},x,5,", '{0},5,"5"']
        ),
        max_size=12,
    ),
    end=st.sampled_from(["\n", "\r\n"]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_kept_and_dropped_rows_are_all_the_rows(written: Write, rows: list[str], end: str) -> None:
    trace = read_trace(
        written(end.join([f"{PLAIN},note", '0,1,1,"first"', *(row.format(at) for at, row in enumerate(rows))]))
    )
    assert trace.requests + sum(trace.dropped.values()) == 1 + sum(row != "" for row in rows)


def test_text_of_many_lines_is_no_fault(written: Write) -> None:
    trace = read_trace(written(f"{PLAIN},note\n" + "".join(f'{row},10,3,"a\n\nb, c"\n' for row in range(100))))
    assert (trace.requests, trace.dropped) == (100, {})


@pytest.mark.parametrize(("first", "second"), [("\n", "\r\n"), ("\r\n", "\n"), ("\n", "\r")])
def test_lines_may_end_in_two_ways(written: Write, first: str, second: str) -> None:
    text = first.join([PLAIN, *ROWS[:500]]) + second + second.join(ROWS[500:])
    trace = read_trace(written(text))
    assert (trace.requests, trace.dropped) == (1000, {})
    assert joined(trace.blocks()).output_tokens.tolist() == [10] * 1000


def test_a_trace_with_one_bad_row_in_a_hundred_is_used_and_with_two_refused(written: Write) -> None:
    good = [f"{row},100,10" for row in range(99)]
    require_whole(read_trace(written("\n".join([PLAIN, *good, "x,1,1"]))))
    with pytest.raises(TraceError, match=r"99 of 101 can be used; left out: 2 \(arrival is not a time\)") as caught:
        trace_choice(written("\n".join([PLAIN, *good, "x,1,1", "x,1,1"])), None, LOG)
    assert "\n" not in str(caught.value)


def test_requests_that_failed_are_no_fault_of_the_trace(written: Write) -> None:
    trace = read_trace(written("\n".join([PLAIN, "0,10,10", *(f"{row},10,0" for row in range(50))])))
    assert trace.dropped == {"no output tokens": 50}
    require_whole(trace)


def test_token_counts_that_cannot_be_are_refused(written: Write) -> None:
    rows = [f"{row},10,10" for row in range(50)]
    for bad, reason in (
        ("5,-3,1", "input tokens below zero"),
        ("5,3,-1", "output tokens below zero"),
        ("5,1e12,1", "more tokens than any context holds"),
    ):
        trace = read_trace(written("\n".join([PLAIN, *rows, bad])))
        assert trace.dropped == {reason: 1}
        with pytest.raises(TraceError, match=reason):
            require_whole(trace)


@pytest.mark.parametrize("time", ["17000000{0:05d}00", "2024-01-01T00:00:{0:02d}", "2024-01-01 00:00:{0:02d}Z"])
def test_clocks_that_do_not_count_seconds_are_told_how_they_are_read(written: Write, time: str) -> None:
    path = written("\n".join([PLAIN, *(f"{time.format(row)},10,10" for row in range(50))]))
    with pytest.raises(TraceError, match="--columns arrival=arrival_s,unit=any"):
        read_trace(path)
    named = read_trace(path, columns={"arrival": "arrival_s", "unit": "any"})
    assert named.requests == 50
    with pytest.raises(TraceError, match="--columns arrival=arrival_s,unit=any"):
        trace_choice(written(path.read_text(encoding="utf-8") + "\n0,10,10"), None, LOG)


@pytest.mark.parametrize(("column", "unit"), [("ts_ms", "ms"), ("arrivalMs", "ms"), ("ts", "any"), ("forms", "any")])
def test_a_clock_that_says_it_counts_milliseconds_does(column: str, unit: str) -> None:
    """Small numbers of milliseconds look like seconds: a trace of 10 requests a second became one of 0.01."""
    named = {"arrival": column, "input": "prompt", "output": "answer"}
    assert recognise([column, "prompt", "answer"], "mine.csv", named).arrival_unit == unit
    assert recognise([column, "prompt", "answer"], "mine.csv", {**named, "unit": "s"}).arrival_unit == "s"


def test_what_is_no_time_at_all_gets_no_hint(written: Write) -> None:
    with pytest.raises(TraceError, match=r"arrival is not a time$"):
        read_trace(written(f"{PLAIN}\nnoon,10,10\n"))


@pytest.mark.parametrize(("mark", "said"), [(";", "';'"), ("\t", "tabs"), ("|", "'|'")])
def test_columns_that_are_not_separated_by_commas_are_told_so(written: Write, mark: str, said: str) -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(written(f"{PLAIN}\n0,1,2\n".replace(",", mark)))
    assert str(caught.value).endswith(f"the columns are separated by {said}; separate them by commas")


def test_two_columns_of_one_name_are_refused_where_they_are_read(written: Write) -> None:
    with pytest.raises(TraceError, match="two columns are named 'input_tokens'"):
        read_trace(written("arrival_s,input_tokens,input_tokens,output_tokens\n0,1,2,3\n"))
    assert read_trace(written(f"{PLAIN},note,note\n0,1,2,3,4\n")).requests == 1


def test_a_number_that_means_nothing_is_refused() -> None:
    for text in ("poisson:3", "recorded:2"):
        with pytest.raises(UsageError, match=r"takes no number; use --rate"):
            arrivals_choice(text, recorded=True, users=None, think="0s")
    assert arrivals_choice("poisson", recorded=True, users=None, think="0s") == Poisson()
    assert arrivals_choice("gamma:3", recorded=True, users=None, think="0s") == Gamma(cv=3.0)


def test_a_trace_is_read_where_nothing_can_be_written(written: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> str:
        raise FileNotFoundError("no usable temporary directory")

    path = written("\n".join([PLAIN, *ROWS]))
    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    assert read_trace(path).requests == 1000
