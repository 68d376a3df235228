"""Audits claims: `penstock.audit`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Final, TypeAlias

from rich.console import RenderableType

from penstock.api.answer import ApiAnswer, Row
from penstock.audit.article_claims import shipped_claims
from penstock.audit.claims.claim import Claim
from penstock.audit.claims.kind_names import kind_of
from penstock.audit.judge_claims import Audited, audit_claims
from penstock.audit.parsing.claims_file import parse_claims
from penstock.audit.parsing.sentence import parse_sentence
from penstock.audit.parsing.tender_sheet import parse_sheet
from penstock.audit.reference_library import Library, shipped_facts
from penstock.catalog import load_accelerator, load_measurements, load_prices, measurement_sources
from penstock.checkpoint import open_checkpoint
from penstock.errors import UsageError
from penstock.performance.shipped.shipped_runs import model_of, shape_of_name, shipped_efficiencies
from penstock.preflight import Subject, load_knowledge
from penstock.preflight.facts.subject import subject_of
from penstock.reading.text import read_text
from penstock.report.audit.audit_sentences import claim_text, counts
from penstock.report.audit.document import AuditDocument
from penstock.report.audit.terminal import render_audit

AskedClaims: TypeAlias = str | PathLike[str] | Claim | Sequence["str | PathLike[str] | Claim"]
_MAX_BYTES: Final = 2_000_000
_FILE_HELP: Final = "`penstock audit --init > claims.yaml` writes an example"
_SHEET_HELP: Final = "name a sheet that was saved as CSV in UTF-8"
_FILES: Final = (".yaml", ".yml")


@dataclass(frozen=True, kw_only=True, repr=False)
class AuditAnswer(ApiAnswer):
    """Verdicts of an audit, one for each claim."""

    document_type = AuditDocument
    audited: tuple[Audited, ...]
    today: date

    @property
    def good(self) -> bool:
        """Return whether no claim is impossible or contradicted."""
        return not any(entry.judgement.verdict.damning for entry in self.audited)

    def rows(self) -> list[Row]:
        """Return one row per claim."""
        return [_row(entry) for entry in self.audited]

    def render(self, columns: int) -> RenderableType:
        """Return what `audit` prints."""
        del columns  # its lines wrap by themselves
        return render_audit(self.audited)

    def _summary(self) -> tuple[str, Sequence[str]]:
        if len(self.audited) == 1:
            entry = self.audited[0]
            return claim_text(entry.claim), [entry.judgement.verdict.value]
        return f"{len(self.audited)} claims", [f"{count} {verdict}" for verdict, count in counts(self.audited).items()]


def audit(
    claims: AskedClaims | None = None,
    *,
    sheet: str | PathLike[str] | None = None,
    ledger: bool = False,
    today: date | None = None,
) -> AuditAnswer:
    """Check claims, as `penstock audit` does: a file of claims, a sentence, `sheet="answer.csv"`, or `Claim` objects.

    `ledger=True` audits the shipped ledger: claims of five articles.
    """
    given = [claims is not None, sheet is not None, ledger]
    if sum(given) != 1:
        raise UsageError("give exactly one of: a file of claims, a sentence in quotes, --sheet FILE, --ledger")
    if ledger:
        found: Sequence[Claim] = shipped_claims()
    elif sheet is not None:
        path = Path(sheet)
        found = parse_sheet(read_text(path, _SHEET_HELP, most_bytes=_MAX_BYTES), path.name)
    else:
        found = _claims(claims if claims is not None else ())
    day = today or datetime.now(tz=UTC).date()
    return AuditAnswer(audited=audit_claims(found, shipped_library(day)), today=day)


@cache
def shipped_library(today: date) -> Library:
    """Build the library of the reference data that ships with the package."""
    return Library(
        accelerator_of=load_accelerator,
        model_of=model_of,
        prices_of=load_prices,
        measurements_of=load_measurements,
        sources=measurement_sources(),
        shape_of=shape_of_name,
        efficiencies=shipped_efficiencies(),
        facts=shipped_facts(),
        subject_of=_subject,
        knowledge=load_knowledge,
        today=today,
    )


@cache
def _subject(name: str) -> Subject:
    return subject_of(open_checkpoint(name), name)


def _claims(given: AskedClaims) -> Sequence[Claim]:
    if isinstance(given, Claim):
        return (given,)
    if isinstance(given, str) and not given.lower().endswith(_FILES):
        if Path(given).suffix.lower() == ".csv" or given.lower().endswith(".csv"):
            raise UsageError(f"'{given}' is a CSV sheet; use `--sheet {given}`")
        return (parse_sentence(given),)
    if isinstance(given, str | PathLike):
        path = Path(given)
        return parse_claims(read_text(path, _FILE_HELP, most_bytes=_MAX_BYTES), path.name)
    if not given:
        raise UsageError("there is no claim to audit; give at least one")
    return tuple(claim for one in given for claim in _claims(one))


def _row(entry: Audited) -> Row:
    claim, judgement = entry.claim, entry.judgement
    return {
        "id": claim.id,
        "kind": kind_of(claim.statement),
        "says": claim_text(claim),
        "topic": claim.topic,
        "title": claim.said.title,
        "said_on": None if claim.said.said_on is None else claim.said.said_on.isoformat(),
        "verdict": judgement.verdict.value,
        "verdict_today": (judgement.today or judgement.verdict).value,
        "reason": judgement.reason,
        "arithmetic": "; ".join(str(line) for line in judgement.workings),
        "true_if": judgement.true_if,
    }
