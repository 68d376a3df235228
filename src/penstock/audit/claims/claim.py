"""A claim consists of a statement of one kind, its source, and words by which readers can find the passage."""

import re
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from penstock.audit.claims.hardware_claims import LimitStatement, RatioStatement, SpecStatement
from penstock.audit.claims.memory_claims import FitStatement, SizeStatement
from penstock.audit.claims.price_claims import CostStatement, PriceRatioStatement, PriceStatement
from penstock.audit.claims.record_claims import (
    ChangeStatement,
    DateStatement,
    FactStatement,
    FollowsStatement,
    MentionStatement,
    RunsStatement,
    UncheckableStatement,
)
from penstock.audit.claims.speed_claims import SpeedRatioStatement, SpeedStatement
from penstock.audit.saving_claim import SavingClaim
from penstock.errors import UsageError
from penstock.reading.scalars import Day, Parsed

Statement: TypeAlias = (
    SpecStatement
    | RatioStatement
    | LimitStatement
    | FitStatement
    | SizeStatement
    | SpeedStatement
    | SpeedRatioStatement
    | PriceStatement
    | PriceRatioStatement
    | CostStatement
    | SavingClaim
    | FactStatement
    | DateStatement
    | MentionStatement
    | RunsStatement
    | ChangeStatement
    | FollowsStatement
    | UncheckableStatement
)


def _address(text: str) -> str:
    if not re.match(r"https?://\S+$", text):
        raise UsageError(f"'{text[:40]}' is not an address; write https://...")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Source of a claim: author, place and date."""

    who: str = ""
    title: str = ""
    address: Annotated[str, Parsed(_address, {"type": "string"})] | None = None
    said_on: Day | None = None
    """Date of the claim. Without a date, the claim is judged as of today."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A published statement."""

    id: str
    statement: Statement
    said: Said = Said()
    words: str = ""
    """Paraphrase of the statement."""
    key: str = ""
    """At most twelve words of the original text, by which the passage can be found."""
    topic: str = ""
    points_at: tuple[str, ...] = ()
    """Ids of other claims that this claim relies on or repeats."""
    contradicts: tuple[str, ...] = ()
    """Ids of other claims that cannot be true together with this claim."""
    line: int | None = None
