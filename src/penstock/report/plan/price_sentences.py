"""Writes sentences about rents: whose prices are compared, and which contracts cost more than the hour."""

from collections.abc import Iterator, Sequence

from penstock.planning.optimizer.problem import Mix
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.spec.plan_types import AcceleratorPlan
from penstock.planning.spec.sourced_inputs import Input
from penstock.units import count_text


def price_sentences(result: PlanResult, answer: Answer) -> Iterator[str]:
    """State how many sellers are behind each compared rent, and name contracts that cost more than the hour."""
    mixes = [bill.mix for bill in (answer.winner, *answer.by_label.values())]
    used = {ident for mix in mixes for ident in mix.support}
    planned = [entry for entry in result.plan.accelerators if entry.id in used]
    rents = [rent for entry in planned for rent in _rents(entry, mixes) if not rent[1].given]
    if rents:
        classes = {price.seller_class for _, price in rents if price.sellers}
        other = ". These are different classes of sellers: ask both for a quote" if len(classes) > 1 else ""
        yield f"Catalog rents per device-hour: {'; '.join(text for text, _ in rents)}{other}."
    for entry in planned:
        yield from _dear_contracts(entry)


def _rents(entry: AcceleratorPlan, mixes: Sequence[Mix]) -> Iterator[tuple[str, Input]]:
    """Yield the rents of an accelerator that some fleet pays, by the hour and for each term."""
    pools = [pool for mix in mixes for pool in mix.pools if pool.offer.accelerator == entry.id]
    if entry.rent is not None and any(pool.rented_nodes for pool in pools):
        yield f"{entry.id} ${entry.rent.value:,.2f} by the hour ({_sellers(entry.rent)})", entry.rent
    for number, contract in enumerate(entry.contracts):
        if any(pool.contract_nodes[number] for pool in pools if number < len(pool.contract_nodes)):
            term = f"for {count_text(contract.months, 'month')}"
            yield f"{entry.id} ${contract.rent.value:,.2f} {term} ({_sellers(contract.rent)})", contract.rent


def _sellers(price: Input) -> str:
    if price.given:
        return "your price"
    if price.seller_class is None:
        return "estimated from the discounts of other accelerators" if price.estimated else "assumed"
    return ("estimated from " if price.estimated else "") + count_text(price.sellers, price.seller_class)


def _dear_contracts(entry: AcceleratorPlan) -> Iterator[str]:
    for contract in entry.contracts:
        if entry.rent is not None and contract.rent.value > entry.rent.value:
            dear = (
                f"{entry.id} costs ${contract.rent.value:,.2f} on a contract of {count_text(contract.months, 'month')}"
            )
            hour = f"${entry.rent.value:,.2f} by the hour ({_sellers(entry.rent)})"
            yield f"{dear} ({_sellers(contract.rent)}), more than {hour}: get a quote before you sign."
