"""Writes sentences about rents: whose prices are compared, and which contracts cost more than the hour."""

from collections.abc import Iterator

from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.spec.plan_types import AcceleratorPlan
from penstock.planning.spec.sourced_inputs import Input
from penstock.units import count_text


def price_sentences(result: PlanResult, answer: Answer) -> Iterator[str]:
    """State how many sellers are behind each compared rent, and name contracts that cost more than the hour."""
    used = {ident for bill in (answer.winner, *answer.by_label.values()) for ident in bill.mix.support}
    planned = [entry for entry in result.plan.accelerators if entry.id in used]
    if rents := "; ".join(_rent(entry) for entry in planned if entry.rent is not None and not entry.rent.given):
        classes = {entry.rent.seller_class for entry in planned if entry.rent is not None and entry.rent.sellers}
        other = ". These are different classes of sellers: ask both for a quote" if len(classes) > 1 else ""
        yield f"Catalog rents by the hour, per device: {rents}{other}."
    for entry in planned:
        yield from _dear_contracts(entry)


def _rent(entry: AcceleratorPlan) -> str:
    rent = entry.rent
    return "" if rent is None else f"{entry.id} ${rent.value:,.2f} ({_sellers(rent)})"


def _sellers(price: Input) -> str:
    if price.given:
        return "your price"
    return "assumed" if price.seller_class is None else count_text(price.sellers, price.seller_class)


def _dear_contracts(entry: AcceleratorPlan) -> Iterator[str]:
    for contract in entry.contracts:
        if entry.rent is not None and contract.rent.value > entry.rent.value:
            dear = (
                f"{entry.id} costs ${contract.rent.value:,.2f} on a contract of {count_text(contract.months, 'month')}"
            )
            hour = f"${entry.rent.value:,.2f} by the hour ({_sellers(entry.rent)})"
            yield f"{dear} ({_sellers(contract.rent)}), more than {hour}: get a quote before you sign."
