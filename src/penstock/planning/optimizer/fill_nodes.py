"""Fills the nodes of a chosen fleet with the replicas that leave the largest margin, in as few kinds as possible."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from penstock.planning.optimizer.milp import Milp
from penstock.planning.optimizer.problem import DemandKey, Mix, PoolPeriod, Problem, ReplicaKind

_KIND: Final = 0.1
"""Margin, as a fraction of the load, that one more kind of replica in a pool must add to be worth it.

Rates are estimated for pools of up to eight replicas of one kind, and one replica alone carried 9% less.
"""
_NEGLIGIBLE: Final = 1e-7
_GAP, _SEARCH_NODES = 1e-4, 200


def fill_nodes(mix: Mix, problem: Problem) -> Mix:
    """Replace the replicas of each pool; its nodes, its cost and the requests that it serves stay the same.

    For the integer program that chose the nodes, all fillings that carry the load cost the same. The margin of a pool
    is the factor by which all its load may grow. A pool without disaggregated units gets none.
    """
    return replace(mix, pools=tuple(_fill(pool, problem) for pool in mix.pools))


def _fill(pool: PoolPeriod, problem: Problem) -> PoolPeriod:
    asked: dict[DemandKey, float] = {}
    for (_, demand), share in pool.load.items():
        asked[demand] = asked.get(demand, 0.0) + share
    kinds = {kind.id: kind for kind in problem.replicas}
    units = any(kinds[name].disaggregated for name in pool.replicas)
    usable = [kind for kind in problem.replicas_on(pool.offer) if units or not kind.disaggregated]
    room = (pool.nodes - pool.spare_nodes) * pool.offer.devices
    if not asked or len(usable) < 2:
        return pool
    return _Filling(pool, problem, asked, room).solve(usable) or pool


class _Filling:
    """The integer program that fills one pool."""

    def __init__(self, pool: PoolPeriod, problem: Problem, asked: Mapping[DemandKey, float], room: int) -> None:
        self.pool, self.problem, self.asked, self.room = pool, problem, asked, room
        self.rates = {demand.key: demand.requests_per_s[pool.period] for demand in problem.demands}
        self.milp = Milp()
        self.counts: dict[str, int] = {}
        self.sent: dict[tuple[str, DemandKey], int] = {}

    def solve(self, kinds: list[ReplicaKind]) -> PoolPeriod | None:
        """Return the pool with its new replicas; None if the program finds no filling that carries the load."""
        most = max((self._times_alone(kind) for kind in kinds), default=0.0) * 1.5 + 1.0
        times, missing = self.milp.variable(upper=most), self.milp.variable(cost=1.0, upper=most)
        self.milp.row([(times, 1.0), (missing, 1.0)], at_least=most, at_most=most)
        self.milp.row([(times, 1.0)], at_least=1.0)
        for kind in kinds:
            self._place(kind, most)
        self.milp.row(
            [(count, float(kind.devices)) for kind in kinds if (count := self.counts.get(kind.id)) is not None],
            at_most=self.room,
        )
        for demand, share in self.asked.items():
            served = [(variable, 1.0) for (_, key), variable in self.sent.items() if key == demand]
            self.milp.row([*served, (times, -share)], at_least=0, at_most=0)
        found = self.milp.solve(gap_fraction=_GAP, search_nodes=_SEARCH_NODES)
        return None if found is None else self._read(found.values, found.values[times])

    def _replicas_for(self, kind: ReplicaKind, demand: DemandKey) -> float:
        """Return how many replicas carry a whole demand at the allowed utilisation."""
        key = (self.pool.offer.key, kind.id, self.pool.period)
        each = self.problem.rate_of(kind, demand[1], self.pool.period) * self.problem.carried.get(key, 1.0)
        return self.rates[demand] / each / self.problem.allowed_utilisation(kind.id, self.pool.period)

    def _times_alone(self, kind: ReplicaKind) -> float:
        """Return by which factor the demands that a kind can serve may grow, if only this kind fills the nodes."""
        needed = sum(self._replicas_for(kind, demand) * share for demand, share in self._servable_shares(kind).items())
        return self.room // kind.devices / needed if needed else 0.0

    def _servable_shares(self, kind: ReplicaKind) -> dict[DemandKey, float]:
        able = {demand.key for demand in self.problem.demands_of(kind)}
        return {demand: share for demand, share in self.asked.items() if demand in able}

    def _place(self, kind: ReplicaKind, most: float) -> None:
        served, fits = self._servable_shares(kind), self.room // kind.devices
        if not served or not fits:
            return
        count = self.counts[kind.id] = self.milp.variable(upper=fits, whole=True)
        used = self.milp.variable(cost=_KIND, upper=1, whole=True)
        self.milp.row([(count, 1.0), (used, -float(fits))], at_most=0)
        loads = []
        for demand, share in served.items():
            variable = self.sent[kind.id, demand] = self.milp.variable(upper=most * share)
            loads.append((variable, self._replicas_for(kind, demand)))
        self.milp.row([*loads, (count, -1.0)], at_most=0)

    def _read(self, values: tuple[float, ...], times: float) -> PoolPeriod:
        replicas = {name: round(values[at]) for name, at in self.counts.items() if values[at] > _NEGLIGIBLE}
        load = {
            key: values[at] / times
            for key, at in self.sent.items()
            if key[0] in replicas and values[at] / times > _NEGLIGIBLE
        }
        carried = {
            name: factor
            for name in replicas
            if (factor := self.problem.carried.get((self.pool.offer.key, name, self.pool.period), 1.0)) != 1.0
        }
        return replace(self.pool, replicas=replicas, load=load, carried=carried)
