"""Names of the kinds of statement. Each kind has a key in claim files and a word in printed tables."""

from collections.abc import Mapping
from typing import Final

from penstock.audit.claims.claim import Statement
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

_NAMES: Final[Mapping[type, str]] = {
    SpecStatement: "spec",
    RatioStatement: "ratio",
    LimitStatement: "limit",
    FitStatement: "fits",
    SizeStatement: "size",
    SpeedStatement: "speed",
    SpeedRatioStatement: "faster",
    PriceStatement: "price",
    PriceRatioStatement: "cheaper",
    CostStatement: "cost",
    SavingClaim: "saving",
    FactStatement: "fact",
    DateStatement: "date",
    MentionStatement: "mention",
    RunsStatement: "runs",
    ChangeStatement: "change",
    FollowsStatement: "follows",
    UncheckableStatement: "unknown",
}


def kind_of(statement: Statement) -> str:
    """Return the key of a statement's kind in claim files."""
    return _NAMES[type(statement)]
