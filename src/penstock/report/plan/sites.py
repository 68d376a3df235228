"""Names sites next to nodes and orders, in plans with more than one site."""

from collections.abc import Iterator

from penstock.planning.optimizer.cash_flow import Cash
from penstock.planning.spec.plan_types import Plan
from penstock.report.plan.sentences import money_sentences, order_sentence


def placed(what: str, site: str, plan: Plan) -> str:
    """Append the site's name if the plan has more than one site."""
    return f"{what} at {_line(site)}" if _several(plan) else what


def placed_money(cash: Cash, plan: Plan) -> Iterator[tuple[str, str]]:
    """Describe orders, by site if there are several, then payments and residual values."""
    for head, sentence in money_sentences(cash):
        if head == "order" and _several(plan):
            yield head, "; ".join(f"for {_line(order.site)}: {order_sentence(order)}" for order in cash.orders)
        else:
            yield head, sentence


def _several(plan: Plan) -> bool:
    return len(plan.sites) > 1


def _line(name: str) -> str:
    return " ".join(name.split())
