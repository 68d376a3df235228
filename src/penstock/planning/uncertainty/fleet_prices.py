"""Prices fleets whose nodes are counted, for any prices, as a product of node counts and dollars per node."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.planning.optimizer.acquire_nodes import Acquired, AcquiredNodes
from penstock.planning.optimizer.competing_fleets import Family
from penstock.planning.optimizer.problem import Mix, Offer, OfferKey, Problem
from penstock.planning.optimizer.refill_nodes import Array
from penstock.planning.optimizer.resize_fleet import HeldNodes, one_world, priced_ways
from penstock.planning.uncertainty.drawn_worlds import BOUGHT, CONTRACT, KEPT, RENTED, VENDOR, Key, figures_of

_Counts = dict[Key, float]
"""Maps a figure to the number of nodes that pay it."""
_Way = list[list[_Counts]]
"""One way to acquire the nodes of a fleet: groups of counts. Of each group the cheapest counts are paid."""
_WAYS: Final[Mapping[str, str]] = {"kept": KEPT, "hour": RENTED}


@dataclass(frozen=True, kw_only=True, eq=False)
class FleetPrices:
    """The nodes of every fleet of a family at the estimated load and speed, which prices do not change."""

    labels: tuple[str, ...]
    """Label of each fleet that has a feasible way."""
    others: frozenset[str]
    """Labels of all fleets."""
    keys: tuple[Key, ...]
    counts: Array
    """Matrix of node counts: one column per key."""
    group_starts: npt.NDArray[np.intp]
    """First row of each group of alternatives, first group of each way, and first way of each fleet."""
    way_starts: npt.NDArray[np.intp]
    fleet_starts: npt.NDArray[np.intp]

    @classmethod
    def of(cls, family: Family, problem: Problem) -> "FleetPrices":
        """Count the nodes of every fleet of the family."""
        mixes = (*family.fleets, *family.of_other_worlds)
        found = [(family.label(mix), ways) for mix in mixes if (ways := list(_ways(mix, problem)))]
        ways = [way for _, fleet in found for way in fleet]
        groups = [group for way in ways for group in way]
        rows = [counts for group in groups for counts in group]
        keys = tuple(dict.fromkeys(key for counts in rows for key in counts))
        place = {key: number for number, key in enumerate(keys)}
        matrix = np.zeros((len(rows), len(keys)))
        for number, counts in enumerate(rows):
            for key, count in counts.items():
                matrix[number, place[key]] = count
        return cls(
            labels=tuple(label for label, _ in found),
            others=frozenset(family.label(mix) for mix in mixes),
            keys=keys,
            counts=matrix,
            group_starts=_starts([len(group) for group in groups]),
            way_starts=_starts([len(way) for way in ways]),
            fleet_starts=_starts([len(fleet) for _, fleet in found]),
        )

    def costs(self, problem: Problem) -> dict[str, float]:
        """Map each label to the cost of its cheapest fleet at the prices of a problem; infinite if it has none."""
        found = dict.fromkeys(self.others, inf)
        if not self.labels:
            return found
        figures = dict(figures_of(problem))
        usd = self.counts @ np.array([figures[key] for key in self.keys])
        of_groups = np.minimum.reduceat(usd, self.group_starts)
        of_ways = np.add.reduceat(of_groups, self.way_starts)
        for label, cost in zip(self.labels, np.minimum.reduceat(of_ways, self.fleet_starts).tolist(), strict=True):
            found[label] = min(found[label], cost)
        return found


def _starts(sizes: list[int]) -> npt.NDArray[np.intp]:
    return np.array(list(accumulate(sizes, initial=0))[:-1], np.intp)


def _ways(mix: Mix, problem: Problem) -> Iterator[_Way]:
    """Yield the node counts of each feasible way to acquire a fleet."""
    offers = {offer.key: offer for offer in problem.offers}
    if all(pool.offer.key in offers for pool in mix.pools):
        for held in priced_ways(mix, problem, one_world()):
            yield _way(held, offers)


def _way(held: HeldNodes, offers: Mapping[OfferKey, Offer]) -> _Way:
    certain: _Counts = {
        (VENDOR, offers[key].vendor, period): 1.0
        for key, (nodes, _) in held.items()
        for period, count in nodes.items()
        if count[0] > 0
    }
    groups = [[certain]]
    for key, (_, acquired) in held.items():
        for entry in acquired.acquired:
            figure = _figure(key, entry)
            certain[figure] = certain.get(figure, 0.0) + float(entry.nodes[0])
        if acquired.owned.any():
            groups.append(list(_levels(offers[key], acquired)))
    return groups


def _figure(offer: OfferKey, entry: Acquired) -> Key:
    if entry.way == "contract":
        return (CONTRACT, offer, entry.number, entry.period)
    return (_WAYS[entry.way], offer, entry.period)


def _levels(offer: Offer, acquired: AcquiredNodes) -> Iterator[_Counts]:
    """Yield the purchases at each price level, with extra nodes bought to reach the level's minimum."""
    for level, lacking in enumerate(acquired.nodes_to_reach_levels()):
        counts: _Counts = {(BOUGHT, offer.key, level, at): float(n[0]) for at, n in acquired.bought.items()}
        counts[BOUGHT, offer.key, level, min(acquired.bought)] += float(lacking[0])
        yield counts
