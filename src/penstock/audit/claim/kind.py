"""What is a statement written as? The key of each kind in a file, and the word for it in a table."""

from collections.abc import Mapping
from typing import Final

from penstock.audit.claim.claim import Statement
from penstock.audit.claim.hardware import LimitStatement, RatioStatement, SpecStatement
from penstock.audit.claim.memory import FitStatement, SizeStatement
from penstock.audit.claim.money import CostStatement, PriceRatioStatement, PriceStatement
from penstock.audit.claim.record import (
    ChangeStatement,
    DateStatement,
    FactStatement,
    FollowsStatement,
    MentionStatement,
    RunsStatement,
    UncheckableStatement,
)
from penstock.audit.claim.speed import SpeedRatioStatement, SpeedStatement
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
    """The key a statement is written under."""
    return _NAMES[type(statement)]
