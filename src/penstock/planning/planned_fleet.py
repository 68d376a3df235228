"""Exports the winning fleet, in any of its periods, as a fleet description for operators."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from math import ceil
from typing import Final

from penstock.economics.finance import HOURS_PER_YEAR
from penstock.fleet.pools import Fleet, NodeGroup, Pool, Route
from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.candidates.option_pools import option_pools
from penstock.planning.optimizer.cash_flow import day_of
from penstock.planning.optimizer.node_costs import BillingTerms
from penstock.planning.optimizer.problem import DEVICE, NODE, Mix, Offer, PoolPeriod
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.verification.serving_fleet import RequestStream, pool_id, serving_fleet
from penstock.units import count_text

ROUTER_NOTE: Final = (
    "the SLOs hold with `penstock route`, and with any router that sends by these weights and, within a \
pool, to the replica with the fewest requests"
)
"""Says which router the planned fleet assumes."""


def planned_fleet(result: PlanResult, answer: Answer, period: int = 0) -> Fleet:
    """Describe the winning fleet in a period; the first period is the fleet to deploy at the start of the plan."""
    mix, plan = answer.winner.mix, result.plan
    placed = [pool for pool in mix.pools if pool.period == period]
    by_id = {entry.id: entry for entry in result.candidates}
    models = {workload.name: workload.model for workload in plan.workloads}
    names: dict[str, str] = {}
    pools = []
    for pool in placed:
        hour_usd = _node_hour_usd(pool, mix, result.terms)
        for ident, count in pool.replicas.items():
            entry = by_id[ident]
            made = _pools(entry, pool, count, model=models[entry.workload], node_hour_usd=hour_usd)
            # The prefill pool of a disaggregated unit comes first, because requests are sent to it.
            names[pool_id(ident, pool.offer)] = made[0].name
            pools += made
    streams = serving_fleet(mix, period, result.problem, result.candidates, plan.workloads).streams
    return Fleet(
        name=_line(plan.name),
        note=_note(result, period),
        nodes=tuple(_node_groups(placed)),
        pools=tuple(pools),
        routes=tuple(_route(stream, names) for stream in streams),
    )


def _node_groups(placed: Sequence[PoolPeriod]) -> Iterator[NodeGroup]:
    """Yield the nodes of each accelerator and site, and of each size of smaller instances.

    Devices owned already that do not fill whole nodes sit together in nodes, so that a replica may span several.
    """
    groups: dict[tuple[str, str, int | None], tuple[int, int]] = {}
    for pool in placed:
        offer, nodes, spare = pool.offer, pool.nodes, pool.spare_nodes
        size = None if offer.unit == NODE else offer.devices
        if offer.unit == DEVICE:
            size = min(offer.max_replica_devices or 1, nodes)
            nodes, spare = ceil(nodes / size), spare // size
        key = (offer.accelerator, _line(offer.site), size)
        before = groups.get(key, (0, 0))
        groups[key] = (before[0] + nodes, before[1] + spare)
    for (accelerator, site, size), (nodes, spare) in groups.items():
        yield NodeGroup(accelerator=accelerator, site=site, nodes=nodes, spare_nodes=spare, node_devices=size)


def period_starts(result: PlanResult) -> tuple[date, ...]:
    """Return the day on which each period of the plan begins."""
    return tuple(day_of(result.terms, start) for start, _ in result.terms.periods)


def _note(result: PlanResult, period: int) -> str:
    plan, starts = result.plan, period_starts(result)
    note = f"chosen by `penstock plan`, {count_text(plan.horizon_years, 'year')} from {plan.start}"
    if len(starts) == 1:
        return f"{note}; {ROUTER_NOTE}"
    until = f" to {starts[period + 1]}" if period + 1 < len(starts) else ", the last"
    when = f"period {period + 1} of {len(starts)}, from {starts[period]}{until}"
    return f"{note}; {when}{'; deploy this one first' if period == 0 else ''}; {ROUTER_NOTE}"


def _pools(entry: Candidate, pool: PoolPeriod, count: int, *, model: str, node_hour_usd: float) -> list[Pool]:
    """Return one pool of replicas that both prefill and decode, or a prefill pool and a decode pool."""
    site, hour_usd = _line(pool.offer.site), node_hour_usd / pool.offer.devices
    pools = option_pools(entry.option, name=_name(entry, pool.offer), model=model, site=site, replicas=count)
    # A replica that shares no node with others occupies whole nodes.
    whole = entry.disaggregated is None
    return [replace(one, usd_per_hour=_short(hour_usd * (entry.devices if whole else one.devices))) for one in pools]


def _name(entry: Candidate, offer: Offer) -> str:
    unit = "" if offer.unit == NODE else f" {offer.unit}"
    return _line(f"{entry.id} {offer.site}{unit}").replace(" ", "-")


def _line(text: str) -> str:
    """Join the lines of a text into one."""
    return " ".join(text.split())


def _route(stream: RequestStream, names: dict[str, str]) -> Route:
    return Route(
        workload=_line(stream.workload),
        input_tokens=stream.bucket.input_tokens,
        output_tokens=stream.bucket.output_tokens,
        slo=stream.slo,
        peak_requests_per_s=_short(stream.requests_per_s),
        weights={names[ident]: _short(share) for ident, share in stream.shares.items()},
    )


def _node_hour_usd(pool: PoolPeriod, mix: Mix, terms: BillingTerms) -> float:
    """Return the levelised cost of one node in dollars per hour, with engineers per device, without spares."""
    offer, years, periods = pool.offer, terms.finance.paid_years, terms.periods
    held = years(*periods[pool.period])
    bought = {key[3:]: nodes for key, nodes in mix.purchases.items() if key[:3] == offer.key}
    owned_usd = sum(nodes * offer.tiers[level].node_usd[period] for (level, period), nodes in bought.items())
    owned_years = sum(nodes * years(periods[period][0], terms.horizon_years) for (_, period), nodes in bought.items())
    total = pool.owned_nodes * owned_usd / owned_years if owned_years else 0.0
    total += pool.rented_nodes * (offer.rent_usd[pool.period] if offer.rent_usd is not None else 0.0) / held
    if offer.kept is not None and pool.kept_nodes:
        total += pool.kept_nodes * offer.kept.node_usd[pool.period] / held
    for (*key, number, begun), nodes in mix.contracts.items():
        contract = offer.contracts[number] if tuple(key) == offer.key else None
        if contract is not None and begun <= pool.period < begun + contract.spans[begun]:
            last = periods[begun + contract.spans[begun] - 1][1]
            total += nodes * contract.node_usd[begun] / years(periods[begun][0], last)
    return total / pool.nodes / HOURS_PER_YEAR


def _short(value: float) -> float:
    """Round to nine significant digits."""
    return float(f"{value:.9g}")
