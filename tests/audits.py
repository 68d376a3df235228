"""What tests of the audit share: the library as of a fixed day, and one claim judged."""

from datetime import date
from functools import cache

from penstock.api.audit import shipped_library
from penstock.audit.judge_claims import judge
from penstock.audit.judgement import Judgement
from penstock.audit.parsing.claims_file import parse_claims
from penstock.audit.parsing.sentence import parse_sentence
from penstock.audit.reference_library import Library

TODAY = date(2026, 11, 15)


@cache
def library() -> Library:
    return shipped_library(TODAY)


def judged(claim: str, said_on: str = "2026-06-01") -> Judgement:
    """Judge one claim, written as the entry of a file: `spec: {accelerator: h100, ...}`."""
    text = f"version: 2\nsource: {{said_on: {said_on}}}\nclaims:\n  - {claim}\n"
    return judge(parse_claims(text, "test.yaml")[0], library())


def judged_sentence(text: str) -> Judgement:
    return judge(parse_sentence(text), library())
