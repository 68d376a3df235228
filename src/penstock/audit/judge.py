"""Judges claims, each alone."""

from penstock.audit.claim import Claim, Judgement, Verdict
from penstock.audit.market import judge_cost, judge_discount, judge_market_ratio, judge_price
from penstock.audit.physics import judge_fit, judge_size, judge_spec, judge_spec_ratio
from penstock.audit.rows import judge_speed
from penstock.errors import PenstockError


def judge(claim: Claim) -> Judgement:
    """Return the verdict on one claim. What the catalog does not know is undetermined, and no error."""
    try:
        return _judge(claim)
    except PenstockError as error:
        return Judgement(Verdict.UNDETERMINED, str(error))


def _judge(claim: Claim) -> Judgement:
    if claim.kind == "none":
        return Judgement(Verdict.NOT_READ, claim.why)
    if claim.kind == "fits":
        return judge_fit(claim)
    if claim.amount is None:
        raise ValueError(f"a claim of kind {claim.kind} has a figure")
    if claim.kind == "ratio":
        sheet = claim.quantity in {"memory", "bandwidth", "flops", "tdp", "link", "compute_units"}
        return judge_spec_ratio(claim, claim.amount) if sheet else judge_market_ratio(claim, claim.amount)
    if claim.kind == "follows":
        most = claim.tokens_per_s or 0.0
        line = f"1000 * {claim.setup.concurrency} / TPOT in ms = {most:,.0f} tok/s (users / time per token)"
        reason = f"users and time per token of the row allow at most {most:,.0f} tok/s"
        return Judgement(Verdict.CONTRADICTED, reason, (line,))
    judges = {
        "spec": judge_spec,
        "weights": judge_size,
        "left": judge_size,
        "cache": judge_size,
        "rate": judge_speed,
        "tpot": judge_speed,
        "ttft": judge_speed,
        "price": judge_price,
        "discount": judge_discount,
        "cost": judge_cost,
    }
    return judges[claim.kind](claim, claim.amount)
