"""Sizes the lots that each vendor is asked to offer: nodes for the whole demand, and for an equal share of demand."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

import numpy as np

from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.optimizer.problem import Mix, PoolPeriod, Problem, Restriction
from penstock.planning.optimizer.refill_nodes import Filling
from penstock.planning.plan_result import Answer, PlanResult

_GAP, _MAX_NODES = 1e-3, 500
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class LotSizes:
    """Numbers of nodes, or of rented instances, of one accelerator to request from its vendor.

    Both numbers are None if no fleet of this vendor alone satisfies every rule.
    """

    whole_nodes: int | None
    """Nodes for the whole demand; if the vendor's cheapest fleet has several accelerators, they share the demand."""
    shared_nodes: int | None
    """Nodes for `shared_fraction` of the demand; None if vendors do not share the demand."""
    devices: int | None = None
    """Devices of one instance if the fleet has instances that are smaller than a node; None for whole nodes."""


def shared_fraction(result: PlanResult, answer: Answer) -> float | None:
    """Return the share of the demand that each vendor's second lot covers; None if vendors do not share the demand.

    The share is equal for all vendors: one divided by the number of vendors that the plan recommends or requires.
    """
    problem = result.problem
    vendors = max(len(answer.winner.mix.vendors), problem.min_vendors)
    if problem.max_vendor_share is not None:
        vendors = max(vendors, ceil(1 / problem.max_vendor_share - _ROUNDING))
    return 1 / vendors if vendors > 1 else None


def nodes_to_request(result: PlanResult, answer: Answer) -> Mapping[str, LotSizes]:
    """Map each accelerator to the nodes to request; accelerators of the recommended fleet come first.

    An accelerator is left out if the already owned nodes are enough.
    """
    share, chosen = shared_fraction(result, answer), answer.winner.mix.support
    found: dict[str, LotSizes] = {}
    for ident, mix in sorted(_whole_fleets(result, answer), key=lambda entry: entry[0] not in chosen):
        node = result.resolved.accelerators[ident].node.devices
        unit = min((pool.offer.devices for pool in _pools(mix, ident)), default=node) if mix is not None else node
        whole = None if mix is None else _most(((pool, pool.nodes) for pool in _pools(mix, ident)), unit)
        shared = None if mix is None or share is None else _nodes_for_share(mix, ident, result.problem, share, unit)
        if whole != 0:
            found[ident] = LotSizes(whole_nodes=whole, shared_nodes=shared, devices=unit if unit < node else None)
    return found


def _whole_fleets(result: PlanResult, answer: Answer) -> Iterator[tuple[str, Mix | None]]:
    """Yield each accelerator with a fleet that uses it and carries the whole demand.

    If vendors compete, the fleet has accelerators of one vendor only; None if there is no such fleet.
    """
    bills = (answer.winner, *answer.by_label.values())
    if not answer.family.by_vendor:
        fleets = {ident: bill.mix for bill in reversed(bills) for ident in sorted(bill.mix.support)}
        yield from sorted(fleets.items())
        return
    winner = answer.winner.mix
    for vendor in dict.fromkeys(pool.offer.vendor for bill in bills for pool in bill.mix.pools):
        chosen = {pool.offer.accelerator for pool in winner.pools if pool.offer.vendor == vendor}
        alone = _alone(result, answer, vendor, chosen)
        for ident in sorted(chosen | (frozenset() if alone is None else alone.support)):
            yield ident, alone if alone is not None and ident in alone.support else _of_one(answer, ident)


def _alone(result: PlanResult, answer: Answer, vendor: str, chosen: set[str]) -> Mix | None:
    """Find the cheapest fleet of one vendor alone; None if no such fleet is feasible.

    If no single-vendor fleet satisfies the rules, rules on vendors are ignored, and only the accelerators in `chosen`
    are used.
    """
    if vendor in answer.by_label:
        return answer.by_label[vendor].mix
    problem = answer.family.with_simulated_capacities(replace(result.problem, min_vendors=1, max_vendor_share=None))
    only = Restriction(only_accelerators=frozenset(chosen))
    return cheapest(problem, only, gap_fraction=_GAP, search_nodes=_MAX_NODES, patient=False) if chosen else None


def _of_one(answer: Answer, ident: str) -> Mix | None:
    fleets = [mix for mix in answer.family.fleets if mix.support == {ident}]
    return min(fleets, key=lambda mix: mix.cost_usd, default=None)


def _nodes_for_share(mix: Mix, ident: str, problem: Problem, share: float, unit: int) -> int:
    """Return the number of nodes with `unit` devices that are needed for a share of every demand."""
    filling = Filling(problem, mix.pools)

    def nodes(pool: PoolPeriod) -> int:
        load = dict.fromkeys(filling.workloads(pool), np.array([share]))
        return int(filling.nodes(pool, load)[0]) + pool.spare_nodes

    return _most(((pool, nodes(pool)) for pool in _pools(mix, ident)), unit)


def _pools(mix: Mix, ident: str) -> list[PoolPeriod]:
    return [pool for pool in mix.pools if pool.offer.accelerator == ident]


def _most(nodes: Iterable[tuple[PoolPeriod, int]], unit: int) -> int:
    """Return the largest number of nodes with `unit` devices in any period, not counting nodes owned already."""
    had: dict[int, int] = {}
    for pool, count in nodes:
        new = max(0, count - pool.kept_nodes) * pool.offer.devices
        had[pool.period] = had.get(pool.period, 0) + new
    return ceil(max(had.values()) / unit - _ROUNDING)
