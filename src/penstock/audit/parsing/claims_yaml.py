"""Parses claim files in YAML strictly; every error names the line and a fix."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from penstock.audit.claims.claim import Claim, Said, Statement
from penstock.audit.parsing.claim_kinds import KINDS, read_kind
from penstock.reading.yaml import Table, Value, read_table

_WRITTEN_BY: Final = "penstock audit --init"
_MAX_CLAIMS: Final = 10_000
_IDENT: Final = re.compile(r"[a-z0-9][a-z0-9._/-]{0,79}", re.IGNORECASE)
_KEY_WORDS: Final = 12
VERSION: Final = 1


def parse_claims(text: str, where: str) -> tuple[Claim, ...]:
    """Parse a claim file."""
    return read_claims(read_table(text, where, kind="file of claims", written_by=_WRITTEN_BY))


def read_claims(table: Table) -> tuple[Claim, ...]:
    """Parse the top-level table of a claim file."""
    table.version(VERSION, written_by=_WRITTEN_BY)
    table.only("version", "source", "claims")
    said = table.optional("source", _said, Said())
    listed = table.required("claims")
    entries = list(listed.items())
    if not entries:
        listed.refuse("is empty; write one claim or more")
    if len(entries) > _MAX_CLAIMS:
        listed.refuse(f"{len(entries):,} claims are too many for one file; the limit is {_MAX_CLAIMS:,}")
    claims = [_claim(entry, number, said) for number, entry in enumerate(entries, 1)]
    _check_ids(claims, entries)
    return tuple(claims)


def _check_ids(claims: Sequence[Claim], entries: Sequence[Value]) -> None:
    known: dict[str, int] = {}
    for claim, entry in zip(claims, entries, strict=True):
        if claim.id in known:
            entry.refuse(f"the id '{claim.id}' is that of the claim on line {known[claim.id]}; give it another")
        known[claim.id] = entry.line
    for claim, entry in zip(claims, entries, strict=True):
        for other in (*claim.points_at, *claim.contradicts):
            if other == claim.id:
                entry.refuse(f"'{claim.id}' points at itself")
            if other not in known and "/" not in other:
                entry.refuse(f"'{claim.id}' points at '{other}', and no claim has that id")


def _claim(value: Value, number: int, said: Said) -> Claim:
    table = value.table("id", "key", "says", "topic", "source", "points_at", "contradicts", *KINDS)
    ident = table.optional("id", _ident, f"claim-{number}")
    key = table.optional("key", _key, "")
    words, topic = table.optional("says", Value.text, ""), table.optional("topic", Value.text, "")
    own = table.optional("source", _said, said)
    nobody: tuple[str, ...] = ()
    points_at, contradicts = (table.optional(name, _idents, nobody) for name in ("points_at", "contradicts"))
    statement = _statement(table)
    return Claim(
        id=ident,
        statement=statement,
        said=own,
        words=words,
        key=key,
        topic=topic,
        points_at=points_at,
        contradicts=contradicts,
        line=value.line,
    )


def _statement(table: Table) -> Statement:
    """Parse the statement of a claim; a claim has exactly one kind."""
    found = [(name, entry) for name in KINDS if (entry := table.get(name)) is not None]
    if len(found) != 1:
        said = "says nothing" if not found else f"says {' and '.join(name for name, _ in found)} at once"
        table.value.refuse(f"{said}; a claim has one of {', '.join(KINDS)}")
    name, entry = found[0]
    return entry.made(lambda inner: read_kind(inner, KINDS[name]))


def _said(value: Value) -> Said:
    table = value.table("who", "title", "address", "said_on")
    return Said(
        who=table.optional("who", Value.text, ""),
        title=table.optional("title", Value.text, ""),
        address=table.optional("address", _address, None),
        said_on=table.optional("said_on", Value.date, None),
    )


def _address(value: Value) -> str | None:
    text = value.text()
    if not re.match(r"https?://\S+$", text):
        value.refuse(f"'{text[:40]}' is not an address; write https://...")
    return text


def _ident(value: Value) -> str:
    text = value.text()
    if not _IDENT.fullmatch(text):
        value.refuse(f"'{text[:40]}' is not an id; write letters, digits and dashes, such as h100-fp8")
    return text


def _idents(value: Value) -> tuple[str, ...]:
    return tuple(_ident(entry) for entry in value.items())


def _key(value: Value) -> str:
    text = value.text()
    if len(text.split()) > _KEY_WORDS:
        value.refuse(f"{len(text.split())} words; a key has at most {_KEY_WORDS}, enough to find the place")
    return text


def filed_under(prefix: str, claims: Sequence[Claim]) -> tuple[Claim, ...]:
    """Prefix the ids of one file's claims, so that they are unique across files."""

    def under(ident: str) -> str:
        return ident if "/" in ident else f"{prefix}/{ident}"

    return tuple(
        replace(
            claim,
            id=under(claim.id),
            points_at=tuple(under(other) for other in claim.points_at),
            contradicts=tuple(under(other) for other in claim.contradicts),
        )
        for claim in claims
    )


def unknown_targets(claims: Sequence[Claim]) -> list[str]:
    """List the ids that claims refer to and that do not exist."""
    known = {claim.id for claim in claims}
    return sorted({other for claim in claims for other in (*claim.points_at, *claim.contradicts)} - known)


EXAMPLE_CLAIMS: Final = """\
# Claims to check: `penstock audit claims.yaml`. Every kind and its keys: docs/audit.md, or `penstock audit --schema`.
version: 1
source:
  who: the vendor's sales team
  title: Offer of 1 June
  said_on: 2026-06-01
claims:
  - id: h100-fp8
    says: an H100 has 3,958 TFLOPS of FP8
    spec: {part: h100, quantity: fp8, figure: 3958 TFLOPS}
  - id: memory
    says: MI300X has 1.5 times the memory of H100
    ratio: {part: mi300x, over: h100, quantity: memory, figure: 1.5x}
  - id: two-cards
    says: Llama 3.1 405B runs on two MI300X
    fits: {model: llama-3.1-405b, hardware: 2x mi300x, precision: fp8}
  - id: rate
    says: 2,800 tok/s for a 70B in FP16 on one H100
    speed: {model: llama-3.1-70b, precision: fp16, hardware: 1x h100, figure: 2800 tok/s}
  - id: cost
    says: eight H200 at $3.50 an hour each make 6,000 tok/s, or $0.80 a million
    cost: {usd_per_hour: 28, tokens_per_s: 6000, figure: $0.80 /Mtok}
"""
