"""Judges prices, discounts and costs by all shipped offers, with the same distribution as rates."""

from collections.abc import Iterable
from datetime import date, timedelta
from functools import cache
from statistics import median
from typing import Final

from penstock.audit.claim import Amount, Claim, Judgement, Setup, Verdict
from penstock.audit.physics import where
from penstock.audit.rows import Distribution, matching, rate_ratios
from penstock.catalog import load_prices
from penstock.catalog.price import Price
from penstock.catalog.seller import seller_of

_RECENT: Final = timedelta(days=400)
_LATEST: Final = timedelta(days=120)
_KINDS: Final = {
    "rent": ("rent_on_demand", "rent_spot", "rent_index", "rent_contract", "rent_block"),
    "purchase": ("purchase_device", "purchase_node", "purchase_all_in"),
}
_SAME: Final = 0.01
"""A price this near to a published offer is that offer."""


@cache
def _offers(accelerator: str, wanted: str, year: int | None = None, provider: str = "") -> tuple[Price, ...]:
    """Return the newest offers of each seller and kind; `wanted` is a kind of rent, `rent` or `purchase`."""
    kinds, last = _KINDS.get(wanted, (wanted,)), date(year, 12, 31) if year else date.max
    known = [price for price in load_prices(accelerator) if price.usable and price.effective_from <= last]
    usable = [price for price in known if price.kind in kinds and provider in seller_of(price).lower()]
    if any(price.confidence != "low" for price in usable):
        usable = [price for price in usable if price.confidence != "low" or price.kind == "purchase_device"]
    newest = max((price.effective_from for price in usable), default=last)
    latest = {(seller_of(p), p.kind, p.term_months): p.effective_from for p in usable}  # the files are sorted by day
    kept = {(seller_of(p), p.kind, p.term_months, round(p.usd_per_device, 1)): p for p in usable}
    if wanted == "purchase":
        return tuple(kept.values())
    recent = {key: p for key, p in kept.items() if newest - p.effective_from <= _RECENT}
    return tuple(p for key, p in recent.items() if latest[key[:3]] - p.effective_from <= _LATEST)


def _dollars(offers: Iterable[Price]) -> list[float]:
    return sorted(price.usd_per_device for price in offers)


def judge_price(claim: Claim, amount: Amount) -> Judgement:
    """Judge the price of one device by the newest offers, of the named seller and kind if the claim names them."""
    accelerator, kind = claim.setup.accelerator or "", claim.basis.replace("_", " ")
    offers = _offers(accelerator, claim.basis, claim.year, claim.provider)
    if not offers:
        whose = (f" of {claim.provider}" if claim.provider else "") + (f" up to {claim.year}" if claim.year else "")
        return Judgement(Verdict.UNDETERMINED, f"no {kind} price of {accelerator}{whose} is known")
    # A claim that names no seller means the market, so that the fifth at either end does not count.
    values, cut = _dollars(offers), 0 if claim.provider else len(offers) // 5
    spread = Distribution(values[cut : len(values) - cut], "offers", " $ per device")
    same = [price for price in offers if amount.meets(price.usd_per_device, _SAME)]
    sources = tuple(dict.fromkeys((price.provider, price.source) for price in (same or offers)[:3]))
    verdict = spread.judge(amount)
    if verdict is Verdict.IMPLAUSIBLE and same:
        return Judgement(Verdict.PLAUSIBLE, f"{spread.place(amount)}; {same[0].provider} asks it", (), None, sources)
    return spread.judgement(verdict, amount, sources)


def _price_ratios(claim: Claim) -> list[float]:
    """Return price ratios: per seller and kind that offers both, and of the medians."""
    ratios = []
    for kind in (claim.basis,) if claim.basis else ("rent", "purchase"):
        sides = [_offers(side.accelerator or "", kind) for side in (claim.setup, claim.over or Setup())]
        mine, yours = ({(seller_of(p), p.kind, p.term_months): p.usd_per_device for p in side} for side in sides)
        if mine and yours:
            ratios += [mine[key] / yours[key] for key in mine if key in yours]
            ratios.append(median(_dollars(sides[0])) / median(_dollars(sides[1])))
    return ratios


def judge_market_ratio(claim: Claim, amount: Amount) -> Judgement:
    """Judge a ratio of rates, of prices, or of rates per dollar."""
    values, noun = (_price_ratios(claim), "price ratios") if claim.quantity == "price" else rate_ratios(claim)
    if claim.quantity == "per_dollar":
        values = [value / price for value in values for price in _price_ratios(claim)]
        noun = f"{noun}, per dollar"
    if not values:
        return Judgement(Verdict.UNDETERMINED, "nothing is published for both sides")
    cut = len(values) // 20 if claim.setup.model is None else 0
    spread = Distribution(sorted(values)[cut : len(values) - cut], noun, "x")
    verdict = spread.judge(amount)
    indirect = claim.quantity == "per_dollar" or noun.startswith("predictions")
    return spread.judgement(Verdict.PLAUSIBLE if indirect and verdict is Verdict.CONFIRMED else verdict, amount)


def judge_discount(claim: Claim, amount: Amount) -> Judgement:
    """Judge a discount on the usual rent by each seller's terms. Discounts on list prices are not published."""
    accelerator = claim.setup.accelerator or ""
    usual = {seller_of(price): price.usd_per_device for price in _offers(accelerator, "rent_on_demand")}
    terms = _offers(accelerator, claim.basis) if claim.basis in {"rent_contract", "rent_spot", "rent_block"} else ()
    values = [price.usd_per_device / usual[seller_of(price)] for price in terms if seller_of(price) in usual]
    if not values:
        return Judgement(Verdict.UNDETERMINED, "negotiated discounts on list prices are not published")
    spread = Distribution(values, "published terms over on-demand", "x")
    return spread.judgement(spread.judge(amount), amount)


def judge_cost(claim: Claim, amount: Amount) -> Judgement:
    """Judge dollars per million tokens: by the price and rate beside it, or by all rents over all rates."""
    setup, hourly, rate = claim.setup, claim.usd_per_hour, claim.tokens_per_s
    if hourly and rate:
        cost = hourly / rate / 3600 * 1e6
        line = f"{hourly:g} / ({rate:g} * 0.0036) = {cost:.4g} ($ per hour / 10^6 tokens per hour)"
        near = Verdict.PLAUSIBLE if amount.nearly(cost) else Verdict.CONTRADICTED
        verdict = Verdict.CONFIRMED if amount.meets(cost) else near
        return Judgement(verdict, f"price and rate of the same row give ${cost:.3g}", (line,))
    rows, prices = matching(setup), _dollars(_offers(setup.accelerator or "", "rent", claim.year))
    rates = [row.rate for row in rows if row.rate and claim.basis != "total"]
    rates += [row.total_rate for row in rows if row.total_rate and claim.basis != "output"]
    if not rates or not prices:
        return Judgement(Verdict.UNDETERMINED, f"no published rate or no price for {setup.model} on {where(setup)}")
    costs = [median(prices) * setup.devices / 0.0036 / rate for rate in rates]
    spread = Distribution(costs, "costs at the median rent", " $ per million tokens")
    verdict = spread.judge(amount)
    return spread.judgement(Verdict.PLAUSIBLE if verdict is Verdict.CONFIRMED else verdict, amount)
