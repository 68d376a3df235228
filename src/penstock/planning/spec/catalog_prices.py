"""Turns the catalog's market prices into inputs of the plan, with their ranges and dates."""

from collections.abc import Sequence
from typing import Final

from penstock.catalog.price import MarketPrice, Price, PriceKind, market_price
from penstock.planning.spec.plan_types import ContractPlan
from penstock.planning.spec.sourced_inputs import Input

TERMS_MONTHS: Final = (12, 36)
"""Contract terms, in months, that are looked up if a plan states no contract."""
_WITH_HOST: Final[Sequence[PriceKind]] = ("purchase_node", "purchase_rack")


def purchase_price(prices: Sequence[Price]) -> tuple[Input, bool] | None:
    """Return the price of a device, and whether that price includes a share of the host.

    If no device price is published, the price of a server or rack is divided by its number of devices. The result then
    includes a share of the host.
    """
    market = market_price(prices, "purchase_device")
    if market is not None:
        return _input(market, "purchase estimates", "USD/device"), False
    for kind in _WITH_HOST:
        market = market_price(prices, kind)
        if market is not None:
            return _input(market, f"prices of a {kind.removeprefix('purchase_')} over its devices", "USD/device"), True
    return None


def hourly_price(prices: Sequence[Price]) -> Input | None:
    """Return the hourly on-demand price."""
    market = market_price(prices, "rent_on_demand")
    return None if market is None else _input(market, "providers' newest on-demand prices", "USD/device/hour")


def contract_prices(prices: Sequence[Price]) -> tuple[ContractPlan, ...]:
    """Return the hourly contract price for each term with a published price."""
    found = []
    for months in TERMS_MONTHS:
        market = market_price(prices, "rent_contract", term_months=months)
        if market is not None:
            rent = _input(market, f"contracts of {months} months", "USD/device/hour")
            found.append(ContractPlan(months=months, rent=rent))
    return tuple(found)


def _input(market: MarketPrice, kind: str, unit: str) -> Input:
    surveys = [price for price in market.offers if price.survey]
    days = sorted(price.effective_from for price in market.offers)
    if len(market.offers) == 1:
        (only,) = market.offers
        source = f"catalog {only.id}: {only.provider}, {only.effective_from} ({only.confidence} confidence)"
    elif surveys:
        newest = max(surveys, key=lambda price: price.effective_from)
        source = f"catalog {newest.id}: {newest.provider}, {newest.effective_from}; range of {len(days)} {kind}"
    else:
        source = f"catalog: median and middle half of {len(days)} {kind}, {days[0]} to {days[-1]}"
    return Input(
        value=market.usd_per_device,
        low=market.low_usd_per_device,
        high=market.high_usd_per_device,
        unit=unit,
        source=source,
    )
