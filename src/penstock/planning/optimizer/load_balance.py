"""Spreads requests over a chosen fleet so that the highest utilisation of any replica is as low as possible."""

from dataclasses import replace
from typing import Final

from penstock.planning.optimizer.milp import Milp
from penstock.planning.optimizer.problem import DemandKey, Mix, PoolPeriod, Problem

_NEGLIGIBLE: Final = 1e-7
_ROUNDING: Final = 1e-9

_Shares = dict[tuple[int, str, DemandKey], int]
"""Maps pool number, replica id and demand to the index of the variable in the linear program."""


def balance_load(mix: Mix, problem: Problem) -> Mix:
    """Redistribute a fleet's requests over its replicas; vendors keep the shares that the rules require.

    For the integer program that chose the fleet, all distributions of load cost the same. The program may fill one pool
    completely while another pool has room, and the full pool then narrowly misses its SLO in simulation.
    """
    pools = list(mix.pools)
    for period in sorted({pool.period for pool in pools}):
        numbers = [number for number, pool in enumerate(pools) if pool.period == period]
        for number, load in _loads(pools, numbers, problem).items():
            pools[number] = replace(pools[number], load=load)
    return replace(mix, pools=tuple(pools))


def _loads(
    pools: list[PoolPeriod], numbers: list[int], problem: Problem
) -> dict[int, dict[tuple[str, DemandKey], float]]:
    """Return the load of each pool in one period; empty if the linear program has no solution."""
    period, milp = pools[numbers[0]].period, Milp()
    busiest = milp.variable(cost=1.0)
    shares: _Shares = {}
    kinds = {replica.id: replica for replica in problem.replicas}
    for number in numbers:
        for name, count in pools[number].replicas.items():
            taken = []
            for demand in problem.demands_of(kinds[name]):
                if demand.requests_per_s[period] > 0:
                    variable = shares[number, name, demand.key] = milp.variable(upper=1)
                    needed = demand.requests_per_s[period] / problem.rate_of(kinds[name], demand.key[1], period)
                    taken.append((variable, needed))
            carried = problem.carried.get((pools[number].offer.key, name, period), 1.0)
            milp.row([*taken, (busiest, -count * carried * problem.allowed_utilisation(name, period))], at_most=0)
    for key in dict.fromkeys(asked for _, _, asked in shares):
        served = [(variable, 1.0) for (_, _, asked), variable in shares.items() if asked == key]
        milp.row(served, at_least=1, at_most=1)
    _keep_rules(milp, shares, pools, problem)
    found = milp.solve(gap_fraction=0.0, search_nodes=1)
    if found is None:
        return {}
    loads: dict[int, dict[tuple[str, DemandKey], float]] = {number: {} for number in numbers}
    for (number, name, key), variable in shares.items():
        if found.values[variable] > _NEGLIGIBLE:
            loads[number][name, key] = found.values[variable]
    return loads


def _keep_rules(milp: Milp, shares: _Shares, pools: list[PoolPeriod], problem: Problem) -> None:
    """Add the rules on vendor shares.

    Each vendor keeps at least the minimum share that makes it count as a vendor, and at most the maximum share. If the
    maximum is a share of devices, each vendor's share of the load stays unchanged.
    """
    period = next(pools[number].period for number, _, _ in shares)
    weight = {demand.key: demand.requests_per_s[period] * demand.tokens for demand in problem.demands}
    whole = sum(weight.values())
    for vendor in dict.fromkeys(pools[number].offer.vendor for number, _, _ in shares):
        own = {key: variable for key, variable in shares.items() if pools[key[0]].offer.vendor == vendor}
        terms = [(variable, weight[demand] / whole) for (_, _, demand), variable in own.items()]
        now = sum(
            share * weight[demand] / whole
            for number in dict.fromkeys(number for number, _, _ in own)
            for (_, demand), share in pools[number].load.items()
        )
        if problem.max_vendor_share is not None and problem.share_of == "devices":
            milp.row(terms, at_least=now - _ROUNDING, at_most=now + _ROUNDING)
            continue
        if now >= problem.min_vendor_share - _ROUNDING:
            milp.row(terms, at_least=min(now, problem.min_vendor_share))
        if problem.max_vendor_share is not None:
            milp.row(terms, at_most=max(now, problem.max_vendor_share))
