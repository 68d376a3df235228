"""Lists a fleet's orders and its payments per quarter and year, undiscounted."""

from calendar import monthrange
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from math import ceil, inf
from typing import Final

from penstock.economics.bill_line import Item, Line
from penstock.economics.finance import MONTHS_PER_YEAR, Window
from penstock.economics.rent import Term
from penstock.planning.optimizer.fleet_bill import holdings, people_lines
from penstock.planning.optimizer.node_costs import DAYS_PER_YEAR, BillingTerms, accelerator_plan
from penstock.planning.optimizer.problem import HoldingKey, Mix, OfferKey
from penstock.planning.spec.plan_types import OwnedPlan

QUARTER_YEARS: Final = 0.25
_CAPEX: Final = frozenset({Item.SILICON, Item.HOST, Item.NETWORK})
_NOT_PAID: Final = frozenset({Item.KEPT})
"""Bill items that are not payments: forgone resale is a cost of keeping a node, but no money is paid for it."""
_EPSILON_YEARS: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A purchase order or rental contract to sign."""

    on: date
    """Date from which the ordered nodes serve."""
    by: date | None
    """Latest order date for delivery by the date `on`; None for a contract, or if the lead time is unknown."""
    accelerator: str
    site: str
    nodes: int
    devices: int
    months: int | None
    """Term of a contract in months; None for a purchase."""
    usd: float
    """Amount in dollars: the price with host and network, or the rent for every hour of a contract's term."""
    quoted: bool
    """Whether the plan states the price; otherwise the price is from the catalog, and no seller has offered it to
    you."""
    estimated: bool = False
    """Whether no seller published the price, so that it must be asked for before an order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """Payments between two dates, in dollars."""

    start: date
    end: date
    capex_usd: float
    rent_usd: float
    running_usd: float
    """Power, cooling, hosting, support, licences and failures."""
    people_usd: float
    sales_usd: float
    """Proceeds from selling nodes that were owned before the plan."""

    @property
    def total_usd(self) -> float:
        """Return all payments minus the proceeds of sales."""
        return self.capex_usd + self.rent_usd + self.running_usd + self.people_usd - self.sales_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Cash:
    """A fleet's orders and payments over time. The payments add up to the bill at a discount rate of 0."""

    orders: tuple[Order, ...]
    quarters: tuple[Paid, ...]
    years: tuple[Paid, ...]
    after_usd: float
    """Rent still due under contracts after the horizon ends."""
    bought_book_usd: float
    """Book value of the bought nodes at the end of the horizon, under straight-line depreciation."""
    bought_resale_usd: float
    """Resale value that the plan assumes for the bought nodes: salvage, plus the stated share of book value."""
    kept_book_usd: float | None
    """Book value, at the end of the horizon, of nodes owned before the plan; None if the plan states no book value."""

    @property
    def capex_usd(self) -> float:
        """Return all purchases, in dollars."""
        return sum(paid.capex_usd for paid in self.years)

    @property
    def opex_usd(self) -> float:
        """Return all payments within the horizon except purchases, in dollars."""
        return sum(paid.rent_usd + paid.running_usd + paid.people_usd for paid in self.years)

    @property
    def first_order_usd(self) -> float:
        """Return the cost of all purchases on the first day, in dollars."""
        return sum(order.usd for order in self.orders if order.months is None and order.on == self.quarters[0].start)


def cash_of(mix: Mix, terms: BillingTerms) -> Cash:
    """Derive a fleet's orders and payments from its bill."""
    horizon = terms.horizon_years
    purchases = [(_paid_once(mix, terms, key), terms.periods[key[-1]][0]) for key in mix.purchases]
    return Cash(
        orders=tuple(sorted(_orders(mix, terms), key=lambda order: (order.on, order.months or 0, order.accelerator))),
        quarters=tuple(_spans(mix, terms, QUARTER_YEARS)),
        years=tuple(_spans(mix, terms, 1.0)),
        after_usd=_between(mix, terms, horizon, inf).rent_usd,
        bought_book_usd=sum(usd * terms.finance.book_fraction(horizon - start) for usd, start in purchases),
        bought_resale_usd=sum(usd * terms.finance.sold_fraction(horizon - start) for usd, start in purchases),
        kept_book_usd=_kept_book(mix, terms),
    )


def _spans(mix: Mix, terms: BillingTerms, length_years: float) -> Iterator[Paid]:
    horizon = terms.horizon_years
    for number in range(ceil(horizon / length_years - _EPSILON_YEARS)):
        yield _between(mix, terms, number * length_years, min((number + 1) * length_years, horizon))


def _between(mix: Mix, terms: BillingTerms, start: float, end: float) -> Paid:
    """Bill the fleet for the days between two dates only."""
    seen = _terms_in_window(terms, start, end)
    lines = [line for holding in holdings(mix, seen) for line in holding.bill(holding.nodes)]
    lines += people_lines(mix, seen)
    sums = {item: sum(line.usd for line in lines if line.item is item) for item in Item}
    named = {*_CAPEX, *_NOT_PAID, Item.RENT, Item.SOFTWARE}
    return Paid(
        start=day_of(terms, start),
        end=day_of(terms, min(end, terms.horizon_years)),
        capex_usd=sum(sums[item] for item in _CAPEX),
        rent_usd=sums[Item.RENT],
        running_usd=sum(usd for item, usd in sums.items() if item not in named),
        people_usd=sums[Item.SOFTWARE],
        sales_usd=sum(usd for when, usd in _sales(mix, terms) if start - _EPSILON_YEARS <= when < end - _EPSILON_YEARS),
    )


def _terms_in_window(terms: BillingTerms, start: float, end: float) -> BillingTerms:
    finance = terms.finance
    window = Window(
        discount_rate_fraction=0.0,
        depreciation_years=finance.depreciation_years,
        start_years=start,
        end_years=end,
    )
    return replace(terms, finance=window)


def _orders(mix: Mix, terms: BillingTerms) -> Iterator[Order]:
    plan = terms.resolved.plan
    for months_of, ways in ((None, mix.purchases), (0, mix.contracts)):
        for key, nodes in ways.items():
            accelerator, site, unit, number, period = key
            planned = accelerator_plan(plan, accelerator)
            on = day_of(terms, terms.periods[period][0])
            lead = timedelta(weeks=planned.lead_weeks) if planned.lead_weeks is not None else None
            bought = months_of is None
            price = planned.buy if bought else planned.contracts[number].rent
            yield Order(
                on=on,
                by=on - lead if lead is not None and bought else None,
                accelerator=accelerator,
                site=site,
                nodes=nodes,
                devices=nodes * _unit_devices(mix, (accelerator, site, unit)),
                months=None if bought else planned.contracts[number].months,
                usd=_paid_once(mix, terms, key) if bought else _committed_rent(mix, terms, key),
                quoted=price is not None and price.given,
                estimated=price is not None and price.estimated,
            )


def _unit_devices(mix: Mix, key: OfferKey) -> int:
    return next(pool.offer.devices for pool in mix.pools if pool.offer.key == key)


def _paid_once(mix: Mix, terms: BillingTerms, key: HoldingKey) -> float:
    """Return the amount due on the day of one purchase: silicon, servers and network."""
    accelerator, site, _, level, period = key
    whole = _terms_in_window(terms, -1.0, inf)
    lines = whole.bill_bought(*terms.find(accelerator, site), level, period, nodes=mix.purchases[key])
    return _sum(lines, _CAPEX)


def _committed_rent(mix: Mix, terms: BillingTerms, key: HoldingKey) -> float:
    """Return the rent that a contract commits to at signing: the rent of its first term, without later renewals."""
    accelerator, site, unit, number, period = key
    term = Term(months=accelerator_plan(terms.resolved.plan, accelerator).contracts[number].months)
    whole = _terms_in_window(terms, -1.0, terms.periods[period][0] + term.years)
    devices = _unit_devices(mix, (accelerator, site, unit))
    which = (*terms.find(accelerator, site), number, period)
    lines = whole.bill_contracted(*which, nodes=mix.contracts[key], devices=devices)
    return _sum(lines, frozenset({Item.RENT}))


def _sum(lines: tuple[Line, ...], items: frozenset[Item]) -> float:
    return sum(line.usd for line in lines if line.item in items)


def _kept_by_period(mix: Mix, entry: OwnedPlan) -> Mapping[int, int]:
    where = (entry.id, entry.site)
    pools = [pool for pool in mix.pools if (pool.offer.accelerator, pool.offer.site) == where and pool.offer.kept]
    return {pool.period: pool.kept_nodes for pool in pools}


def _sales(mix: Mix, terms: BillingTerms) -> Iterator[tuple[float, float]]:
    """Yield the date in years and the proceeds in dollars of each sale of nodes owned before the plan."""
    for entry in terms.resolved.plan.owned:
        resale, before, kept = terms.resale(entry), entry.nodes or 0, _kept_by_period(mix, entry)
        for period, (start, _) in enumerate(terms.periods):
            now = kept.get(period, 0)
            if now < before:
                yield start, (before - now) * resale.usd(start)
            before = now


def _kept_book(mix: Mix, terms: BillingTerms) -> float | None:
    """Return the book value of the kept nodes at the end of the horizon.

    Book value falls linearly from today's value to 0 at full depreciation.
    """
    total, last = 0.0, len(terms.periods) - 1
    for entry in terms.resolved.plan.owned:
        if entry.book_usd is None:
            return None
        left = terms.finance.depreciation_years - entry.age_years
        share = max(0.0, 1 - terms.horizon_years / left) if left > 0 else 0.0
        total += entry.book_usd * share * _kept_by_period(mix, entry).get(last, 0)
    return total


def day_of(terms: BillingTerms, years: float) -> date:
    """Return the date `years` years after the start: whole months by the calendar, fractions of a month in days."""
    start, months = terms.resolved.plan.start, round(years * MONTHS_PER_YEAR)
    if abs(years * MONTHS_PER_YEAR - months) > _EPSILON_YEARS:
        return start + timedelta(days=round(years * DAYS_PER_YEAR))
    later, month = divmod(start.month - 1 + months, 12)
    last = monthrange(start.year + later, month + 1)[1]
    return date(start.year + later, month + 1, min(start.day, last))
