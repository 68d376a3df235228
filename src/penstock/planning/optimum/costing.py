"""What does a fleet cost, line by line? The solver's answer billed again from the price list, and per token."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.economics.finance import HOURS_PER_YEAR
from penstock.economics.line import Line, total_usd
from penstock.economics.tco import Waterfall, as_spares, waterfall
from penstock.economics.token_price import TokenPrice, token_price
from penstock.planning.asked.plan import PartPlan, SitePlan, WorkloadPlan
from penstock.planning.candidates.search import Candidate
from penstock.planning.optimum.build import BillingTerms, demands_of
from penstock.planning.optimum.problem import Mix, PoolPeriod

_SECONDS_PER_YEAR: Final = HOURS_PER_YEAR * 3600

PrefillRule = Callable[[Candidate, int], float | None]
"""Share of busy device time that input tokens pay for, for a deployment and the number of a length bucket."""


def device_seconds_of_prefill(candidate: Candidate, bucket: int) -> float | None:
    """Let input pay for the device time prompts take: the default rule."""
    return candidate.capacities[bucket].prefill_fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCost:
    """What one workload costs: its share of the fleet by busy device time."""

    workload: str
    usd: float
    input_tokens: float
    output_tokens: float
    """Discounted like money, so that their price is a levelised one."""
    price: TokenPrice


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCost:
    """The whole bill."""

    lines: tuple[Line, ...]
    total_usd: float
    waterfall: Waterfall
    idle_usd: float
    """What of it pays for devices that stand ready: nights, spares and rounding up to whole nodes."""
    busy_fraction: float
    workloads: tuple[WorkloadCost, ...]


def bill(
    mix: Mix, terms: BillingTerms, candidates: Sequence[Candidate], *, rule: PrefillRule = device_seconds_of_prefill
) -> FleetCost:
    """Bill every purchase, every rented period and every vendor's people; the total is the solver's."""
    lines = (*_purchases(mix, terms), *_rents(mix, terms), *_people(mix, terms))
    total = total_usd(lines)
    busy = _busy(mix, terms, {entry.id: entry for entry in candidates})
    ready = sum(
        terms.finance.paid_years(*terms.periods[pool.period]) * pool.nodes * pool.offer.devices for pool in mix.pools
    )
    share = sum(busy.values()) / ready if ready else 0.0
    return FleetCost(
        lines=lines,
        total_usd=total,
        waterfall=waterfall(lines),
        idle_usd=total * (1 - share),
        busy_fraction=share,
        workloads=tuple(_workload_costs(terms, total, busy, candidates, rule)),
    )


def _purchases(mix: Mix, terms: BillingTerms) -> list[Line]:
    lines: list[Line] = []
    spares = _spares_owned(mix)
    for (accelerator, site_name, level, period), nodes in sorted(mix.purchases.items(), key=lambda entry: entry[0][3]):
        part, site = _part(terms, accelerator), _site(terms, site_name)
        standby = min(nodes, spares.get((accelerator, site_name), 0))
        spares[accelerator, site_name] = spares.get((accelerator, site_name), 0) - standby
        if nodes > standby:
            lines += terms.bought(part, site, level, period, nodes=nodes - standby)
        if standby:
            spare = terms.bought(part, site, level, period, nodes=standby)
            lines.append(as_spares(f"{accelerator} spare", spare, nodes=standby))
    return lines


def _rents(mix: Mix, terms: BillingTerms) -> list[Line]:
    lines: list[Line] = []
    for pool in mix.pools:
        if not pool.rented_nodes:
            continue
        part, site = _part(terms, pool.offer.accelerator), _site(terms, pool.offer.site)
        standby = min(pool.rented_nodes, max(0, pool.spare_nodes - pool.owned_nodes))
        if pool.rented_nodes > standby:
            lines += terms.rented(part, site, pool.period, nodes=pool.rented_nodes - standby)
        if standby:
            spare = terms.rented(part, site, pool.period, nodes=standby)
            lines.append(as_spares(f"{part.id} spare, rented", spare, nodes=standby))
    return lines


def _people(mix: Mix, terms: BillingTerms) -> list[Line]:
    lines: list[Line] = []
    for vendor in sorted(mix.vendors):
        for period in range(len(terms.periods)):
            serving = any(pool.replicas for pool in mix.pools if (pool.offer.vendor, pool.period) == (vendor, period))
            lines += terms.people(vendor, period) if serving else ()
    return lines


def _spares_owned(mix: Mix) -> dict[tuple[str, str], int]:
    spares: dict[tuple[str, str], int] = {}
    for pool in mix.pools:
        key = pool.offer.key
        spares[key] = max(spares.get(key, 0), min(pool.spare_nodes, pool.owned_nodes))
    return spares


Busy = Mapping[tuple[str, str, int], float]
"""Replica, workload and bucket to busy device-years, discounted."""


def _busy(mix: Mix, terms: BillingTerms, candidates: Mapping[str, Candidate]) -> dict[tuple[str, str, int], float]:
    busy: dict[tuple[str, str, int], float] = {}
    workloads = {workload.name: workload for workload in terms.resolved.plan.workloads}
    for pool in mix.pools:
        years = terms.finance.paid_years(*terms.periods[pool.period])
        for (name, (workload, bucket)), share in pool.load.items():
            devices = _mean_devices(pool, workloads[workload], candidates[name], bucket, terms) * share
            devices /= pool.carried.get(name, 1.0)
            key = (name, workload, bucket)
            busy[key] = busy.get(key, 0.0) + devices * years
    return busy


def _mean_devices(
    pool: PoolPeriod, workload: WorkloadPlan, candidate: Candidate, bucket: int, terms: BillingTerms
) -> float:
    rate = demands_of(workload, terms.periods)[bucket].requests_per_s[pool.period] * workload.mean_load.value
    return rate / candidate.rates[bucket] * candidate.devices


def _workload_costs(
    terms: BillingTerms, total: float, busy: Busy, candidates: Sequence[Candidate], rule: PrefillRule
) -> list[WorkloadCost]:
    by_id = {entry.id: entry for entry in candidates}
    everything = sum(busy.values()) or 1.0
    found = []
    for workload in terms.resolved.plan.workloads:
        own = {key: value for key, value in busy.items() if key[1] == workload.name}
        usd = total * sum(own.values()) / everything
        inputs, outputs = _tokens(workload, terms)
        shares = [(value, rule(by_id[name], bucket)) for (name, _, bucket), value in own.items()]
        found.append(
            WorkloadCost(
                workload=workload.name,
                usd=usd,
                input_tokens=inputs,
                output_tokens=outputs,
                price=token_price(usd, input_tokens=inputs, output_tokens=outputs, prefill_fraction=_weighted(shares)),
            )
        )
    return found


def _weighted(shares: Sequence[tuple[float, float | None]]) -> float | None:
    """Average by weight; unknown as soon as one part is."""
    weight, total = 0.0, 0.0
    for value, fraction in shares:
        if fraction is None:
            return None
        weight, total = weight + value, total + value * fraction
    return total / weight if weight else None


def _tokens(workload: WorkloadPlan, terms: BillingTerms) -> tuple[float, float]:
    inputs = outputs = 0.0
    for demand, share in zip(demands_of(workload, terms.periods), workload.shares, strict=True):
        for rate, period in zip(demand.requests_per_s, terms.periods, strict=True):
            requests = rate * workload.mean_load.value * terms.finance.paid_years(*period) * _SECONDS_PER_YEAR
            inputs += requests * share.bucket.input_tokens
            outputs += requests * share.bucket.output_tokens
    return inputs, outputs


def _part(terms: BillingTerms, ident: str) -> PartPlan:
    return next(part for part in terms.resolved.plan.parts if part.id == ident)


def _site(terms: BillingTerms, name: str) -> SitePlan:
    return next(site for site in terms.resolved.plan.sites if site.name == name)
