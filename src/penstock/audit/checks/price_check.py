"""Checks claimed prices against recorded prices, and claimed costs against the inputs that the claim states."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from statistics import median
from typing import Final, TypeAlias

from penstock.audit.claims.price_claims import CostStatement, PriceRatioStatement, PriceStatement
from penstock.audit.evidence.distribution import Distribution
from penstock.audit.judgement import Cited, Judgement, Verdict, plainly, working_line
from penstock.audit.reference_library import Library
from penstock.audit.saving_claim import SavingClaim, check_claim
from penstock.catalog.price import Price

_BOUGHT: Final = frozenset({"purchase_device", "purchase_node"})
_RENTED: Final = frozenset({"rent_on_demand", "rent_spot", "rent_index", "rent_contract", "rent_block"})
_SEASON: Final = timedelta(days=400)
"""Maximum time between the date of a price and the date of a claim.

Recorded prices that are further in time from the claim are not compared.
"""
_MTOK: Final = 3600 / 1e6


_RATIO_MARGIN: Final = 1.1
_Offers: TypeAlias = Mapping[tuple[str, str, int | None], Price]
"""Prices, keyed by provider, kind of price and contract term."""


def _offers(accelerator: str, library: Library, day: date, *, bought: bool) -> _Offers:
    """For each provider, kind of price and contract term, return the recorded price that is nearest in time.

    The nearest price is the newest price up to the day of the claim. If there is no such price, it is the first later
    price. Prices of low confidence are left out, because these are estimates or list prices without known buyers.
    """
    kinds = _BOUGHT if bought else _RENTED
    counted = [
        price
        for price in library.prices_of(library.accelerator_of(accelerator).id)
        if price.kind in kinds
        and price.usable
        and price.confidence != "low"
        and abs(price.effective_from - day) <= _SEASON
    ]
    nearest = sorted(counted, key=lambda price: (price.effective_from > day, abs(price.effective_from - day), price.id))
    return {(price.provider, price.kind, price.term_months): price for price in reversed(nearest)}


def _cite(price: Price) -> Cited:
    return Cited(title=f"{price.provider}, {price.kind}, {price.effective_from}", url=price.source)


def audit_price(statement: PriceStatement, library: Library, said_on: date | None) -> Judgement:
    """Judge a claimed price by the recorded prices around the day of the claim, and also by today's prices."""
    judged, today = (
        _judge_by_prices(statement, list(offers.values()))
        for offers in (
            _offers(statement.accelerator, library, day, bought=statement.bought)
            for day in (said_on or library.today, library.today)
        )
    )
    return replace(
        judged,
        reason=judged.reason + ("" if said_on else ", as of today"),
        today=today.verdict if today.verdict is not judged.verdict else None,
    )


def _judge_by_prices(statement: PriceStatement, offers: Sequence[Price]) -> Judgement:
    if not offers:
        what = "purchase price" if statement.bought else "hourly rent"
        return Judgement(
            verdict=Verdict.UNDETERMINED,
            reason=f"no {what} of {statement.accelerator} is recorded within {_SEASON.days} days of the claim, except "
            "list prices and estimates; a dated quote is missing",
        )
    prices = Distribution(
        values=[offer.usd_per_device for offer in offers], noun=("recorded price", "prices"), write=_usd, modest=None
    )
    verdict, reason = prices.judge(statement.amount)
    typical = min(offers, key=lambda offer: (abs(offer.usd_per_device - prices.median), offer.id))
    return Judgement(
        verdict=verdict, reason=reason, workings=(prices.line(statement.amount),), sources=(_cite(typical),)
    )


def audit_price_ratio(statement: PriceRatioStatement, library: Library, said_on: date | None) -> Judgement:
    """Judge a claimed price ratio by the providers that offer both accelerators.

    If no provider offers both, the ratio of the accelerators' median prices is used.
    """
    day = said_on or library.today
    names = (statement.accelerator, statement.over)
    ours, theirs = (_offers(name, library, day, bought=statement.bought) for name in names)
    if not ours or not theirs:
        lacking = statement.accelerator if not ours else statement.over
        return Judgement(
            verdict=Verdict.UNDETERMINED,
            reason=f"no price of {lacking} is recorded within {_SEASON.days} days of the claim; quotes are missing",
        )
    both = [(offer, theirs[key]) for key, offer in ours.items() if key in theirs]
    mine, yours = (median(offer.usd_per_device for offer in found.values()) for found in (ours, theirs))
    ratios = Distribution(
        values=[mine.usd_per_device / yours.usd_per_device for mine, yours in both] or [mine / yours],
        noun=("offer by a provider of both accelerators", "offers by providers of both accelerators")
        if both
        else ("recorded ratio of median prices", ""),
        write=_less,
        margin=_RATIO_MARGIN,
        modest="high",
        sides=("a smaller discount than", "a larger discount than"),
    )
    verdict, reason = ratios.judge(statement.amount.rest())
    line = working_line(
        f"1 - {plainly(ratios.median)}",
        1 - float(plainly(ratios.median)),
        "1 - median price ratio: the recorded discount",
    )
    cites = both[0] if both else (next(iter(ours.values())), next(iter(theirs.values())))
    return Judgement(verdict=verdict, reason=reason, workings=(line,), sources=tuple(_cite(offer) for offer in cites))


def _less(ratio: float) -> str:
    return f"{1 - ratio:.0%} less" if ratio <= 1 else f"{ratio - 1:.0%} more"


def audit_cost(statement: CostStatement) -> Judgement:
    """Judge a claimed cost per million tokens by recomputing the cost from the stated rent and token rate."""
    tokens = statement.tokens_per_s * statement.utilisation
    value = statement.usd_per_hour / (tokens * _MTOK)
    line = working_line(
        f"{plainly(statement.usd_per_hour)} / ({plainly(tokens)} * 3600 / 1000000)",
        float(plainly(statement.usd_per_hour)) / (float(plainly(tokens)) * _MTOK),
        "dollars per hour / millions of tokens per hour",
    )
    met = statement.amount.meets(value)
    return Judgement(
        verdict=Verdict.CONFIRMED if met else Verdict.CONTRADICTED,
        reason=f"the claim's own inputs give {_usd(value)} per million tokens"
        + ("" if met else f", not {statement.amount.written}"),
        workings=(line,),
        true_if=None if met else f"it said {_usd(value)}",
    )


def _usd(value: float) -> str:
    if value >= 1000:  # cents do not matter
        return f"${value:,.0f}"
    return f"${value:,.2f}" if value >= 0.1 else f"${value:,.3g}"  # smaller values need more digits than cents


def audit_saving(statement: SavingClaim) -> Judgement:
    """Judge a published saving by recomputing the saving for every reasonable interpretation of its inputs."""
    check = check_claim(statement)
    first = any(reading.reproduces_claim for reading in check.readings)
    both = any(reading.reproduces_claim and reading.reproduces_claim_with_engineers for reading in check.readings)
    people = statement.engineers * statement.engineer_usd_per_year * statement.years
    dearer = statement.devices * statement.dearer_usd * (1 - statement.discount_fraction) / statement.hardware_fraction
    lines = (
        working_line(
            f"{plainly(statement.engineers)} * {plainly(statement.engineer_usd_per_year)} * {plainly(statement.years)}",
            people,
            "engineers * dollars per year * years: cost of the engineers",
        ),
        working_line(
            f"{statement.devices} * {plainly(statement.dearer_usd)} * (1 - {plainly(statement.discount_fraction)}) / "
            f"{plainly(statement.hardware_fraction)}",
            dearer,
            f"devices * price * (1 - discount) / hardware share: cost of the {statement.dearer} fleet",
        ),
        working_line(
            f"{plainly(people)} / {plainly(dearer)}",
            people / dearer,
            f"cost of the engineers / cost of the {statement.dearer} fleet",
        ),
        working_line(
            f"1 - {plainly(statement.cheaper_usd)} / {plainly(statement.dearer_usd)}",
            1 - statement.cheaper_usd / statement.dearer_usd,
            f"1 - price of {statement.cheaper} / price of {statement.dearer}: saving if both bills are proportional to "
            "hardware cost",
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
        else f"{statement.cheaper} had {check.throughput_for_the_claim:.0%} of the throughput of {statement.dearer}, "
        f"and {check.engineers_for_the_drop:.1f} engineers were needed instead of {statement.engineers:g}",
    )
