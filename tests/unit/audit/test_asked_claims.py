"""How claims are written: amounts, sentences, sheets and the schema for editors."""

import json
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from penstock.audit.arithmetic import evaluate, holds
from penstock.audit.claims.amount import exactly, parse_amount
from penstock.audit.claims.hardware_claims import RatioStatement, SpecStatement
from penstock.audit.claims.kind_names import kind_of
from penstock.audit.claims.memory_claims import FitStatement
from penstock.audit.claims.speed_claims import SpeedStatement
from penstock.audit.parsing.claim_kinds import KINDS
from penstock.audit.parsing.claim_terms import counted_accelerator, span
from penstock.audit.parsing.claims_file import CLAIMS_FILE, EXAMPLE_CLAIMS, parse_claims
from penstock.audit.parsing.sentence import parse_sentence
from penstock.audit.parsing.tender_sheet import parse_sheet
from penstock.errors import UsageError


@pytest.mark.parametrize(
    ("text", "low", "high", "measure"),
    [
        ("3,958 TFLOPS", 3958e12, 3958e12, "flops/s"),
        ("~15-20 tok/s", 15, 20, "tokens/s"),
        ("18 to 22%", 0.18, 0.22, "share"),
        ("$22,000", 22_000, 22_000, "usd"),
        ("$2.50 /h", 2.5, 2.5, "usd/h"),
        ("$0.80 /Mtok", 0.8, 0.8, "usd/Mtok"),
        ("1.5x", 1.5, 1.5, "times"),
        ("50ms", 0.05, 0.05, "s"),
        ("80 GB", 80e9, 80e9, "bytes"),
        ("192 GiB", 192 * 2**30, 192 * 2**30, "bytes"),
        ("1.44 exaflops", 1.44e18, 1.44e18, "flops/s"),
        ("over 2.5x", 2.5, 2.5, "times"),
    ],
)
def test_figures_are_read_as_people_write_them(text: str, low: float, high: float, measure: str) -> None:
    found = parse_amount(text)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.measure == measure


@given(value=st.floats(1e-3, 1e15), factor=st.floats(1.06, 100.0))
def test_a_computed_figure_meets_itself_and_nothing_six_percent_off(value: float, factor: float) -> None:
    assert exactly(value).meets(value)
    assert not exactly(value).meets(value * factor)
    assert not exactly(value).nearly(value / factor)


@given(value=st.integers(1, 9), zeros=st.integers(0, 6))
def test_rounding_is_half_of_the_last_digit_and_never_more_than_a_twentieth(value: int, zeros: int) -> None:
    amount = parse_amount(f"{value}{'0' * zeros} W")
    assert amount.slack <= 0.05 * amount.middle * (1 + 1e-9)
    assert amount.slack >= 0.02 * amount.middle * (1 - 1e-9)


def test_at_least_and_at_most_bind_on_one_side() -> None:
    assert parse_amount("over 2x").meets(50)
    assert not parse_amount("over 2x").meets(1.5)
    assert parse_amount("under 5 ms").meets(0.001)
    assert not parse_amount("under 5 ms").meets(0.006)


def test_sentences_become_statements() -> None:
    speed = parse_sentence(
        "deepseek-r1 fp8 on 8x mi355x with sglang in 8k/1k at 64 users without drafts: 3000 tok/s"
    ).statement
    assert isinstance(speed, SpeedStatement)
    setup = speed.setup
    assert (setup.accelerator, setup.devices, setup.engine, setup.drafted) == ("mi355x", 8, "sglang", False)
    assert (setup.input_tokens, setup.output_tokens, setup.concurrency) == (8192, 1024, 64)
    metrics = {"20 ms": "tpot", "400 ms to first token": "ttft", "512 requests": "requests", "40 tok/s/user": "tpot"}
    for figure, metric in metrics.items():
        found = parse_sentence(f"deepseek-r1 on 8x mi355x: {figure}").statement
        assert isinstance(found, SpeedStatement)
        assert found.metric == metric
    fits = parse_sentence("llama-3.1-70b on h100:2: does not fit").statement
    assert isinstance(fits, FitStatement)
    assert not fits.fits
    assert isinstance(parse_sentence("h100 fp8: 3958 TFLOPS sparse").statement, SpecStatement)
    assert isinstance(parse_sentence("mi300x memory: 1.5x of h100").statement, RatioStatement)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("h100 is fast", "has no figure after a colon"),
        ("h100 fp9: 3 TFLOPS", "did you mean fp"),
        ("llama-3.1-70b on h1000: 3 tok/s", "did you mean h100"),
        ("llama-3.1-70b fp17 on h100: 3 tok/s", "did you mean fp1"),
        ("llama-3.1-70b on h100 quickly: 3 tok/s", "use `with vllm`"),
        ("llama-3.1-70b on h100: 3 toks/s", "did you mean tok/s"),
    ],
)
def test_a_sentence_that_is_not_understood_gets_a_suggestion(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_sentence(text)
    assert hint in str(raised.value)


def test_a_row_of_a_sheet_is_a_claim_per_figure_and_one_for_their_agreement() -> None:
    text = "Model;GPU;ISL;OSL;Users;Throughput;TPOT\nllama-3.1-70b;8x H100;1024;1024;64;3200;20"
    names = [claim.id for claim in parse_sheet(text, "s.csv")]
    assert names == ["row-2-tok/s", "row-2-tpot_ms", "row-2-agreement"]


def test_the_example_has_one_claim_of_five_kinds_and_follows_its_schema() -> None:
    import yaml  # noqa: PLC0415 - only here

    claims = parse_claims(EXAMPLE_CLAIMS, "e.yaml")
    assert [kind_of(claim.statement) for claim in claims] == ["spec", "ratio", "fits", "speed", "cost"]
    document = json.loads(json.dumps(yaml.safe_load(EXAMPLE_CLAIMS), default=str))
    schema = CLAIMS_FILE.schema()
    Draft202012Validator.check_schema(schema)
    assert not list(Draft202012Validator(schema).iter_errors(document))
    document["claims"][0]["spec"]["figur"] = 1
    assert list(Draft202012Validator(schema).iter_errors(document))


def test_the_schema_has_every_kind_and_key() -> None:
    schema = CLAIMS_FILE.schema()
    offered = schema["$defs"]["ClaimEntry"]["properties"]
    assert set(offered) >= {*KINDS, "saving"}
    for name, kind in KINDS.items():
        assert set(offered[name]["anyOf"][0]["properties"]) == {key.name for key in kind.keys}


def test_times_are_days_months_quarters_halves_and_years() -> None:
    assert (span("Q4 2023").first, span("Q4 2023").last) == (date(2023, 10, 1), date(2023, 12, 31))
    assert (span("mid-2025").first, span("H2 2024").last) == (date(2025, 5, 1), date(2024, 12, 31))
    assert span("2024-02").last == date(2024, 2, 29)
    assert counted_accelerator("2x mi300x") == counted_accelerator("mi300x:2") == ("mi300x", 2)


@given(a=st.floats(0.1, 1e6), b=st.floats(0.1, 1e6))
def test_formulas_are_worked_out_as_python_would(a: float, b: float) -> None:
    assert evaluate("(a - b) / b", {"a": a, "b": b}) == pytest.approx((a - b) / b)
    assert holds(f"{a} < {b}") is (a < b)


@pytest.mark.parametrize(
    "text", ["__import__('os')", "a ** 9", "[1]", "1 if 1 else 2", "a.b", "1 / 0", "9" * 400, "lambda: 1"]
)
def test_a_formula_is_numbers_names_and_four_signs(text: str) -> None:
    with pytest.raises(UsageError):
        evaluate(text, {"a": 1.0})
