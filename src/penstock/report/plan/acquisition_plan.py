"""Says what to keep, buy, rent and sell: what is signed now, and what the plan adds later."""

from collections.abc import Iterator, Sequence

from penstock.planning.optimizer.cash_flow import Cash
from penstock.planning.optimizer.problem import DEVICE, NODE, Mix, Offer, PoolPeriod
from penstock.planning.plan_result import Answer, Bill, PlanResult
from penstock.planning.spec.resolve_plan import Resolved
from penstock.report.plan.plan_amounts import usd
from penstock.report.plan.sentences import capital_first, product_name
from penstock.units import count_text


def order_sentences(result: PlanResult, answer: Answer) -> list[str]:
    """State what is signed now, what is added later, and what both cost."""
    now, later = acquisitions(answer.winner.mix, result.resolved)
    cash, years = answer.winner.cash, count_text(result.plan.horizon_years, "year")
    after = f" after {usd(sold)} from sales" if (sold := sold_usd(answer.winner)) else ""
    money = f"{commitment(cash)}, {usd(paid_usd(answer.winner))} paid in total over {years}{after}."
    if not later:
        return [f"{capital_first(now)}: {money}"]
    return [*([f"Now: {now}."] if now else []), f"Later: {later}.", capital_first(money)]


def paid_usd(bill: Bill) -> float:
    """Return the undiscounted dollars paid during the plan's horizon, minus the proceeds of sales."""
    return sum(paid.total_usd for paid in bill.cash.years)


def sold_usd(bill: Bill) -> float:
    """Return the proceeds of selling owned nodes, which are no part of the cost that the plan minimises."""
    return sum(paid.sales_usd for paid in bill.cash.years)


def acquisitions(mix: Mix, resolved: Resolved) -> tuple[str, str]:
    """List the nodes to keep, buy, rent and sell now, and those that are added in later periods."""
    now = [*_unused_owned(mix, resolved), *_phrases(mix, resolved, later=False)]
    later = _phrases(mix, resolved, later=True)
    return _join_phrases(now), _join_phrases(later)


def committed_usd(cash: Cash) -> tuple[float, float]:
    """Return the dollars committed in rental contracts that are signed now, and in contracts that are signed later."""
    start = cash.quarters[0].start
    contracts = [order for order in cash.orders if order.months is not None]
    now = sum(order.usd for order in contracts if order.on == start)
    return now, sum(order.usd for order in contracts) - now


def commitment(cash: Cash) -> str:
    """State the purchases and the rental contracts that the plan commits to, now and later."""
    now, later = committed_usd(cash)
    bought = f"{usd(cash.capex_usd)} of purchases" if cash.capex_usd else "no purchase"
    signed = [f"{usd(amount)} {when}" for amount, when in ((now, "now"), (later, "later")) if usd(amount) != "$0"]
    return ", ".join([bought, *([f"{' and '.join(signed)} in contracts"] if signed else [])])


def _join_phrases(phrases: Sequence[str]) -> str:
    return ", and ".join(phrases) if len(phrases) < 3 else ", ".join(phrases)  # "and" joins two


def _phrases(mix: Mix, resolved: Resolved, *, later: bool) -> list[str]:
    """Describe the acquisitions of each accelerator; units of several sizes with one verb and term are one phrase."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for ident in sorted(mix.support):
        pools = [pool for pool in mix.pools if pool.offer.accelerator == ident]
        name = product_name(resolved.accelerators[ident])
        units = sorted({pool.offer.unit: pool.offer.devices for pool in pools}.items(), key=lambda entry: -entry[1])
        for unit, _ in units:
            of_unit = [pool for pool in pools if pool.offer.unit == unit]
            for verb, nodes, how in _ways(mix, of_unit, later=later):
                if nodes:
                    counted = _counted_units(nodes, of_unit[0].offer, rented=verb.startswith("rent"))
                    found.setdefault((verb, name, how), []).append(counted)
    return [f"{verb} {' and '.join(counted)} {name}{how}" for (verb, name, how), counted in found.items()]


def _ways(mix: Mix, pools: Sequence[PoolPeriod], *, later: bool) -> Iterator[tuple[str, int, str]]:
    """Yield the verb, the number and the term of each way in which units are acquired in the first or in later periods.

    Units that are rented or signed in several later periods are counted where most of them serve at once.
    """
    offers = {pool.offer.key: pool.offer for pool in pools}
    starts: dict[int, set[int]] = {}
    in_force: dict[int, dict[int, int]] = {}
    for (accelerator, site, unit, number, begun), nodes in mix.contracts.items():
        offer = offers.get((accelerator, site, unit))
        if offer is not None and later == (begun > 0):
            contract = offer.contracts[number]
            starts.setdefault(contract.months, set()).add(begun)
            counts = in_force.setdefault(contract.months, {})
            for period in range(begun, begun + contract.spans[begun]):
                counts[period] = counts.get(period, 0) + nodes
    if not later:
        yield "keep", _most([(pool.period, pool.kept_nodes) for pool in pools]), ""
    yield "buy", sum(nodes for key, nodes in mix.purchases.items() if key[:3] in offers and later == (key[-1] > 0)), ""
    for months, counts in sorted(in_force.items()):
        verb = "rent up to" if len(starts[months]) > 1 else "rent"
        yield verb, max(counts.values()), f" for {count_text(months, 'month')}"
    at_first = _most([(pool.period, pool.rented_nodes) for pool in pools if pool.period == 0])
    most = _most([(pool.period, pool.rented_nodes) for pool in pools])
    if later and most > at_first:
        yield "rent up to" if at_first else "rent", most, " by the hour"
    elif not later:
        yield "rent", at_first, " by the hour"


def _counted_units(count: int, offer: Offer, *, rented: bool) -> str:
    """Return a number of nodes or instances with their devices, or of single devices."""
    if offer.unit == DEVICE:
        return f"{count:,} x"
    unit = "instance" if rented or offer.unit != NODE else "node"
    if offer.devices == 1:
        return f"{count_text(count, f'single-device {unit}')} of"
    return f"{count_text(count, unit)} of {offer.devices}"


def _most(nodes: Sequence[tuple[int, int]]) -> int:
    """Return the maximum number of nodes in any period, where the nodes of a period are summed over sites."""
    had: dict[int, int] = {}
    for period, count in nodes:
        had[period] = had.get(period, 0) + count
    return max(had.values(), default=0)


def _unused_owned(mix: Mix, resolved: Resolved) -> Iterator[str]:
    """List owned nodes that the fleet never uses."""
    for entry in resolved.plan.owned:
        where = (entry.id, entry.site)
        pools = [pool for pool in mix.pools if (pool.offer.accelerator, pool.offer.site) == where and pool.offer.kept]
        kept = max((pool.kept_nodes for pool in pools), default=0)
        if (entry.nodes or 0) > kept:
            what = "nodes" if entry.unit_devices is None else "devices"
            yield f"sell {(entry.nodes or 0) - kept:,} of your {product_name(resolved.accelerators[entry.id])} {what}"
