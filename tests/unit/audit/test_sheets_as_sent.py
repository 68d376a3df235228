"""Answers to tenders as vendors send them: other headings, commas, units, blanks and what Excel adds."""

from pathlib import Path

import pytest

import penstock
from audits import library
from penstock.audit.claims.claim import Claim
from penstock.audit.claims.speed_claims import SpeedStatement
from penstock.audit.judge_claims import judge
from penstock.audit.judgement import Verdict
from penstock.audit.parsing.tender_sheet import parse_sheet
from penstock.errors import UnreadableFile, UsageError

PLAIN = (
    "model,on,precision,input,output,concurrency,tok/s,tpot_ms,usd_per_hour,usd_per_mtok\n"
    "llama-3.1-70b,2x h100,fp8,1024,1024,64,2900.5,21.5,6.0,0.57\n"
    "llama-3.1-405b,8x mi300x,fp8,1024,1024,64,6000,12,16.0,0.74\n"
)
CONTINENTAL = (
    "\ufeffmodel;gpu;precision;isl;osl;users;tok/s;tpot_ms;usd_per_hour;usd_per_mtok;\r\n"
    "llama-3.1-70b;2x H100;FP8;1.024;1.024;64;2.900,5;21,5;6,0;0,57;\r\n"
    ";;;;;;;;;\r\n"
    "llama-3.1-405b;8x MI300X;FP8;1024;1024;64;6.000;12;16,0;0,74;\r\n"
)


def statements(text: str) -> list[object]:
    return [_comparable(claim) for claim in parse_sheet(text, "s.csv")]


def _comparable(claim: Claim) -> object:
    amount = getattr(claim.statement, "amount", None)
    return type(claim.statement).__name__, None if amount is None else (amount.low, amount.measure)


def test_decimal_commas_and_dotted_thousands_are_read_as_meant() -> None:
    assert statements(CONTINENTAL) == statements(PLAIN)


def test_a_dotted_figure_that_may_be_either_is_refused() -> None:
    with pytest.raises(UsageError, match=r"s\.csv:2: tok/s: '6\.000' is ambiguous"):
        parse_sheet("model;on;tok/s\nllama-3.1-70b;8x h100;6.000\n", "s.csv")


def test_headings_may_carry_their_unit_and_the_count_a_column() -> None:
    text = (
        "Model,GPU,GPUs,ISL (tokens),OSL (tokens),Users,Throughput (tok/s),TTFT (ms),TPOT [ms],Price per hour (USD)\n"
        'Llama 3.1 70B,NVIDIA H100,2,1k,1k,64,"2,900",n/a,TBD,$6.00\n'
    )
    first, price = parse_sheet(text, "s.csv")
    assert isinstance(first.statement, SpeedStatement)
    assert (first.statement.setup.accelerator, first.statement.setup.devices) == ("h100_sxm", 2)
    assert first.statement.amount.low == 2900
    assert price.id == "row-2-rent"


@pytest.mark.parametrize("heading", ["TPOT (s)", "TTFT (seconds)", "Throughput (total tok/s)", "Price per hour (EUR)"])
def test_a_unit_that_is_another_is_refused(heading: str) -> None:
    with pytest.raises(UsageError, match=r"s\.csv:1: .* cannot be in .*; convert its figures"):
        parse_sheet(f"model,on,{heading}\nllama-3.1-70b,8x h100,3\n", "s.csv")


def test_a_count_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="keep only one of them"):
        parse_sheet("model,on,count,tok/s\nllama-3.1-70b,8x h100,8,3000\n", "s.csv")


def test_what_excel_adds_is_no_data(tmp_path: Path) -> None:
    text = "sep=;\nmodel;on;tok/s;\nllama-3.1-70b;8x h100;3000;;\n"
    found = parse_sheet(text, "s.csv")
    assert [claim.line for claim in found] == [3]
    wide = tmp_path / "wide.csv"
    wide.write_bytes(PLAIN.encode("utf-16"))
    assert len(penstock.audit(sheet=wide).rows()) == len(parse_sheet(PLAIN, "s.csv"))
    latin = tmp_path / "latin.csv"
    latin.write_bytes("model,on,note\nä,ö,ü\n".encode("latin-1"))
    with pytest.raises(UnreadableFile, match="saved as CSV in UTF-8"):
        penstock.audit(sheet=latin)


@pytest.mark.parametrize(
    ("tpot_ms", "verdict"),
    [
        ("15.2", Verdict.CONFIRMED),
        ("8", Verdict.PLAUSIBLE),
        ("0.0152", Verdict.IMPLAUSIBLE),
        ("20", Verdict.CONTRADICTED),
    ],
)
def test_a_rate_agrees_with_users_and_time_per_token_or_says_how_far_it_is_off(tpot_ms: str, verdict: Verdict) -> None:
    # 64 users at 15.2 ms are 4,211 tok/s, at 8 ms 8,000, at 20 ms 3,200.
    text = f"model,on,concurrency,tok/s,tpot_ms\nllama-3.1-70b,8x h100,64,4080,{tpot_ms}\n"
    claim = next(claim for claim in parse_sheet(text, "s.csv") if claim.id == "row-2-agreement")
    assert judge(claim, library()).verdict is verdict
