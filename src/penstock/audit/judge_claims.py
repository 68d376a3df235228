"""Judges each claim with the check for its kind of statement."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.audit.checks.fit_check import audit_fit
from penstock.audit.checks.launch_check import audit_runs
from penstock.audit.checks.price_check import audit_cost, audit_price, audit_price_ratio, audit_saving
from penstock.audit.checks.record_check import audit_date, audit_fact, audit_follows, audit_mention, audit_uncheckable
from penstock.audit.checks.size_check import audit_size
from penstock.audit.checks.spec_check import audit_spec
from penstock.audit.checks.spec_ratio_check import audit_limit, audit_ratio
from penstock.audit.checks.speed_check import audit_speed
from penstock.audit.checks.speed_ratio_check import audit_change, audit_speed_ratio
from penstock.audit.claims.claim import Claim
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
from penstock.audit.judgement import Judgement, Verdict
from penstock.audit.reference_library import Library
from penstock.audit.saving_claim import SavingClaim
from penstock.errors import PenstockError

_BY_LIBRARY: Final[Mapping[type, Callable[[Any, Library], Judgement]]] = {
    SpecStatement: audit_spec,
    RatioStatement: audit_ratio,
    LimitStatement: audit_limit,
    FitStatement: audit_fit,
    SizeStatement: audit_size,
    ChangeStatement: audit_change,
    RunsStatement: audit_runs,
    CostStatement: lambda statement, _: audit_cost(statement),
    SavingClaim: lambda statement, _: audit_saving(statement),
    FollowsStatement: lambda statement, _: audit_follows(statement),
    UncheckableStatement: lambda statement, _: audit_uncheckable(statement),
}
_BY_DAY: Final[Mapping[type, Callable[..., Judgement]]] = {
    SpeedStatement: audit_speed,
    SpeedRatioStatement: audit_speed_ratio,
    FactStatement: audit_fact,
    DateStatement: audit_date,
    MentionStatement: audit_mention,
    PriceStatement: audit_price,
    PriceRatioStatement: audit_price_ratio,
}
"""Checks that depend on the date of the claim, keyed by type of statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """A claim and its judgement."""

    claim: Claim
    judgement: Judgement


def audit_claims(claims: Iterable[Claim], library: Library) -> tuple[Audited, ...]:
    """Judge each claim separately. Contradictions with other claims, which a claim may list, are not considered."""
    return tuple(Audited(claim=claim, judgement=judge(claim, library)) for claim in claims)


def judge(claim: Claim, library: Library) -> Judgement:
    """Judge one claim.

    If the claim's accelerator or model is unknown, the verdict is undetermined and no error is raised.
    """
    statement, day = claim.statement, claim.said.said_on
    try:
        if type(statement) in _BY_DAY:
            return _BY_DAY[type(statement)](statement, library, day)
        judged = _BY_LIBRARY[type(statement)](statement, library)
    except PenstockError as error:
        return Judgement(verdict=Verdict.UNDETERMINED, reason=str(error))
    if isinstance(statement, SpecStatement):
        return _note_later_launch(judged, statement.accelerator, library, claim)
    return judged


def _note_later_launch(judgement: Judgement, accelerator: str, library: Library, claim: Claim) -> Judgement:
    """Return the judgement. If the accelerator was launched after the claim, the reason of the judgement says so."""
    launched, day = library.accelerator_of(accelerator).launched, claim.said.said_on
    if launched is None or day is None or f"{day:%Y-%m}" >= launched:
        return judgement
    return replace(
        judgement,
        reason=f"{judgement.reason}; the claim dates from {day:%Y-%m}, "
        f"before the accelerator was launched in {launched}",
    )
