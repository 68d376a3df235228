"""Is a price what the market asks, and does a cost follow from its own inputs?"""

from collections.abc import Sequence
from datetime import date, timedelta
from statistics import quantiles
from typing import Final

from penstock.audit.claim.money import CostStatement, PriceRatioStatement, PriceStatement
from penstock.audit.judgement import Cited, Judgement, Verdict, figure, plainly, worked
from penstock.audit.library import Library
from penstock.audit.saving_claim import SavingClaim, check_claim
from penstock.catalog.price import Price

_BOUGHT: Final = frozenset({"purchase_device", "purchase_node"})
_RENTED: Final = frozenset({"rent_on_demand", "rent_spot", "rent_index", "rent_contract", "rent_block"})
_SEASON: Final = timedelta(days=400)
"""Prices further from the day of a claim are another market."""
_NEAR: Final = 1.25
_ENOUGH: Final = 4
_MTOK: Final = 3600 / 1e6


def _offers(part: str, library: Library, day: date | None, *, bought: bool) -> list[Price]:
    kinds = _BOUGHT if bought else _RENTED
    return [
        price
        for price in library.prices_of(library.accelerator_of(part).id)
        if price.kind in kinds and price.usable and (day is None or abs(price.effective_from - day) <= _SEASON)
    ]


def _cite(price: Price) -> Cited:
    return Cited(title=f"{price.provider}, {price.kind}, {price.effective_from}", url=price.source)


def audit_price(statement: PriceStatement, library: Library, said_on: date | None) -> Judgement:
    """Hold a price against what was asked around that day, and against what is asked today."""
    then = _offers(statement.part, library, said_on or library.today, bought=statement.bought)
    now = _offers(statement.part, library, library.today, bought=statement.bought)
    judged = _priced(statement, then)
    today = _priced(statement, now)
    return Judgement(
        verdict=judged.verdict,
        reason=judged.reason + ("" if said_on else ", as of today"),
        workings=judged.workings,
        sources=judged.sources,
        true_if=judged.true_if,
        today=today.verdict if today.verdict is not judged.verdict else None,
    )


def _priced(statement: PriceStatement, offers: Sequence[Price]) -> Judgement:
    amount = statement.amount
    what = "to buy one" if statement.bought else "for an hour of one"
    if not offers:
        return Judgement(
            verdict=Verdict.UNDETERMINED,
            reason=f"no price {what} was recorded within {_SEASON.days} days of the claim; a dated quote is missing",
        )
    each = sorted((offer.usd_per_device, offer.id, offer) for offer in offers)
    low, high = _middle([usd for usd, _, _ in each])
    near, _, offer = min(each, key=lambda entry: abs(entry[0] - amount.middle))
    line = worked(
        f"{plainly(amount.middle)} / {plainly(near)}",
        amount.middle / float(plainly(near)),
        f"claimed over the nearest of {len(each)} prices",
    )
    most = "of which the middle half ask " if low > each[0][0] or high < each[-1][0] else ""
    said = f"{len(each)} prices {what}: {most}${figure(float(f'{low:.4g}'))} to ${figure(float(f'{high:.4g}'))}"
    if amount.overlaps(near, near):
        verdict = Verdict.CONFIRMED
    elif amount.overlaps(low / _NEAR, high * _NEAR):
        verdict = Verdict.PLAUSIBLE
    else:
        verdict = Verdict.IMPLAUSIBLE
    return Judgement(verdict=verdict, reason=said, workings=(line,), sources=(_cite(offer),))


def _middle(usd: Sequence[float]) -> tuple[float, float]:
    """Return the ends of what most ask: the quartiles, where there are enough to have some."""
    if len(usd) < _ENOUGH:
        return min(usd), max(usd)
    low, _, high = quantiles(usd, n=4, method="inclusive")
    return low, high


def audit_price_ratio(statement: PriceRatioStatement, library: Library, said_on: date | None) -> Judgement:
    """Set every price of one part against every price of the other around that day."""
    day = said_on or library.today
    ours, theirs = (_offers(name, library, day, bought=statement.bought) for name in (statement.part, statement.over))
    if not ours or not theirs:
        lacking = statement.part if not ours else statement.over
        return Judgement(
            verdict=Verdict.UNDETERMINED,
            reason=f"no price of {lacking} is recorded within {_SEASON.days} days of the claim; quotes are missing",
        )
    mine, yours = (sorted(offer.usd_per_device for offer in found) for found in (ours, theirs))
    middle = 1 - mine[len(mine) // 2] / yours[len(yours) // 2]
    (cheap, dear), (cheaper, dearer) = _middle(mine), _middle(yours)
    low, high = 1 - dear / cheaper, 1 - cheap / dearer
    line = worked(
        f"1 - {plainly(mine[len(mine) // 2])} / {plainly(yours[len(yours) // 2])}",
        1 - float(plainly(mine[len(mine) // 2])) / float(plainly(yours[len(yours) // 2])),
        f"less than the dearer, medians of {len(mine)} and {len(yours)} prices",
    )
    if statement.amount.nearly(middle):
        verdict = Verdict.CONFIRMED
    else:
        verdict = Verdict.PLAUSIBLE if statement.amount.overlaps(low, high) else Verdict.IMPLAUSIBLE
    return Judgement(
        verdict=verdict,
        reason=f"medians say {middle:.0%} less; what most ask, {low:.0%} to {high:.0%}",
        workings=(line,),
        sources=(_cite(ours[0]), _cite(theirs[0])),
    )


def audit_cost(statement: CostStatement) -> Judgement:
    """Divide the rent by the tokens: dollars per million."""
    tokens = statement.tokens_per_s * statement.utilisation
    value = statement.usd_per_hour / (tokens * _MTOK)
    line = worked(
        f"{plainly(statement.usd_per_hour)} / ({plainly(tokens)} * 3600 / 1000000)",
        float(plainly(statement.usd_per_hour)) / (float(plainly(tokens)) * _MTOK),
        "dollars an hour over millions of tokens an hour",
    )
    met = statement.amount.meets(value)
    return Judgement(
        verdict=Verdict.CONFIRMED if met else Verdict.CONTRADICTED,
        reason=f"its own inputs give {_usd(value)} per million tokens"
        + ("" if met else f", not {statement.amount.written}"),
        workings=(line,),
        true_if=None if met else f"it said {_usd(value)}",
    )


def _usd(value: float) -> str:
    return f"${value:,.2f}" if value >= 0.1 else f"${value:,.3g}"  # noqa: PLR2004 - below, cents say too little


def audit_saving(statement: SavingClaim) -> Judgement:
    """Recompute a published saving in every reasonable reading of its inputs."""
    check = check_claim(statement)
    first = any(reading.reproduces_claim for reading in check.readings)
    both = any(reading.reproduces_claim and reading.reproduces_claim_with_engineers for reading in check.readings)
    people = statement.engineers * statement.engineer_usd_per_year * statement.years
    dearer = statement.devices * statement.dearer_usd * (1 - statement.discount_fraction) / statement.hardware_fraction
    lines = (
        worked(
            f"{plainly(statement.engineers)} * {plainly(statement.engineer_usd_per_year)} * {plainly(statement.years)}",
            people,
            "dollars of engineers over the whole time",
        ),
        worked(
            f"{statement.devices} * {plainly(statement.dearer_usd)} * (1 - {plainly(statement.discount_fraction)}) / "
            f"{plainly(statement.hardware_fraction)}",
            dearer,
            f"dollars of the {statement.dearer} fleet",
        ),
        worked(f"{plainly(people)} / {plainly(dearer)}", people / dearer, "share of it that the engineers are"),
        worked(
            f"1 - {plainly(statement.cheaper_usd)} / {plainly(statement.dearer_usd)}",
            1 - statement.cheaper_usd / statement.dearer_usd,
            "saving where both bills are in proportion to their hardware",
        ),
    )
    return Judgement(
        verdict=Verdict.CONFIRMED if both else Verdict.CONTRADICTED,
        reason=" ".join(check.verdicts),
        workings=lines,
        true_if=None
        if both
        else f"{check.engineers_for_the_drop:.1f} engineers were needed instead of {statement.engineers:g}"
        if first
        else f"{statement.cheaper} had {check.throughput_for_the_claim:.0%} of the rate of {statement.dearer}, and "
        f"{check.engineers_for_the_drop:.1f} engineers were needed instead of {statement.engineers:g}",
    )
