"""Checks, for many draws at once, whether a fleet carries a period's demand if load may move between pools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.planning.optimizer.problem import DemandKey, PoolPeriod, Problem
from penstock.planning.optimizer.refill_nodes import ROUNDING, Array, Filling, times_at

Truths = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class PoolDemand:
    """Load on one pool; every array has one entry per draw."""

    pool: PoolPeriod
    times: Mapping[str, Array]
    """Maps workload to its demand factor divided by the capacity factor of the pool's replicas; 1 means as planned."""
    demand: Mapping[str, Array]
    """Maps workload to the number of its requests relative to the plan."""
    speed: Mapping[str, Array] = field(default_factory=dict)
    """Maps replica id to a further factor on the capacity of these replicas; 1 if not listed."""


def reassign_overflow(asked: Sequence[PoolDemand], filling: Filling) -> Truths:
    """Return, for every draw, whether the planned replicas of all pools together carry every workload.

    The vendor rules must hold too. Overflow goes to replicas with room, as a router that shares by capacity would send
    it, and each replica takes the same share of every length. This distribution is optimal if all requests have the
    same length. For several lengths, another distribution may carry the load in draws in which this distribution does
    not. If this distribution breaks a vendor rule, no other is tried.
    """
    stations = [_Station(entry, name, filling) for entry in asked for name in entry.pool.replicas]
    enough: Truths = np.ones(1, np.bool_)
    for workload in dict.fromkeys(station.workload for station in stations):
        enough = enough & _share_out([station for station in stations if station.workload == workload])
    return enough & _rules_kept(stations, filling.problem)


class _Station:
    """Replicas of one kind in one pool, with the share of each demand that they carry in every draw."""

    def __init__(self, asked: PoolDemand, name: str, filling: Filling) -> None:
        self.pool, self.filling, self.name = asked.pool, filling, name
        self.workload, self.devices = filling.kinds[name].workload, filling.kinds[name].devices
        self.times = times_at(asked.times[self.workload], asked.speed.get(name))
        self.demand = asked.demand[self.workload]
        self.planned = {demand: share for (kind, demand), share in self.pool.load.items() if kind == name}
        count = self.pool.replicas[name]
        needed = self.replicas_for(self.planned)
        with np.errstate(divide="ignore"):
            self.kept = np.minimum(1.0, np.divide(count, needed))
        self.shares: dict[DemandKey, Array] = {demand: share * self.kept for demand, share in self.planned.items()}
        self.room = count - np.minimum(needed, count)

    def replicas_for(self, shares: Mapping[DemandKey, Array | float]) -> Array:
        """Return how many replicas these shares of demands need; infinite if this kind cannot serve some demand."""
        amount = np.zeros_like(self.times)
        for demand, share in shares.items():
            each = self.filling.replicas(self.pool, self.name, demand)
            amount = amount + np.where(np.asarray(share) > ROUNDING, each, 0.0) * share
        with np.errstate(invalid="ignore"):
            return np.where(amount > 0, amount * self.times, 0.0)

    def tokens_and_devices(self) -> tuple[Array, Array]:
        """Return the tokens of the station's requests, and the number of devices busy with these requests."""
        tokens = {demand.key: demand.tokens for demand in self.filling.problem.demands}
        rates, period = self.filling.rates, self.pool.period
        load = sum(
            (share * rates[demand][period] * tokens[demand] for demand, share in self.shares.items()),
            np.zeros_like(self.times),
        )
        return load * self.demand, self.replicas_for(self.shares) * self.devices


def _share_out(stations: Sequence[_Station]) -> Truths:
    """Send a workload's overflow to replicas with room; return, for every draw, whether all of the overflow fits."""
    left: dict[DemandKey, Array] = {}
    for station in stations:
        for demand, share in station.planned.items():
            left[demand] = left.get(demand, np.zeros_like(station.times)) + share * (1 - station.kept)
    able = []
    for station in stations:
        taken = station.replicas_for(left)
        able.append(np.divide(station.room, taken, out=np.zeros_like(taken), where=taken > 0))
    together = sum(able, np.zeros_like(stations[0].times))
    for station, share in zip(stations, able, strict=True):
        portion = np.divide(share, together, out=np.zeros_like(together), where=together > 0)
        for demand, missing in left.items():
            station.shares[demand] = station.shares.get(demand, 0.0) + portion * missing
    nothing: Truths = np.max(np.vstack([*left.values(), np.zeros_like(together)]), axis=0) <= ROUNDING
    return nothing | (together >= 1 - ROUNDING)


def _rules_kept(stations: Sequence[_Station], problem: Problem) -> Truths:
    """Return, for every draw, whether no vendor exceeds its maximum share and enough vendors carry their minimum."""
    if problem.max_vendor_share is None and problem.min_vendors == 1:
        return np.ones(1, np.bool_)
    carried: dict[str, Array] = {}
    for station in stations:
        vendor = station.pool.offer.vendor
        carried[vendor] = carried.get(vendor, 0.0) + np.vstack(station.tokens_and_devices())
    shares = np.stack(list(carried.values()))
    shares = shares / np.maximum(shares.sum(axis=0), ROUNDING)
    load, devices = shares[:, 0], shares[:, 1]
    limited = devices if problem.share_of == "devices" else load
    most = 1.0 if problem.max_vendor_share is None else problem.max_vendor_share
    counted = np.sum(load >= problem.min_vendor_share - ROUNDING, axis=0)
    kept: Truths = np.all(limited <= most + ROUNDING, axis=0) & (counted >= problem.min_vendors)
    return kept
