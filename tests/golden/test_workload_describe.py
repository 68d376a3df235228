"""What `penstock workload describe` shows."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from penstock.report.workload.terminal import render_trace, suggested_arrivals, trace_document
from penstock.workload import TraceSummary, describe_trace, read_trace
from printed import row, words


def chat(folder: Path) -> TraceSummary:
    """40 conversations of three turns in bursts of ten, ten batch requests, and four rows that cannot be used."""
    lines = ["arrival_s,input_tokens,output_tokens,class,session,prefix,prefix_tokens"]
    for turn in range(3):
        for session in range(40):
            at, prompt = 600 * turn + 100 * (session // 10), 300 * (turn + 1) + 7 * session
            lines.append(f"{at},{prompt},{60 + session},chat,s{session},system,200")
    lines += [f"{900 + 60 * number},20000,900,batch,,," for number in range(10)]
    lines += ["never,1,1,chat,,,", "5,0,1,chat,,,", "6,10,0,chat,,,", "7,10"]
    path = folder / "chat.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return describe_trace(read_trace(path))


def shown(summary: TraceSummary, width: int) -> str:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(render_trace(summary, "logs/chat of may.csv", width))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_trace_in_80_columns(tmp_path: Path) -> None:
    text = shown(chat(tmp_path), 80)
    assert text.startswith("chat  130 requests in 25 min")
    assert row(text, "prompts           300") == ["768", "1,152", "20,000", "20,000", "2,218.3", "288,380"]
    assert row(text, "answers            60") == ["81", "98", "900", "900", "142.6", "18,540"]
    facts = (
        "mean 0.086/s, busiest minute 0.183/s",
        "coefficient of variation of the gaps 3.08: bursty",
        "21.2% of prompt tokens were in an earlier request",
        "prompts median 891 sigma 0.97, answers median 95 sigma 0.66, correlation 0.93",
        "up to 31.1% of prompts and 39.5% of answers, chance alone 11.9% of 130",
        "--arrivals gamma:3.1 --rate 0.172",
    )
    for fact in facts:
        assert fact in words(text)


def test_the_commands_name_stated_columns(tmp_path: Path) -> None:
    """The printed command failed: it left out the names of the columns."""
    console = Console(file=StringIO(), width=100, color_system=None)
    console.print(render_trace(chat(tmp_path), "t.csv", 100, "arrival=ts,input=p"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "--columns arrival=ts,input=p" in " ".join(text.replace("\\", " ").split())
    assert "columns: {arrival: ts, input: p}" in text


@pytest.mark.parametrize("width", [80, 100, 132, 160])
def test_nothing_is_cut_short_or_runs_over(tmp_path: Path, width: int) -> None:
    text = shown(chat(tmp_path), width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    # A command that goes on in the next line says so, and its path is quoted as a shell needs it.
    words = " ".join(text.replace("\\\n", " ").split())
    assert "--trace 'logs/chat of may.csv' --slo ttft=1s,tpot=50ms" in words


def test_every_row_left_out_is_named(tmp_path: Path) -> None:
    text = " ".join(shown(chat(tmp_path), 132).split())
    assert "130 of 134 can be used" in text
    for reason in ("arrival is not a time", "no input tokens", "no output tokens", "malformed line"):
        assert f"1 ({reason})" in text
    assert "chat 92.3%" in text  # 120 of 130
    assert "batch 7.7%" in text


def test_the_document_says_how_to_draw_it_again(tmp_path: Path) -> None:
    summary = chat(tmp_path)
    document = trace_document(summary)
    gap_cv = summary.requests.gap_cv
    assert gap_cv is not None
    assert document["suggested_arrivals"] == f"gamma:{gap_cv:.2g}"
    assert isinstance(document["log_normal"], dict)
    assert document["log_normal"]["close"] is False


def test_gaps_that_vary_as_chance_makes_them_are_poisson() -> None:
    assert [suggested_arrivals(cv) for cv in (0.0, 0.5, 0.95, 1.0, 1.1, 3.03)] == [
        "gamma:0.01",
        "gamma:0.5",
        "poisson",
        "poisson",
        "poisson",
        "gamma:3",
    ]
