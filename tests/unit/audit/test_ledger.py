"""The five articles: what is claimed, what came out, and that every figure of a reason can be redone."""

import re
from collections import Counter
from functools import cache
from math import isclose
from pathlib import Path

import pytest

from audits import library
from penstock.audit.arithmetic import evaluate, holds
from penstock.audit.article_claims import contradictions, shipped_claims
from penstock.audit.claims.kind_names import kind_of
from penstock.audit.judge_claims import Audited, audit_claims
from penstock.audit.judgement import Verdict
from penstock.audit.parsing.claim_kinds import KINDS

ARTICLES = Path(__file__).resolve().parents[4] / "shared" / "articles"
FILES = {"scorecard": "000", "memory-wall": "001", "deep-dive": "002", "showdown": "003", "bring-up": "004"}
CAUGHT = {
    "scorecard/h100-fp8": Verdict.CONTRADICTED,
    "deep-dive/h100-fp8": Verdict.CONTRADICTED,
    "deep-dive/h100-fp16": Verdict.CONTRADICTED,
    "deep-dive/compute-1.5x": Verdict.CONTRADICTED,
    "scorecard/memory-1.5x": Verdict.CONTRADICTED,
    "deep-dive/h100-70b-fp16": Verdict.IMPOSSIBLE,
    "deep-dive/a100-70b-fp16": Verdict.IMPOSSIBLE,
    "memory-wall/405b-on-two-fp16": Verdict.IMPOSSIBLE,
    "memory-wall/405b-on-two-fp8": Verdict.IMPLAUSIBLE,
    "memory-wall/405b-on-two-int4": Verdict.CONFIRMED,
    "scorecard/mi325x-bandwidth": Verdict.CONTRADICTED,
    "scorecard/mi325x-shipping": Verdict.CONTRADICTED,
    "scorecard/mi325x-watts": Verdict.CONTRADICTED,
    "showdown/node-bandwidth": Verdict.CONTRADICTED,
    "scorecard/tco": Verdict.CONTRADICTED,
    "scorecard/tco-engineers": Verdict.CONTRADICTED,
    "deep-dive/xtx-q4": Verdict.IMPOSSIBLE,
    "deep-dive/4090-q4": Verdict.IMPOSSIBLE,
    "deep-dive/q4-15-20": Verdict.IMPLAUSIBLE,
    "scorecard/export-below": Verdict.CONTRADICTED,
    "deep-dive/wave32": Verdict.CONTRADICTED,
    "bring-up/fnuz-name": Verdict.CONTRADICTED,
    "scorecard/mi325x-mentioned": Verdict.CONTRADICTED,
    "scorecard/b200-mentioned": Verdict.CONTRADICTED,
    "scorecard/rocm-6.1-mentioned": Verdict.CONTRADICTED,
    "scorecard/flash-attention-3-mentioned": Verdict.CONTRADICTED,
    "scorecard/within-11": Verdict.UNDETERMINED,
    "memory-wall/aiter-2.7-4.4": Verdict.CONFIRMED,
    "scorecard/pytorch-2.2": Verdict.CONTRADICTED,
    "scorecard/fifty-watts": Verdict.CONTRADICTED,
    "deep-dive/gfx942": Verdict.CONTRADICTED,
    "deep-dive/sm-shared": Verdict.CONTRADICTED,
    "deep-dive/utilization-0.85": Verdict.CONTRADICTED,
}


@cache
def audited() -> dict[str, Audited]:
    return {entry.claim.id: entry for entry in audit_claims(shipped_claims(), library())}


def test_there_are_two_hundred_claims_of_nearly_every_kind() -> None:
    claims = shipped_claims()
    assert len(claims) >= 200
    assert len({claim.id for claim in claims}) == len(claims)
    found = Counter(kind_of(claim.statement) for claim in claims)
    assert set(KINDS) - set(found) <= {"cost", "change"}
    assert found["unknown"] < len(claims) / 8
    assert all(claim.words and claim.topic and claim.key for claim in claims)


def test_at_least_forty_pairs_contradict_each_other() -> None:
    pairs = contradictions(shipped_claims())
    assert len(pairs) >= 40
    across = [pair for pair in pairs if len({ident.split("/")[0] for ident in pair}) == 2]
    assert len(across) >= 20
    assert len(pairs) - len(across) >= 10


@pytest.mark.parametrize(("ident", "verdict"), CAUGHT.items())
def test_what_is_known_to_be_wrong_is_caught_with_its_arithmetic(ident: str, verdict: Verdict) -> None:
    judgement = audited()[ident].judgement
    assert judgement.verdict is verdict, judgement.reason
    assert judgement.workings or judgement.sources
    assert judgement.verdict in {Verdict.CONFIRMED, Verdict.UNDETERMINED} or judgement.true_if


@pytest.mark.parametrize(
    "ident",
    ["scorecard/tco-varied", "scorecard/faq-1.6x", "scorecard/b200-4.5x", "showdown/vllm-tier-1", "showdown/fa3-there"],
)
def test_what_an_article_gives_no_inputs_for_is_undetermined(ident: str) -> None:
    assert audited()[ident].judgement.verdict is Verdict.UNDETERMINED


def test_every_line_of_arithmetic_can_be_redone() -> None:
    lines = [line for entry in audited().values() for line in entry.judgement.workings]
    assert len(lines) > 200
    for line in lines:
        if isinstance(line.result, bool):
            assert holds(line.expression) is line.result, line
        else:
            assert isclose(evaluate(line.expression), line.result, rel_tol=2e-3, abs_tol=1e-9), line


def test_no_verdict_but_undetermined_comes_without_arithmetic_or_a_source() -> None:
    for entry in audited().values():
        judgement = entry.judgement
        assert judgement.reason, entry.claim.id
        assert judgement.workings or judgement.sources or judgement.verdict is Verdict.UNDETERMINED, entry.claim.id
        if judgement.verdict.damning:
            assert judgement.sources or "own inputs" in judgement.reason


def test_pairs_that_contradict_are_never_both_confirmed() -> None:
    both = [
        pair
        for pair in contradictions(shipped_claims())
        if all(audited()[ident].judgement.verdict is Verdict.CONFIRMED for ident in pair)
    ]
    assert not both


def test_no_line_of_arithmetic_compares_a_digit_with_itself() -> None:
    lines = [line.expression for entry in audited().values() for line in entry.judgement.workings]
    assert not [line for line in lines if re.fullmatch(r"(\d) (==|>) \1|1( \+ 1)+", line)]


def test_no_reason_prints_a_negative_discount() -> None:
    assert not [entry.claim.id for entry in audited().values() if re.search(r"(?<!\d)-\d+%", entry.judgement.reason)]


@pytest.mark.shared
@pytest.mark.parametrize("article", FILES)
def test_every_key_is_in_its_article(article: str) -> None:
    found = sorted(ARTICLES.glob(f"{FILES[article]}_*.txt")) if ARTICLES.is_dir() else []
    if not found:
        pytest.skip("the articles are kept beside the checkout")
    text = _flat(found[0].read_text(encoding="utf-8"))
    lost = [
        claim.id for claim in shipped_claims() if claim.id.startswith(f"{article}/") and _flat(claim.key) not in text
    ]
    assert not lost


def _flat(text: str) -> str:
    return re.sub(r"[\s│]+", " ", text)
