"""Claims as buyers type them: names, units, commas and figures of the accelerator next to the one that was meant."""

import pytest

from audits import judged, judged_sentence, library
from penstock.audit.claims.amount import parse_amount
from penstock.audit.judge_claims import judge
from penstock.audit.judgement import Verdict
from penstock.audit.parsing.claim_terms import (
    ENGINES,
    accelerator_name,
    counted_accelerator,
    engine_name,
    model_name,
    span,
)
from penstock.audit.parsing.sentence import parse_sentence
from penstock.audit.parsing.tender_sheet import parse_sheet
from penstock.catalog import load_measurements
from penstock.errors import UsageError


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("5,3 TB/s", 5.3e12),
        ("3,958 TFLOPS", 3958e12),
        ("2900,5 tok/s", 2900.5),
        ("0,57 usd", 0.57),
        ("6.000,5 tok/s", 6000.5),
        ("1,234,567 tok/s", 1234567.0),
    ],
)
def test_a_comma_that_does_not_part_thousands_is_a_decimal_one(written: str, meant: float) -> None:
    assert parse_amount(written).low == pytest.approx(meant)


def test_commas_that_are_neither_are_refused() -> None:
    with pytest.raises(UsageError, match="ambiguous commas"):
        parse_amount("1,23,45 GB")


def test_a_decimal_comma_does_not_make_a_claim_ten_times_as_large() -> None:
    assert judged_sentence("mi300x bandwidth: 5,3 TB/s").verdict is Verdict.CONFIRMED


def test_a_rounded_figure_says_how_far_off_it_is() -> None:
    found = judged_sentence("b200 bandwidth: 8 TB/s")
    assert found.verdict is Verdict.CONFIRMED
    assert "which is 7.7 TB/s; the difference of 4% is within the rounding of 8 TB/s" in found.reason
    assert judged_sentence("b200 bandwidth: 8.0 TB/s").verdict is Verdict.PLAUSIBLE


@pytest.mark.parametrize("claim", ["h100 memory: 90 GB", "mi300x memory: over 215 GB", "mi325x memory: under 240 GB"])
def test_what_no_reading_gives_is_contradicted(claim: str) -> None:
    assert judged_sentence(claim).verdict is Verdict.CONTRADICTED


def test_over_and_under_are_meant() -> None:
    assert judged_sentence("mi300x memory: over 190 GB").verdict is Verdict.CONFIRMED
    assert judged_sentence("mi300x memory: over 200 GB").verdict is Verdict.PLAUSIBLE
    assert judged_sentence("mi300x memory: 200 GB").verdict is Verdict.PLAUSIBLE


@pytest.mark.parametrize(
    ("claim", "whose"),
    [
        ("h100 memory: 94 GB", "H100 NVL"),
        ("h100 bandwidth: 2 TB/s", "H100 PCIe"),
        ("h100 tdp: 350 W", "H100 PCIe"),
        ("b200 fp4: 10 PFLOPS", "GB200"),
        ("b300 tdp: 1400 W", "GB300"),
        ("a100 memory: 40 GB", "40 GB version"),
        ("mi250x memory: 128 GB", "package"),
        ("gb200 memory: 372 GB", "superchip"),
        ("h100 nvl memory: 188 GB", "pair"),
        ("h100 fp64: 34 TFLOPS", "vector"),
        ("mi300x fp64: 81.7 TFLOPS", "vector"),
    ],
)
def test_a_figure_of_what_else_bears_the_name_is_not_refuted(claim: str, whose: str) -> None:
    found = judged_sentence(claim)
    assert found.verdict is Verdict.PLAUSIBLE
    assert whose in found.reason
    assert found.true_if is not None


@pytest.mark.parametrize(
    "claim", ["h100_sxm memory: 94 GB", "a100_80gb_sxm memory: 40 GB", "h100 sxm tdp: 350 W", "mi325x memory: 288 GB"]
)
def test_a_part_named_in_full_means_no_other(claim: str) -> None:
    assert judged_sentence(claim).verdict is Verdict.CONTRADICTED


def test_the_sparse_rate_of_a_variant_is_named_and_still_wrong() -> None:
    found = judged_sentence("b200 fp4: 20 PFLOPS")
    assert found.verdict is Verdict.CONTRADICTED
    assert "2:4 sparsity of NVIDIA GB200" in found.reason


@pytest.mark.parametrize("claim", ["mi300x link: 128 GB/s", "mi300x link: 64 GB/s", "mi300x link: 896 GB/s"])
def test_a_link_is_read_to_one_peer_and_to_all(claim: str) -> None:
    assert judged_sentence(claim).verdict is Verdict.CONFIRMED


@pytest.mark.parametrize("claim", ["a100 fp8: 624 TFLOPS", "h100 fp4: 4 PFLOPS", "mi300x fp4: 2.6 PFLOPS"])
def test_a_format_the_part_lacks_has_no_rate(claim: str) -> None:
    assert judged_sentence(claim).verdict is Verdict.CONTRADICTED


def test_a_figure_is_not_explained_by_another_format_of_a_whole_node() -> None:
    assert "8 devices" not in judged_sentence("mi355x fp4: 20 PFLOPS").reason


def test_a_rack_has_the_memory_of_all_its_devices() -> None:
    assert judged_sentence("gb200 nvl72 memory: 13.4 TB").verdict is Verdict.CONFIRMED
    assert judged_sentence("gb200 nvl72 link_domain: 72").verdict is Verdict.CONFIRMED


@pytest.mark.parametrize(
    ("typed", "accelerator"),
    [
        ("AMD Instinct MI300X", "mi300x"),
        ("NVIDIA H100", "h100_sxm"),
        ("H100 SXM5 80GB", "h100_sxm"),
        ("Gaudi 3", "gaudi3"),
        ("rtx 4090", "rtx_4090"),
    ],
)
def test_parts_are_known_by_what_people_call_them(typed: str, accelerator: str) -> None:
    assert accelerator_name(typed) == accelerator


def test_a_memory_the_part_does_not_have_is_not_overlooked() -> None:
    with pytest.raises(UsageError, match="a100_40gb"):
        accelerator_name("a100_40gb")
    with pytest.raises(UsageError, match="no accelerator"):
        accelerator_name("NVIDIA H100 40GB")


@pytest.mark.parametrize("typed", ["2x h100", "2 h100", "2 x NVIDIA H100", "h100:2"])
def test_devices_are_counted_however_it_is_written(typed: str) -> None:
    assert counted_accelerator(typed) == ("h100_sxm", 2)


@pytest.mark.parametrize("typed", ["Llama 3.1 70B", "llama3.1-70b", "Meta-Llama-3.1-70B-Instruct", "llama_3.1_70b"])
def test_models_are_known_by_what_people_call_them(typed: str) -> None:
    assert model_name(typed) == "llama-3.1-70b"


@pytest.mark.parametrize(
    ("typed", "first", "last"),
    [
        ("December 2023", "2023-12-01", "2023-12-31"),
        ("6 December 2023", "2023-12-06", "2023-12-06"),
        ("Nov 2023", "2023-11-01", "2023-11-30"),
    ],
)
def test_months_have_names(typed: str, first: str, last: str) -> None:
    found = span(typed)
    assert (f"{found.first}", f"{found.last}") == (first, last)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("at 1 user: 20 ms", "at 1 users: 20 ms"),
        ("at 64 concurrent users: 20 ms", "at 64 users: 20 ms"),
        ("at concurrency 64: 20 ms", "at 64 users: 20 ms"),
        ("at 64 users: 20 ms per token", "at 64 users: 20 ms"),
        ("at 64 users: TPOT 20 ms", "at 64 users: 20 ms"),
        ("at 64 users: TTFT 20 ms", "at 64 users: 20 ms to first token"),
    ],
)
def test_loads_and_times_are_understood_in_other_words(one: str, other: str) -> None:
    found, same = (parse_sentence(f"Llama 3.1 70B FP8 on 2 NVIDIA H100 {said}") for said in (one, other))
    assert found.statement == same.statement


def test_what_is_said_to_fit_includes_lengths_and_users() -> None:
    setup = "llama-3.1-70b fp16 on 1x mi300x"
    assert judged_sentence(f"{setup} in 8k/1k: fits").verdict is Verdict.CONFIRMED
    many = judged_sentence(f"{setup} in 128k/1k at 64 users: fits")
    assert many.verdict is Verdict.IMPLAUSIBLE
    assert "not 64 x 131,072" in many.reason
    assert many.true_if == "there were fewer users, shorter contexts or more devices"
    assert judged_sentence(f"{setup} in 128k/1k at 64 users: does not fit").verdict is Verdict.CONFIRMED
    # 129,826 tokens have room in two bytes a number, twice as many in one.
    one = judged_sentence(f"{setup} in 131072/1024: fits")
    assert one.verdict is Verdict.PLAUSIBLE
    assert "fp8 cache" in one.reason
    with pytest.raises(UsageError, match="no request lengths"):
        judged_sentence(f"{setup} at 64 users: fits")


def test_weights_without_a_format_may_be_in_any_usual_one() -> None:
    found = judged("size: {model: llama-3.1-70b, of: weights, figure: 72 GB}")
    assert found.verdict is Verdict.PLAUSIBLE
    assert "fp8" in found.reason
    assert judged("size: {model: llama-3.1-70b, of: weights, figure: 100 GB}").verdict is Verdict.CONTRADICTED


def test_the_parameters_one_token_uses_are_named() -> None:
    found = judged("size: {model: deepseek-r1, of: params, figure: 37B}")
    assert found.verdict is Verdict.PLAUSIBLE
    assert "671 billion" in found.reason
    assert "one token uses" in found.reason
    assert judged("size: {model: deepseek-r1, of: params, figure: 100B}").verdict is Verdict.CONTRADICTED


def test_a_fact_about_fp8_in_words_is_its_dialect() -> None:
    assert judged("fact: {subject: mi300x, about: fp8, says: fnuz}").verdict is Verdict.CONFIRMED
    assert judged("fact: {subject: mi300x, about: fp8, says: ocp}").verdict is Verdict.CONTRADICTED
    assert judged("fact: {subject: mi300x, about: fp16, says: ieee}").verdict is Verdict.UNDETERMINED


def test_a_release_nobody_read_is_undetermined() -> None:
    found = judged("runs: {model: llama-3.1-70b, hardware: 1x mi300x, engine: vllm, version: 99.0}")
    assert found.verdict is Verdict.UNDETERMINED
    assert "newest known release" in found.reason


@pytest.mark.parametrize("written", ["trtllm", "TRT-LLM", "TensorRT-LLM", "tensorrt_llm"])
def test_an_engine_is_known_by_all_of_its_names_at_every_door(written: str) -> None:
    sentence = f"gpt-oss-120b mxfp4 on 1x b200 with {written} in 1k/1k at 256 users: 203 ms to first token"
    assert judged_sentence(sentence).verdict is Verdict.CONFIRMED
    load = "model: gpt-oss-120b, precision: mxfp4, hardware: 1x b200, input: 1k, output: 1k, concurrency: 256"
    assert judged(f"speed: {{{load}, engine: {written}, metric: ttft, figure: 203 ms}}").verdict is Verdict.CONFIRMED
    heading = "model,on,precision,engine,input,output,concurrency,ttft_ms"
    (claim,) = parse_sheet(f"{heading}\ngpt-oss-120b,1x b200,mxfp4,{written},1k,1k,256,203\n", "s.csv")
    assert judge(claim, library()).verdict is Verdict.CONFIRMED


@pytest.mark.parametrize(("written", "engine"), [("vLLM", "vllm"), ("SGLANG", "sglang"), ("ATOM", "atom")])
def test_the_case_of_an_engine_does_not_matter(written: str, engine: str) -> None:
    assert engine_name(written) == engine


def test_an_unknown_engine_is_refused_with_the_known_names() -> None:
    message = (
        "there are no published measurements of the engine 'foo'; engines with measurements: "
        "vllm, sglang, trtllm, atom, vllm-atom, sglang-atom"
    )
    with pytest.raises(UsageError, match=message):
        parse_sentence("gpt-oss-120b on 1x b200 with foo: 2000 tok/s")
    with pytest.raises(UsageError, match=message):
        judged("speed: {model: gpt-oss-120b, hardware: 1x b200, engine: foo, figure: 2000 tok/s}")
    with pytest.raises(UsageError, match=message):
        parse_sheet("model,on,engine,tok/s\ngpt-oss-120b,1x b200,foo,2000\n", "s.csv")


def test_every_engine_with_published_rows_has_a_name() -> None:
    assert {row.engine for row in load_measurements()} == set(ENGINES)
