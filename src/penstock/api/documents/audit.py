"""Document of `audit`."""

from typing import Literal

from typing_extensions import TypedDict

VerdictWord = Literal["impossible", "contradicted", "implausible", "plausible", "confirmed", "undetermined"]


class WorkingDocument(TypedDict):
    """One line of arithmetic."""

    expression: str
    result: float | bool
    what: str


class CitedDocument(TypedDict):
    """A consulted source."""

    title: str
    url: str | None


class AuditedClaim(TypedDict):
    """One claim with its verdict and evidence."""

    id: str
    kind: str
    says: str
    key: str
    topic: str
    who: str
    title: str
    address: str | None
    said_on: str | None
    line: int | None
    verdict: VerdictWord
    verdict_today: VerdictWord
    reason: str
    arithmetic: list[WorkingDocument]
    true_if: str | None
    sources: list[CitedDocument]
    points_at: list[str]
    contradicts: list[str]


class AuditDocument(TypedDict):
    """What `audit --json` prints."""

    schema: Literal["penstock.audit/1"]
    today: str
    passes: bool
    verdicts: dict[str, int]
    claims: list[AuditedClaim]
