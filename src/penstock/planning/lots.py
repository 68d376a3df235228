"""What is each vendor asked to offer? The same lots: nodes that carry the whole demand, or an equal share of it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

import numpy as np

from penstock.planning.make import Answer, PlanResult
from penstock.planning.optimum.mix import cheapest
from penstock.planning.optimum.problem import Mix, PoolPeriod, Problem, Restriction
from penstock.planning.optimum.refill import Filling

_GAP, _MAX_NODES = 1e-3, 500
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class LotNodes:
    """Nodes of an accelerator that a vendor is asked about; None where no fleet of it alone keeps every rule."""

    whole_nodes: int | None
    """They carry the whole demand, with the vendor's other accelerators where its cheapest fleet has several."""
    shared_nodes: int | None
    """They carry `shared_fraction` of it; None where demand is not shared."""


def shared_fraction(result: PlanResult, answer: Answer) -> float | None:
    """Return the share of the demand that each vendor is asked for as a second lot.

    It is the same for all: where the plan recommends several vendors or demands them, demand over their number.
    """
    problem = result.problem
    vendors = max(len(answer.winner.mix.vendors), problem.min_vendors)
    if problem.max_vendor_share is not None:
        vendors = max(vendors, ceil(1 / problem.max_vendor_share - _ROUNDING))
    return 1 / vendors if vendors > 1 else None


def asked_nodes(result: PlanResult, answer: Answer) -> Mapping[str, LotNodes]:
    """Say how many nodes to ask about, by accelerator: those of the recommended fleet first.

    Accelerators of which no new node is needed, because owned ones are enough, are left out.
    """
    share, chosen = shared_fraction(result, answer), answer.winner.mix.support
    found: dict[str, LotNodes] = {}
    for ident, mix in sorted(_whole_fleets(result, answer), key=lambda entry: entry[0] not in chosen):
        whole = None if mix is None else _most((pool, pool.nodes) for pool in _pools(mix, ident))
        shared = None if mix is None or share is None else _shared(mix, ident, result.problem, share)
        if whole != 0:
            found[ident] = LotNodes(whole_nodes=whole, shared_nodes=shared)
    return found


def _whole_fleets(result: PlanResult, answer: Answer) -> Iterator[tuple[str, Mix | None]]:
    """Pair accelerators with a fleet that carries everything: of their vendor alone where vendors compete."""
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
    """Find a vendor's cheapest fleet; where rules forbid one vendor, of its recommended accelerators without them."""
    if vendor in answer.by_label:
        return answer.by_label[vendor].mix
    problem = answer.family.informed(replace(result.problem, min_vendors=1, max_vendor_share=None))
    only = Restriction(only_accelerators=frozenset(chosen))
    return cheapest(problem, only, gap_fraction=_GAP, most_nodes=_MAX_NODES, patient=False) if chosen else None


def _of_one(answer: Answer, ident: str) -> Mix | None:
    fleets = [mix for mix in answer.family.fleets if mix.support == {ident}]
    return min(fleets, key=lambda mix: mix.cost_usd, default=None)


def _shared(mix: Mix, ident: str, problem: Problem, share: float) -> int:
    """Fill the nodes of a fleet again with a share of every request."""
    filling = Filling(problem, mix.pools)

    def nodes(pool: PoolPeriod) -> int:
        load = dict.fromkeys(filling.workloads(pool), np.array([share]))
        return int(filling.nodes(pool, load)[0]) + pool.spare_nodes

    return _most((pool, nodes(pool)) for pool in _pools(mix, ident))


def _pools(mix: Mix, ident: str) -> list[PoolPeriod]:
    return [pool for pool in mix.pools if pool.offer.accelerator == ident]


def _most(nodes: Iterable[tuple[PoolPeriod, int]]) -> int:
    """Count the most nodes at once beyond those owned already."""
    had: dict[int, int] = {}
    for pool, count in nodes:
        had[pool.period] = had.get(pool.period, 0) + max(0, count - pool.kept_nodes)
    return max(had.values())
