"""Bills a fleet line by line from the price list, independently of the solver, and computes prices per token."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from penstock.economics.bill_line import Line, total_usd
from penstock.economics.finance import HOURS_PER_YEAR
from penstock.economics.tco import Waterfall, as_spares, waterfall
from penstock.economics.token_price import TokenPrice, token_price
from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.build_problem import demands_of
from penstock.planning.optimizer.node_costs import BillingTerms
from penstock.planning.optimizer.problem import HoldingKey, Mix, OfferKey, PoolPeriod
from penstock.planning.spec.plan_types import OwnedPlan, WorkloadPlan

_SECONDS_PER_YEAR: Final = HOURS_PER_YEAR * 3600

PrefillRule = Callable[[Candidate, int], float | None]
"""Function that maps a candidate and the index of a length bucket to the share of cost charged to input tokens.

The shared cost is the cost of the time in which the candidate's devices are busy with requests of this bucket.
"""


def device_seconds_of_prefill(candidate: Candidate, bucket: int) -> float | None:
    """Return the share of device time that prefill takes. This is the default `PrefillRule`."""
    return candidate.capacities[bucket].prefill_fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCost:
    """Cost of one workload: the fleet's cost times the workload's share of busy device time."""

    workload: str
    usd: float
    input_tokens: float
    output_tokens: float
    """Discounted number of output tokens. Tokens are discounted so that the price per token is levelised."""
    price: TokenPrice


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCost:
    """The bill of a fleet."""

    lines: tuple[Line, ...]
    total_usd: float
    waterfall: Waterfall
    idle_usd: float
    """Cost of idle device time, which is due to low load, spare nodes and rounding up to whole nodes."""
    busy_fraction: float
    workloads: tuple[WorkloadCost, ...]


def bill(
    mix: Mix, terms: BillingTerms, candidates: Sequence[Candidate], *, rule: PrefillRule = device_seconds_of_prefill
) -> FleetCost:
    """Bill a fleet and compute its prices per token; the total of the bill equals the solver's cost."""
    lines = fleet_lines(mix, terms)
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


Way = Literal["kept", "bought", "contract", "hour"]


@dataclass(frozen=True, kw_only=True)
class Holding:
    """Nodes of one accelerator at one site, acquired in the same way on the same date."""

    label: str
    nodes: int
    standby: int
    """Number of nodes, out of `nodes`, that are spares."""
    bill: Callable[[float], tuple[Line, ...]]
    """Function that maps a number of nodes to the bill of that many nodes."""

    def lines(self) -> Iterator[Line]:
        """Yield the bill of serving nodes line by line, and one line for all spares."""
        if self.nodes > self.standby:
            yield from self.bill(self.nodes - self.standby)
        if self.standby:
            yield as_spares(self.label, self.bill(self.standby), nodes=self.standby)


def holdings(mix: Mix, terms: BillingTerms) -> Iterator[Holding]:
    """Yield the nodes of a fleet in groups: kept nodes, then bought, contracted and hourly nodes."""
    plan = terms.resolved.plan
    kept: dict[tuple[str, str], OwnedPlan] = {(entry.id, entry.site or ""): entry for entry in plan.owned}
    offers = {pool.offer.key: pool.offer for pool in mix.pools}
    for pool in (entry for entry in mix.pools if entry.kept_nodes):
        bill = _kept_bill(terms, kept[pool.offer.accelerator, pool.offer.site], pool.period)
        label = f"{pool.offer.accelerator} spare, kept"
        yield Holding(label=label, nodes=pool.kept_nodes, standby=_standby(pool, "kept"), bill=bill)
    held: tuple[tuple[Mapping[HoldingKey, int], Way], ...] = ((mix.purchases, "bought"), (mix.contracts, "contract"))
    for ways, way in held:
        spares = _spares(mix, way)
        for (*where, number, period), nodes in sorted(ways.items(), key=lambda entry: entry[0][-1]):
            accelerator, site, unit = where
            key = (accelerator, site, unit)
            standby = min(nodes, spares.get(key, 0))
            spares[key] = spares.get(key, 0) - standby
            which = (*terms.find(accelerator, site), number, period)
            if way == "bought":
                bill = partial(terms.bill_bought, *which)
            else:
                bill = partial(terms.bill_contracted, *which, devices=offers[key].devices)
            yield Holding(label=f"{accelerator} spare", nodes=nodes, standby=standby, bill=_nodes_bill(bill))
    for pool in (entry for entry in mix.pools if entry.rented_nodes):
        planned, site_plan = terms.find(pool.offer.accelerator, pool.offer.site)
        rented = partial(terms.bill_rented, planned, site_plan, pool.period, devices=pool.offer.devices)
        bill = _nodes_bill(rented)
        label = f"{pool.offer.accelerator} spare, rented"
        yield Holding(label=label, nodes=pool.rented_nodes, standby=_standby(pool, "hour"), bill=bill)


def _nodes_bill(bill_of: Callable[..., tuple[Line, ...]]) -> Callable[[float], tuple[Line, ...]]:
    return lambda nodes: bill_of(nodes=nodes)


def _kept_bill(terms: BillingTerms, entry: OwnedPlan, period: int) -> Callable[[float], tuple[Line, ...]]:
    return lambda nodes: terms.bill_kept(entry, period, nodes=nodes)


def _standby(pool: PoolPeriod, way: Way) -> int:
    """Return how many of a pool's nodes that were acquired in the given way are spares.

    Spares are taken from kept nodes first, then from bought nodes, then from contracted nodes, then from hourly nodes.
    """
    left = pool.spare_nodes
    counts: Mapping[Way, int] = {
        "kept": pool.kept_nodes,
        "bought": pool.owned_nodes,
        "contract": sum(pool.contract_nodes),
        "hour": pool.rented_nodes,
    }
    for name, count in counts.items():
        if name == way:
            return min(left, count)
        left -= min(left, count)
    return 0


def _spares(mix: Mix, way: Way) -> dict[OfferKey, int]:
    spares: dict[OfferKey, int] = {}
    for pool in mix.pools:
        spares[pool.offer.key] = max(spares.get(pool.offer.key, 0), _standby(pool, way))
    return spares


def fleet_lines(mix: Mix, terms: BillingTerms) -> tuple[Line, ...]:
    """Bill all nodes of a fleet and the extra engineers of its vendors."""
    nodes = (line for holding in holdings(mix, terms) for line in holding.lines())
    return (*nodes, *people_lines(mix, terms))


def people_lines(mix: Mix, terms: BillingTerms) -> list[Line]:
    """Bill the engineers of every vendor whose nodes serve, period by period."""
    lines: list[Line] = []
    for vendor in sorted(mix.vendors):
        for period in range(len(terms.periods)):
            serving = any(pool.replicas for pool in mix.pools if (pool.offer.vendor, pool.period) == (vendor, period))
            lines += terms.people(vendor, period) if serving else ()
    return lines


Busy = Mapping[tuple[str, str, int], float]
"""Maps replica, workload and length bucket to discounted busy device-years."""


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
    return rate / (candidate.rates[bucket] * terms.gain(candidate.accelerator.vendor, pool.period)) * candidate.devices


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
                price=token_price(
                    usd, input_tokens=inputs, output_tokens=outputs, prefill_fraction=_weighted_mean(shares)
                ),
            )
        )
    return found


def _weighted_mean(shares: Sequence[tuple[float, float | None]]) -> float | None:
    """Return the weighted mean of fractions; None if any fraction is None or the weights add up to 0."""
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
