"""Where does it stand? Sites named beside nodes and orders, in plans that have more than one."""

from collections.abc import Iterator

from penstock.planning.optimizer.cash_flow import Cash
from penstock.planning.spec.plan_types import Plan
from penstock.report.plan.sentences import money_sentences, order_sentence


def placed(what: str, site: str, plan: Plan) -> str:
    """Name the site behind what stands there; a plan with one site need not be told which."""
    return f"{what} at {_line(site)}" if _several(plan) else what


def placed_money(cash: Cash, plan: Plan) -> Iterator[tuple[str, str]]:
    """Say what is ordered for which site, what is paid when, and what is left at the end."""
    for head, sentence in money_sentences(cash):
        if head == "order" and _several(plan):
            yield head, "; ".join(f"for {_line(order.site)}: {order_sentence(order)}" for order in cash.orders)
        else:
            yield head, sentence


def _several(plan: Plan) -> bool:
    return len(plan.sites) > 1


def _line(name: str) -> str:
    return " ".join(name.split())
