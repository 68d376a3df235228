"""JSON document of `audit --json`: every claim with its verdict, reason, arithmetic and sources."""

from collections.abc import Sequence
from datetime import date
from typing import Final

from penstock.audit.claims.kind_names import kind_of
from penstock.audit.judge_claims import Audited
from penstock.report.audit.audit_sentences import counts
from penstock.report.drawing.plain_json import plain

SCHEMA: Final = "penstock.audit/1"
"""Schema version. It changes if a field is renamed, removed or redefined; new fields do not change it."""


def audit_document(audited: Sequence[Audited], today: date) -> dict[str, object]:
    """Collect the document that `audit --json` prints."""
    return {
        "schema": SCHEMA,
        "today": today.isoformat(),
        "passes": not any(entry.judgement.verdict.damning for entry in audited),
        "verdicts": {verdict.value: count for verdict, count in counts(audited).items()},
        "claims": [_claim(entry) for entry in audited],
    }


def _claim(entry: Audited) -> dict[str, object]:
    claim, judgement = entry.claim, entry.judgement
    return {
        "id": claim.id,
        "kind": kind_of(claim.statement),
        "says": claim.words,
        "key": claim.key,
        "topic": claim.topic,
        "who": claim.said.who,
        "title": claim.said.title,
        "address": claim.said.address,
        "said_on": plain(claim.said.said_on),
        "line": claim.line,
        "verdict": judgement.verdict.value,
        "verdict_today": (judgement.today or judgement.verdict).value,
        "reason": judgement.reason,
        "arithmetic": [plain(line) for line in judgement.workings],
        "true_if": judgement.true_if,
        "sources": [plain(source) for source in judgement.sources],
        "points_at": list(claim.points_at),
        "contradicts": list(claim.contradicts),
    }
