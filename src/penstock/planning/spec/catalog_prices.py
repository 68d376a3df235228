"""Turns the catalog's market prices into inputs of the plan, with their ranges and dates."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Final

from penstock.catalog import api_price_of
from penstock.catalog.device_prices import purchase_market
from penstock.catalog.price import MarketPrice, Price, instance_sizes, market_price
from penstock.catalog.seller import SellerLevels
from penstock.planning.spec.plan_types import AcceleratorPlan, ApiPrice, ContractPlan
from penstock.planning.spec.sourced_inputs import Input
from penstock.units import count_text

TERMS_MONTHS: Final = (12, 36)
"""Contract terms, in months, that are looked up if a plan states no contract."""
_SEVERAL: Final = 3
"""Number of sellers from which on a device counts as easy to rent."""


def purchase_price(prices: Sequence[Price]) -> tuple[Input, bool] | None:
    """Return the price of a device, and whether that price includes a share of the host."""
    found = purchase_market(prices)
    if found is None:
        return None
    kind, market = found
    if kind == "purchase_device":
        return _input(market, "purchase price", "USD/device"), False
    return _input(market, f"price of a {kind.removeprefix('purchase_')} over its devices", "USD/device"), True


Levels = Callable[[], SellerLevels]
"""Function that returns how dear each seller is; it is called only if a price must be paired."""


def hourly_price(prices: Sequence[Price], levels: Levels | None = None) -> Input | None:
    """Return the hourly on-demand price."""
    market = market_price(prices, "rent_on_demand", levels=levels)
    return None if market is None else _input(market, "newest on-demand price", "USD/device/hour")


def hourly_sizes(prices: Sequence[Price]) -> tuple[int, ...]:
    """Return the sizes of instances, in devices, in which the sellers behind the catalog's price rent by the hour."""
    market = market_price(prices, "rent_on_demand")
    return instance_sizes(prices, "rent_on_demand", seller_class=None if market is None else market.seller_class)


def is_rented_singly(prices: Sequence[Price]) -> bool:
    """Return whether several sellers rent the device by the hour, and single devices are on sale."""
    market = market_price(prices, "rent_on_demand")
    return market is not None and len(market.offers) >= _SEVERAL and 1 in hourly_sizes(prices)


def contract_prices(prices: Sequence[Price]) -> tuple[ContractPlan, ...]:
    """Return the hourly contract price for each term with a published price."""
    found = []
    for months in TERMS_MONTHS:
        market = market_price(prices, "rent_contract", term_months=months)
        if market is not None:
            rent = _input(market, f"price for {months} months", "USD/device/hour")
            sizes = instance_sizes(prices, "rent_contract", term_months=months)
            found.append(ContractPlan(months=months, rent=rent, sizes=sizes))
    return tuple(found)


def with_like_terms(planned: Sequence[AcceleratorPlan]) -> tuple[AcceleratorPlan, ...]:
    """Estimate the contracts of accelerators that lack a term of others, so that like terms are compared.

    The estimate is the rent by the hour times the median discount of the accelerators that have both. An accelerator
    whose contracts the plan states has no others.
    """
    found = list(planned)
    for months in TERMS_MONTHS:
        discounts = [
            contract.rent.value / entry.rent.value
            for entry in planned
            for contract in entry.contracts
            if entry.rent is not None and contract.months == months and contract.rent.value < entry.rent.value
        ]
        if discounts:
            found = [_with_term(entry, months, discounts) for entry in found]
    return tuple(found)


def _with_term(planned: AcceleratorPlan, months: int, discounts: Sequence[float]) -> AcceleratorPlan:
    hourly, known = planned.rent, planned.contracts
    if hourly is None or any(one.months == months or one.rent.given for one in known):
        return planned
    times, low, high = median(discounts), min(discounts), max(discounts)
    rent = replace(
        hourly,
        value=hourly.value * times,
        low=hourly.low * low,
        high=hourly.high * high,
        source=f"estimated: the rent by the hour times {times:.2f}, the median for {count_text(months, 'month')} of "
        f"{count_text(len(discounts), 'accelerator')} of the plan; no seller's price is recorded",
        estimated=True,
        given=False,
        sellers=0,
        seller_class=None,
    )
    added = ContractPlan(months=months, rent=rent, sizes=planned.instances or ())
    return replace(planned, contracts=tuple(sorted((*known, added), key=lambda one: one.months)))


def api_price(model: str) -> ApiPrice | None:
    """Return the catalog's price of a model on APIs, with its sellers, range and day; None if none is recorded."""
    found = api_price_of(model)
    if found is None:
        return None
    cached = found.cached_input_usd_per_mtok
    note = "no cached price is listed" if cached is None else f"cached input ${cached:,g}"
    low, high = found.low_output_usd_per_mtok, found.high_output_usd_per_mtok
    return ApiPrice(
        input_usd_per_mtok=found.input_usd_per_mtok,
        output_usd_per_mtok=found.output_usd_per_mtok,
        source=f"medians of {count_text(found.sellers, 'seller')}, output ${low:,g} to ${high:,g}, {note}; "
        f"{found.source.partition(':')[0]}, {found.checked_on}",
    )


def _input(market: MarketPrice, kind: str, unit: str) -> Input:
    surveys = [price for price in market.offers if price.survey]
    days = sorted(price.effective_from for price in market.offers)
    sellers = count_text(len(days), market.seller_class)
    if len(market.offers) == 1:
        (only,) = market.offers
        source = f"catalog {only.id}: {only.provider}, {only.effective_from} ({only.confidence} confidence)"
    elif surveys:
        newest = max(surveys, key=lambda price: price.effective_from)
        source = f"catalog {newest.id}: {newest.provider}, {newest.effective_from}; range of {len(days)} sources"
    else:
        source = f"catalog: median and range of the {kind} of {sellers}, {days[0]} to {days[-1]}"
    if market.paired:
        asked = sorted(price.usd_per_device for price in market.offers)
        quoted = f"${asked[0]:,.2f}" if len(asked) == 1 else f"${asked[0]:,.2f} to ${asked[-1]:,.2f}"
        names = ", ".join(price.provider for price in market.offers)
        source = (
            f"catalog: what a median {market.seller_class} would ask, from what the same sellers ask for other "
            f"accelerators; {sellers} ({names}) asked {quoted} on {days[-1]}"
        )
    return Input(
        value=market.usd_per_device,
        low=market.low_usd_per_device,
        high=market.high_usd_per_device,
        unit=unit,
        source=source,
        sellers=len(days),
        seller_class=market.seller_class,
        estimated=market.paired,
    )
