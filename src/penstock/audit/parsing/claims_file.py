"""Declares the keys of a claim file, and reads such a file.

An error message is one line that has the line number and the correction.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Final

from penstock.audit.claims.claim import Claim, Said, Statement
from penstock.audit.parsing.claim_kinds import KINDS
from penstock.audit.saving_claim import SAVING_KEYS, SavingClaim
from penstock.errors import UsageError
from penstock.reading.file_shape import FieldError, FileShape, file_config
from penstock.reading.scalars import Parsed, Whole
from penstock.reading.yaml_tree import YamlTree

_MAX_CLAIMS: Final = 10_000
_ID: Final = re.compile(r"[a-z0-9][a-z0-9._/-]{0,79}", re.IGNORECASE)
_KEY_WORDS: Final = 12
VERSION: Final = 2


def _check_id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise UsageError(f"'{text[:40]}' is not an id; write letters, digits and dashes, such as h100-fp8")
    return text


def _check_key(text: str) -> str:
    if len(text.split()) > _KEY_WORDS:
        raise UsageError(
            f"`key` has {len(text.split())} words; quote at most {_KEY_WORDS} words, enough to find the passage"
        )
    return text


_Id = Annotated[str, Parsed(_check_id, {"type": "string"})]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimEntry:
    """A claim: one statement, under the key of its kind."""

    id: _Id | None = None
    says: str = ""
    """The claim in your words."""
    key: Annotated[str, Parsed(_check_key, {"type": "string"})] = ""
    """At most twelve words of the original, to find the place."""
    topic: str = ""
    source: Said | None = None
    points_at: tuple[_Id, ...] = ()
    """Ids of other claims that this claim relies on or repeats."""
    contradicts: tuple[_Id, ...] = ()
    """Ids of other claims that cannot be true together with this claim."""
    spec: Annotated[Statement, KINDS["spec"]] | None = None
    ratio: Annotated[Statement, KINDS["ratio"]] | None = None
    limit: Annotated[Statement, KINDS["limit"]] | None = None
    fits: Annotated[Statement, KINDS["fits"]] | None = None
    runs: Annotated[Statement, KINDS["runs"]] | None = None
    size: Annotated[Statement, KINDS["size"]] | None = None
    speed: Annotated[Statement, KINDS["speed"]] | None = None
    faster: Annotated[Statement, KINDS["faster"]] | None = None
    price: Annotated[Statement, KINDS["price"]] | None = None
    cheaper: Annotated[Statement, KINDS["cheaper"]] | None = None
    cost: Annotated[Statement, KINDS["cost"]] | None = None
    saving: SavingClaim | None = None
    fact: Annotated[Statement, KINDS["fact"]] | None = None
    date: Annotated[Statement, KINDS["date"]] | None = None
    mention: Annotated[Statement, KINDS["mention"]] | None = None
    change: Annotated[Statement, KINDS["change"]] | None = None
    follows: Annotated[Statement, KINDS["follows"]] | None = None
    unknown: Annotated[Statement, KINDS["unknown"]] | None = None

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: object, handler: Any) -> dict[str, Any]:  # noqa: ANN401 - pydantic's
        made: dict[str, Any] = handler.resolve_ref_schema(handler(schema))
        return {**made, "oneOf": [{"required": [name]} for name in KIND_NAMES]}

    def __post_init__(self) -> None:
        stated = [name for name in KIND_NAMES if getattr(self, name) is not None]
        if len(stated) != 1:
            problem = f"the claim has the statements {' and '.join(stated)}" if stated else "the claim has no statement"
            raise UsageError(f"{problem}; a claim must have exactly one of {', '.join(KIND_NAMES)}")

    @property
    def statement(self) -> Statement:
        """The statement of the claim, which has exactly one kind."""
        found: Statement = next(value for name in KIND_NAMES if (value := getattr(self, name)) is not None)
        return found

    def claim(self, index: int, said: Said, line: int) -> Claim:
        """Return this entry of a claim file as a claim. `said` is the source that the whole file states."""
        return Claim(
            id=self.id or f"claim-{index + 1}",
            statement=self.statement,
            said=self.source or said,
            words=self.says,
            key=self.key,
            topic=self.topic,
            points_at=self.points_at,
            contradicts=self.contradicts,
            line=line,
        )


_COMMON: Final = ("id", "says", "key", "topic", "source", "points_at", "contradicts")
KIND_NAMES: Final = tuple(name for name in ClaimEntry.__dataclass_fields__ if name not in _COMMON)
"""Kinds of claims, named by their keys in a claim file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsFile:
    """A whole file of claims."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = file_config(**SAVING_KEYS)

    version: Whole
    source: Said = field(default_factory=Said)
    claims: tuple[ClaimEntry, ...]

    def __post_init__(self) -> None:
        if not self.claims:
            raise FieldError("the list is empty; write at least one claim", "claims")
        if len(self.claims) > _MAX_CLAIMS:
            problem = f"{len(self.claims):,} claims are too many for one file; the limit is {_MAX_CLAIMS:,}"
            raise FieldError(problem, "claims")


CLAIMS_FILE: Final = FileShape(
    of=ClaimsFile,
    kind="file of claims",
    written_by="penstock audit --init",
    title="Claims for `penstock audit`",
    version=VERSION,
)


def parse_claims(text: str, where: str) -> tuple[Claim, ...]:
    """Parse a claim file."""
    return read_claims(CLAIMS_FILE.parse(text, where))


def read_claims(tree: YamlTree) -> tuple[Claim, ...]:
    """Return the claims in the parsed content of a claim file."""

    def claims_of(file: ClaimsFile) -> tuple[Claim, ...]:
        claims = tuple(
            entry.claim(index, file.source, tree.line(("claims", index))) for index, entry in enumerate(file.claims)
        )
        _check_ids(claims)
        return claims

    return CLAIMS_FILE.convert(tree, claims_of)


def _check_ids(claims: Sequence[Claim]) -> None:
    known: dict[str, int | None] = {}
    for index, claim in enumerate(claims):
        if claim.id in known:
            problem = f"the claim on line {known[claim.id]} already has the id '{claim.id}'; choose another"
            raise FieldError(problem, "claims", index)
        known[claim.id] = claim.line
    for index, claim in enumerate(claims):
        for other in (*claim.points_at, *claim.contradicts):
            if other == claim.id:
                raise FieldError(f"claim '{claim.id}' refers to itself; remove this reference", "claims", index)
            if other not in known and "/" not in other:
                raise FieldError(f"claim '{claim.id}' refers to '{other}', but no claim has that id", "claims", index)


def filed_under(prefix: str, claims: Sequence[Claim]) -> tuple[Claim, ...]:
    """Return the claims of one file with a prefix in their ids, so that ids are unique across files."""

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
    """List the unknown ids: ids to which claims refer, but which no claim has."""
    known = {claim.id for claim in claims}
    return sorted({other for claim in claims for other in (*claim.points_at, *claim.contradicts)} - known)


EXAMPLE_CLAIMS: Final = """\
# Claims to check: `penstock audit claims.yaml`. Every kind and its keys: `penstock audit --schema`.
version: 2
source:
  who: the vendor's sales team
  title: Offer of 1 June
  said_on: 2026-06-01
claims:
  - id: h100-fp8
    says: an H100 has 3,958 TFLOPS of FP8
    spec: {accelerator: h100, quantity: fp8, figure: 3958 TFLOPS}
  - id: memory
    says: MI300X has 1.5 times the memory of H100
    ratio: {accelerator: mi300x, over: h100, quantity: memory, figure: 1.5x}
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
