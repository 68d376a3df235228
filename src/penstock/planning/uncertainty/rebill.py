"""Computes a fleet's nodes at several loads and each node's bill at several horizons, for the report's controls.

A fleet keeps its accelerators, its placements and the way each node is acquired. Bills consist of formulas with their
inputs, so a reader of the report can evaluate a bill with a changed price. Only the effects of load and horizon, which
are not numbers in a formula, are computed here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from penstock.economics.bill_line import Line
from penstock.planning.optimizer.acquire_nodes import AcquiredNodes, acquire_nodes
from penstock.planning.optimizer.node_costs import BillingTerms, terms_of
from penstock.planning.optimizer.problem import NODE, Mix, Offer, PoolPeriod, Problem
from penstock.planning.optimizer.refill_nodes import Array, Filling
from penstock.planning.optimizer.resize_fleet import exceeds
from penstock.planning.spec.resolve_plan import Resolved

LOADS: Final = tuple(round(0.5 + 0.1 * step, 1) for step in range(16))
"""Demand relative to the plan, from 0.5 to 2 in steps of 0.1."""
_TERMS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)

UnitKind = Literal["kept", "bought", "contract", "hour", "people"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit of billing: a node acquired in one way from one period on, or a vendor's engineers in one period."""

    way: UnitKind
    vendor: str
    period: int
    accelerator: str = ""
    site: str = ""
    number: int = 0
    """Price level of a purchase, or index of the contract."""
    devices: int | None = None
    """Devices of a rented instance that is smaller than a node, or of a kept unit; None for a whole node."""


Counts = Mapping[Unit, int]


def bill_of(unit: Unit, terms: BillingTerms) -> tuple[Line, ...]:
    """Return the bill of one unit of billing; empty if its period starts after the horizon ends."""
    if unit.period >= len(terms.periods):
        return ()
    if unit.way == "people":
        return terms.people(unit.vendor, unit.period)
    if unit.way == "kept":
        plan = terms.resolved.plan
        entry = next(entry for entry in plan.owned if (entry.id, entry.site) == (unit.accelerator, unit.site))
        return terms.bill_kept(entry, unit.period)
    planned, site = terms.find(unit.accelerator, unit.site)
    if unit.way == "hour":
        return terms.bill_rented(planned, site, unit.period, devices=unit.devices)
    if unit.way == "bought":
        return terms.bill_bought(planned, site, unit.number, unit.period)
    return terms.bill_contracted(planned, site, unit.number, unit.period, devices=unit.devices)


def other_terms(resolved: Resolved) -> Mapping[float, BillingTerms]:
    """Map horizons in years to billing terms: the plan's horizon, and other horizons whose periods the fleets cover."""
    own = terms_of(resolved)
    cuts = [start for start, _ in own.periods]
    # A fleet that changes over time is undefined after its last period. A fleet that never changes may serve longer.
    longest = max(_TERMS) if len(cuts) == 1 else own.horizon_years
    found = {own.horizon_years: own}
    for years in (years for years in _TERMS if years <= longest):
        terms = terms_of(replace(resolved, plan=replace(resolved.plan, horizon_years=years)))
        starts = [start for start, _ in terms.periods]
        if starts == cuts[: len(starts)]:
            found[years] = terms
    return dict(sorted(found.items()))


def count_units(mix: Mix) -> Counts:
    """Count the units of billing of a fleet at the planned load."""
    counts: dict[Unit, int] = dict(_people(mix))
    offers = {pool.offer.key: pool.offer for pool in mix.pools}
    for way, held in (("bought", mix.purchases), ("contract", mix.contracts)):
        for (accelerator, site, unit, number, period), nodes in held.items():
            counts[_unit(way, offers[accelerator, site, unit], period, number)] = nodes
    for pool in mix.pools:
        for way, nodes in (("kept", pool.kept_nodes), ("hour", pool.rented_nodes)):
            if nodes:
                counts[_unit(way, pool.offer, pool.period)] = nodes
    return counts


def _unit(way: str, offer: Offer, period: int, number: int = 0) -> Unit:
    known: dict[str, UnitKind] = {"kept": "kept", "bought": "bought", "contract": "contract", "hour": "hour"}
    return Unit(
        way=known[way],
        vendor=offer.vendor,
        period=period,
        accelerator=offer.accelerator,
        site=offer.site,
        number=number,
        devices=None if offer.unit == NODE else offer.devices,
    )


def _people(mix: Mix) -> Iterator[tuple[Unit, int]]:
    for vendor, period in sorted({(pool.offer.vendor, pool.period) for pool in mix.pools if pool.replicas}):
        yield Unit(way="people", vendor=vendor, period=period), 1


def count_units_at(mix: Mix, problem: Problem, load: float) -> Counts | None:
    """Count a fleet's units of billing at `load` times the planned requests.

    Return None if the nodes cannot be acquired, or if they exceed a power cap or a node limit. Each offer keeps its
    share of each length bucket. The nodes of an offer are refilled with replicas, as `resized_usd` does for draws. The
    number of spare nodes does not change, and the ways of acquisition keep their planned proportions.
    """
    if load == 1:
        return count_units(mix)
    counts: dict[Unit, int] = dict(_people(mix))
    watts: dict[tuple[str, int], float] = {}
    nodes: dict[tuple[str, int], float] = {}
    filling = Filling(problem.for_fleet(mix), mix.pools)
    for key in dict.fromkeys(pool.offer.key for pool in mix.pools):
        pools = [pool for pool in mix.pools if pool.offer.key == key]
        needed = {pool.period: _nodes_at(pool, filling, load) for pool in pools}
        held = acquire_nodes(pools[0].offer, pools, needed, 1)
        if held.lacking.any():
            return None
        for pool in pools:
            site, accelerator = (pool.offer.site, pool.period), (pool.offer.accelerator, pool.period)
            watts[site] = watts.get(site, 0.0) + int(held.at_site[pool.period][0]) * pool.offer.node_watts
            count = int(needed[pool.period][0]) * pool.offer.nodes_per_unit
            nodes[accelerator] = nodes.get(accelerator, 0.0) + count
        counts.update(_units(held))
    limits = [(np.array(drawn), problem.site_watts.get(site)) for (site, _), drawn in watts.items()]
    limits += [(np.array(count), problem.max_nodes.get(accelerator)) for (accelerator, _), count in nodes.items()]
    return None if any(exceeds(amount, limit).any() for amount, limit in limits) else counts


def _nodes_at(pool: PoolPeriod, filling: Filling, load: float) -> Array:
    return filling.nodes(pool, dict.fromkeys(filling.workloads(pool), np.array([load]))) + pool.spare_nodes


def _units(held: AcquiredNodes) -> dict[Unit, int]:
    """Return the number of nodes of one offer per unit of billing; the volume bought decides the price level."""
    bought = {period: int(nodes[0]) for period, nodes in held.bought.items() if nodes[0]}
    volume = sum(bought.values()) * held.offer.devices
    level = max((level for level, tier in enumerate(held.offer.tiers) if tier.min_devices <= volume), default=0)
    units = {_unit("bought", held.offer, period, level): nodes for period, nodes in bought.items()}
    for way in ("contract", "kept", "hour"):
        for entry in held.acquired:
            if entry.way == way:
                unit = _unit(way, held.offer, entry.period, entry.number)
                units[unit] = units.get(unit, 0) + int(entry.nodes[0])
    return units


@dataclass(frozen=True, kw_only=True)
class Rebilled:
    """Number of units of billing of each fleet at every load, and the bill of each unit of billing at every horizon."""

    fleets: tuple[tuple[Counts | None, ...], ...]
    """For each fleet, the counts of its units of billing at each of `LOADS`."""
    bills: Mapping[Unit, Mapping[float, tuple[Line, ...]]]
    """Maps a unit of billing and a horizon in years to the bill of one such unit."""


def rebill_fleets(mixes: Sequence[Mix], resolved: Resolved, problem: Problem) -> Rebilled:
    """Compute everything that the report needs to bill these fleets at other loads and horizons."""
    fleets = tuple(tuple(count_units_at(mix, problem, load) for load in LOADS) for mix in mixes)
    units = dict.fromkeys(unit for fleet in fleets for counts in fleet if counts is not None for unit in counts)
    terms = other_terms(resolved)
    return Rebilled(
        fleets=fleets,
        bills={unit: {years: bill_of(unit, at) for years, at in terms.items()} for unit in units},
    )
