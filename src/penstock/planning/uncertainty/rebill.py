"""Computes a fleet's nodes at other loads and each node's bill at other terms, for the report's controls.

A fleet keeps its accelerators, its placements and the way each node is acquired. Bills are formulas with their inputs,
so a reader of the report can evaluate them again with another price. Only values that are not numbers in a formula are
computed here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final, Literal

import numpy as np

from penstock.economics.bill_line import Line
from penstock.planning.optimizer.node_costs import BillingTerms, terms_of
from penstock.planning.optimizer.problem import Mix, Offer, PoolPeriod, Problem
from penstock.planning.optimizer.refill_nodes import Filling
from penstock.planning.spec.resolve_plan import Resolved

LOADS: Final = tuple(round(0.5 + 0.1 * step, 1) for step in range(16))
"""Demand relative to plan: 0.5 to 2 in steps of 0.1."""
_TERMS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
_ROUNDING: Final = 1e-6

HadWay = Literal["kept", "bought", "contract", "hour", "people"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit of billing: a node acquired in one way from one period on, or a vendor's engineers in a period."""

    way: HadWay
    vendor: str
    period: int
    accelerator: str = ""
    site: str = ""
    number: int = 0
    """Price level of a purchase, or number of the contract."""


Counts = Mapping[Unit, int]


def bill_of(unit: Unit, terms: BillingTerms) -> tuple[Line, ...]:
    """Bill one unit; empty if its period lies beyond the term."""
    if unit.period >= len(terms.periods):
        return ()
    if unit.way == "people":
        return terms.people(unit.vendor, unit.period)
    if unit.way == "kept":
        plan = terms.resolved.plan
        entry = next(entry for entry in plan.owned if (entry.id, entry.site) == (unit.accelerator, unit.site))
        return terms.kept(entry, unit.period)
    part, site = terms.named(unit.accelerator, unit.site)
    if unit.way == "hour":
        return terms.rented(part, site, unit.period)
    billed = terms.bought if unit.way == "bought" else terms.contracted
    return billed(part, site, unit.number, unit.period)


def other_terms(resolved: Resolved) -> Mapping[float, BillingTerms]:
    """Return billing terms by horizon: the plan's own, and those whose periods the fleets already cover."""
    own = terms_of(resolved)
    cuts = [start for start, _ in own.periods]
    # A fleet that changes is undefined after its last period. A fleet that never changes is the same for longer.
    longest = max(_TERMS) if len(cuts) == 1 else own.horizon_years
    found = {own.horizon_years: own}
    for years in (years for years in _TERMS if years <= longest):
        terms = terms_of(replace(resolved, plan=replace(resolved.plan, horizon_years=years)))
        starts = [start for start, _ in terms.periods]
        if starts == cuts[: len(starts)]:
            found[years] = terms
    return dict(sorted(found.items()))


def counted(mix: Mix) -> Counts:
    """Count the units of a fleet as planned."""
    counts: dict[Unit, int] = dict(_people(mix))
    vendors = {pool.offer.key: pool.offer.vendor for pool in mix.pools}
    for way, held in (("bought", mix.purchases), ("contract", mix.contracts)):
        for (accelerator, site, number, period), nodes in held.items():
            counts[_unit(way, vendors[accelerator, site], (accelerator, site), period, number)] = nodes
    for pool in mix.pools:
        for way, nodes in (("kept", pool.kept_nodes), ("hour", pool.rented_nodes)):
            if nodes:
                counts[_unit(way, pool.offer.vendor, pool.offer.key, pool.period)] = nodes
    return counts


def _unit(way: str, vendor: str, key: tuple[str, str], period: int, number: int = 0) -> Unit:
    known: dict[str, HadWay] = {"kept": "kept", "bought": "bought", "contract": "contract", "hour": "hour"}
    return Unit(way=known[way], vendor=vendor, period=period, accelerator=key[0], site=key[1], number=number)


def _people(mix: Mix) -> Iterator[tuple[Unit, int]]:
    for vendor, period in sorted({(pool.offer.vendor, pool.period) for pool in mix.pools if pool.replicas}):
        yield Unit(way="people", vendor=vendor, period=period), 1


def counted_at(mix: Mix, problem: Problem, load: float) -> Counts | None:
    """Count the units of a fleet at `load` times the requests; None if a power cap or a node limit forbids it.

    Each offer keeps its share of every length and is refilled, as in draws. Spare nodes stay, and nodes are acquired in
    the same proportions as before.
    """
    if load == 1:
        return counted(mix)
    counts: dict[Unit, int] = dict(_people(mix))
    watts: dict[tuple[str, int], float] = {}
    nodes: dict[tuple[str, int], int] = {}
    filling = Filling(problem, mix.pools)
    for key in dict.fromkeys(pool.offer.key for pool in mix.pools):
        pools = sorted((pool for pool in mix.pools if pool.offer.key == key), key=lambda pool: pool.period)
        stock = _Stocked(pools[0].offer)
        for pool in pools:
            times = dict.fromkeys(filling.workloads(pool), np.array([load]))
            wanted = int(filling.nodes(pool, times)[0]) + pool.spare_nodes
            if not stock.fill(pool, wanted):
                return None
            place, part = (pool.offer.site, pool.period), (pool.offer.accelerator, pool.period)
            watts[place] = watts.get(place, 0.0) + stock.at_site(pool) * pool.offer.node_watts
            nodes[part] = nodes.get(part, 0) + wanted
        counts.update(stock.counts())
    capped = any(drawn > problem.site_watts.get(site, drawn) for (site, _), drawn in watts.items())
    limited = any(count > problem.max_nodes.get(part, count) for (part, _), count in nodes.items())
    return None if capped or limited else counts


class _Stocked:
    """The nodes of one offer over the periods: kept, bought and rented as the fleet does."""

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.owned = 0
        self.bought: dict[int, int] = {}
        self.begun: dict[tuple[int, int], int] = {}
        self.kept: dict[int, int] = {}
        self.hours: dict[int, int] = {}

    def fill(self, pool: PoolPeriod, wanted: int) -> bool:
        """Acquire `wanted` nodes in a period; False if there is no way to."""
        at, offer = pool.period, self.offer
        if offer.kept is not None and pool.kept_nodes:
            most = offer.kept.nodes if pool.nodes == pool.kept_nodes else pool.kept_nodes
            self.kept[at] = min([wanted, most, *self.kept.values()])
        rest, others = wanted - self.kept.get(at, 0), max(1, pool.nodes - pool.kept_nodes)
        self._buy(at, ceil(rest * pool.owned_nodes / others - _ROUNDING))
        for number, had in enumerate(pool.contract_nodes):
            self._sign(number, at, ceil(rest * had / others - _ROUNDING))
        lacking = rest - self.owned - self._on_contract(at)
        return lacking <= 0 or self._lacking(at, lacking)

    def _lacking(self, at: int, nodes: int) -> bool:
        offer = self.offer
        if offer.rent_usd is not None:
            self.hours[at] = nodes
        elif offer.contracts:
            self._sign(0, at, self._on_contract(at, 0) + nodes)
        elif offer.tiers and at >= max(offer.first_period, offer.first_bought):
            self._buy(at, self.owned + nodes)
        else:
            return False
        return True

    def _buy(self, at: int, wanted: int) -> None:
        if wanted > self.owned:
            more = ceil((wanted - self.owned) / self.offer.lot_nodes) * self.offer.lot_nodes
            self.bought[at] = self.bought.get(at, 0) + more
            self.owned += more

    def _sign(self, number: int, at: int, wanted: int) -> None:
        more = wanted - self._on_contract(at, number)
        if more > 0:
            self.begun[number, at] = self.begun.get((number, at), 0) + more

    def _on_contract(self, at: int, number: int | None = None) -> int:
        return sum(
            nodes
            for (which, start), nodes in self.begun.items()
            if number in {None, which} and start <= at < start + self.offer.contracts[which].spans[start]
        )

    def at_site(self, pool: PoolPeriod) -> int:
        """Return the nodes that draw the site's power."""
        return self.kept.get(pool.period, 0) + self.owned

    def counts(self) -> Iterator[tuple[Unit, int]]:
        """Yield all billed units; the price level follows the volume."""
        vendor, key = self.offer.vendor, self.offer.key
        volume = sum(self.bought.values()) * self.offer.devices
        levels = [level for level, tier in enumerate(self.offer.tiers) if tier.min_devices <= volume]
        for period, nodes in self.bought.items():
            yield _unit("bought", vendor, key, period, max(levels)), nodes
        for (number, period), nodes in self.begun.items():
            yield _unit("contract", vendor, key, period, number), nodes
        for way, held in (("kept", self.kept), ("hour", self.hours)):
            for period, nodes in held.items():
                if nodes:
                    yield _unit(way, vendor, key, period), nodes


@dataclass(frozen=True, kw_only=True)
class Rebilled:
    """Unit counts of fleets at every load, and bills of units at every term."""

    fleets: tuple[tuple[Counts | None, ...], ...]
    """Unit counts per fleet at each of `LOADS`."""
    bills: Mapping[Unit, Mapping[float, tuple[Line, ...]]]
    """Bill of one unit, by horizon in years."""


def rebilled(mixes: Sequence[Mix], resolved: Resolved, problem: Problem) -> Rebilled:
    """Compute everything a page needs to bill these fleets again."""
    fleets = tuple(tuple(counted_at(mix, problem, load) for load in LOADS) for mix in mixes)
    units = dict.fromkeys(unit for fleet in fleets for counts in fleet if counts is not None for unit in counts)
    terms = other_terms(resolved)
    return Rebilled(
        fleets=fleets,
        bills={unit: {years: bill_of(unit, at) for years, at in terms.items()} for unit in units},
    )
