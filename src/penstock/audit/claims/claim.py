"""Who says what? A statement of one of the kinds, its source and the words to find it by."""

from dataclasses import dataclass
from datetime import date
from typing import TypeAlias

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Who said it, where and when."""

    who: str = ""
    title: str = ""
    address: str | None = None
    said_on: date | None = None
    """None where it is not dated: then it is judged as of today."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement somebody made."""

    id: str
    statement: Statement
    said: Said = Said()
    words: str = ""
    """What is said, in our words."""
    key: str = ""
    """At most a dozen of their words, to find the place by."""
    topic: str = ""
    points_at: tuple[str, ...] = ()
    """Claims it rests on or repeats."""
    contradicts: tuple[str, ...] = ()
    """Claims that cannot be true together with it."""
    line: int | None = None
