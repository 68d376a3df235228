"""Defines the JSON document of `audit --json`.

The document lists every claim with its verdict, reason, arithmetic and sources.
"""

from typing import Annotated, Literal

from typing_extensions import TypedDict

from penstock.audit.claims.kind_names import kind_of
from penstock.audit.judgement import Cited, Verdict, Working
from penstock.report.audit.audit_sentences import counts
from penstock.report.drawing.json_document import at


class AuditedClaim(TypedDict):
    """One claim with its verdict and evidence."""

    id: Annotated[str, at("claim.id")]
    kind: Annotated[str, at(lambda entry: kind_of(entry.claim.statement))]
    says: Annotated[str, at("claim.words")]
    key: Annotated[str, at("claim.key")]
    topic: Annotated[str, at("claim.topic")]
    who: Annotated[str, at("claim.said.who")]
    title: Annotated[str, at("claim.said.title")]
    address: Annotated[str | None, at("claim.said.address")]
    said_on: Annotated[str | None, at("claim.said.said_on")]
    line: Annotated[int | None, at("claim.line")]
    verdict: Annotated[Verdict, at("judgement.verdict")]
    verdict_today: Annotated[Verdict, at(lambda entry: entry.judgement.today or entry.judgement.verdict)]
    reason: Annotated[str, at("judgement.reason")]
    arithmetic: Annotated[list[Working], at("judgement.workings")]
    true_if: Annotated[str | None, at("judgement.true_if")]
    sources: Annotated[list[Cited], at("judgement.sources")]
    points_at: Annotated[list[str], at("claim.points_at")]
    contradicts: Annotated[list[str], at("claim.contradicts")]


class AuditDocument(TypedDict):
    """What `audit --json` prints."""

    schema: Literal["penstock.audit/1"]
    today: str
    passes: Annotated[bool, at("good")]
    verdicts: Annotated[dict[str, int], at(lambda answer: counts(answer.audited))]
    claims: Annotated[list[AuditedClaim], at("audited")]
