"""Writes sentences about orders and payments. The sentences name the site if the plan has more than one site."""

from collections.abc import Iterator

from penstock.planning.optimizer.cash_flow import Cash, Order
from penstock.planning.spec.plan_types import Plan
from penstock.report.plan.plan_amounts import usd
from penstock.units import count_text


def with_site(what: str, site: str, plan: Plan) -> str:
    """Append the site's name if the plan has more than one site."""
    return f"{what} at {_line(site)}" if _several(plan) else what


def money_with_site(cash: Cash, plan: Plan) -> Iterator[tuple[str, str]]:
    """Describe orders, payments and residual values. If there are several sites, orders are described per site."""
    for head, sentence in _money_sentences(cash):
        if head == "order" and _several(plan):
            yield head, "; ".join(f"for {_line(order.site)}: {_order_sentence(order)}" for order in cash.orders)
        else:
            yield head, sentence


def _order_sentence(order: Order) -> str:
    """Describe an order or contract, with its deadline."""
    unit = "node" if order.months is None else "instance"
    what = f"{count_text(order.nodes, f'{order.accelerator} {unit}')} ({count_text(order.devices, 'device')})"
    known = "an estimated price: ask for a quote first" if order.estimated else "the catalog price"
    price = "" if order.quoted else f", at {known}"
    if order.months is not None:
        return f"{what} for {count_text(order.months, 'month')} from {order.on}: {usd(order.usd)} committed{price}"
    by = f", order by {order.by}" if order.by is not None else ""
    return f"{what} to serve on {order.on}{by}: {usd(order.usd)}{price}"


def _money_sentences(cash: Cash) -> Iterator[tuple[str, str]]:
    """Describe orders, payments by year, and residual values at the end of the plan."""
    if cash.orders:
        yield "order", "; ".join(_order_sentence(order) for order in cash.orders)
    years = ", ".join(f"from {paid.start:%Y-%m} {usd(paid.total_usd)}" for paid in cash.years)
    sales = ", less sales" if any(paid.sales_usd for paid in cash.years) else ""
    yield "cash", f"capex {usd(cash.capex_usd)}, opex {usd(cash.opex_usd)}; per year{sales}: {years}"
    left = []
    if cash.capex_usd:
        left.append(
            f"book value {usd(cash.bought_book_usd)}, of which {usd(cash.bought_resale_usd)} is counted as resale"
        )
    if cash.kept_book_usd:
        left.append(f"book value of nodes owned before {usd(cash.kept_book_usd)}")
    if cash.after_usd:
        left.append(f"contract payments still due {usd(cash.after_usd)}")
    if left:
        yield "end", "; ".join(left)


def _several(plan: Plan) -> bool:
    return len(plan.sites) > 1


def _line(name: str) -> str:
    return " ".join(name.split())
