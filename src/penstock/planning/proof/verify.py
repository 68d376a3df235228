"""Does the fleet really keep its promise? The seam to the simulator, and what a miss costs to put right."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from penstock.fleet.deployment import Deployment
from penstock.planning.asked.plan import Bucket, WorkloadPlan
from penstock.planning.candidates.search import Candidate
from penstock.planning.optimum.family import Family
from penstock.planning.optimum.mix import cheapest
from penstock.planning.optimum.problem import DemandKey, Mix, Problem, Restriction
from penstock.workload.slo import Slo

_HEADROOM: Final = 0.95
_LEAST_HEADROOM: Final = 0.4
_ATTEMPTS: Final = 8


@dataclass(frozen=True, kw_only=True)
class ServingPool:
    """Identical replicas that serve; spare nodes stand by and are not here."""

    id: str
    deployment: Deployment
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStream:
    """Requests of one length of one workload at the peak, and the pools they are sent to."""

    workload: str
    bucket: Bucket
    slo: Slo
    requests_per_s: float
    shares: Mapping[str, float]
    """Pool id to the share of these requests it is given; within a pool the least loaded replica takes the next."""


@dataclass(frozen=True, kw_only=True)
class ServingFleet:
    """What the simulator runs: a period's pools and the peak they must carry."""

    period: int
    pools: tuple[ServingPool, ...]
    streams: tuple[RequestStream, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What one workload got in the simulation."""

    workload: str
    attainment_fraction: float
    required_fraction: float
    note: str = ""

    @property
    def met(self) -> bool:
        """Whether enough requests kept the SLO."""
        return self.attainment_fraction >= self.required_fraction


VerifyOf = Callable[[ServingFleet], tuple[Check, ...]]


@dataclass(frozen=True, kw_only=True)
class Verified:
    """A fleet after simulation: as it was, or with what had to be added until the SLO held."""

    planned: Mix
    mix: Mix
    checks: tuple[Check, ...]
    attempts: int

    @property
    def met(self) -> bool:
        """Whether every workload kept its SLO in the end."""
        return all(check.met for check in self.checks)

    @property
    def added_usd(self) -> float:
        """What the simulation made it cost more."""
        return self.mix.cost_usd - self.planned.cost_usd


def pool_id(replica: str, site: str) -> str:
    """What the replicas of one kind at one site are told apart by."""
    return f"{replica} at {site}"


def serving_fleet(
    mix: Mix, period: int, problem: Problem, candidates: Sequence[Candidate], workloads: Sequence[WorkloadPlan]
) -> ServingFleet:
    """Describe one period of a fleet for the simulator."""
    by_id = {entry.id: entry for entry in candidates}
    pools: list[ServingPool] = []
    shares: dict[DemandKey, dict[str, float]] = {}
    for pool in (entry for entry in mix.pools if entry.period == period):
        for name, count in pool.replicas.items():
            pools.append(
                ServingPool(id=pool_id(name, pool.offer.site), deployment=by_id[name].deployment, replicas=count)
            )
        for (name, demand), share in pool.load.items():
            shares.setdefault(demand, {})[pool_id(name, pool.offer.site)] = share
    return ServingFleet(period=period, pools=tuple(pools), streams=tuple(_streams(problem, period, shares, workloads)))


def _streams(
    problem: Problem,
    period: int,
    shares: Mapping[DemandKey, Mapping[str, float]],
    workloads: Sequence[WorkloadPlan],
) -> list[RequestStream]:
    plans = {workload.name: workload for workload in workloads}
    return [
        RequestStream(
            workload=demand.key[0],
            bucket=plans[demand.key[0]].shares[demand.key[1]].bucket,
            slo=plans[demand.key[0]].slo,
            requests_per_s=demand.requests_per_s[period],
            shares=shares[demand.key],
        )
        for demand in problem.demands
        if demand.key in shares
    ]


def verify_fleet(
    mix: Mix,
    problem: Problem,
    candidates: Sequence[Candidate],
    workloads: Sequence[WorkloadPlan],
    verify_of: VerifyOf,
) -> Verified:
    """Simulate every period; after a miss plan the same parts with more headroom, until it holds."""
    tried, attempts = mix, 0
    headroom = 1.0
    while True:
        attempts += 1
        checks = _checks(tried, problem, candidates, workloads, verify_of)
        larger = None
        while not all(check.met for check in checks) and headroom > _LEAST_HEADROOM:
            headroom *= _HEADROOM
            looser = replace(problem, utilisation_fraction=problem.utilisation_fraction * headroom)
            larger = cheapest(looser, Restriction(only_accelerators=mix.support))
            if larger is None or _sizes(larger) != _sizes(tried):
                break
        if larger is None or attempts == _ATTEMPTS:
            return Verified(planned=mix, mix=tried, checks=checks, attempts=attempts)
        tried = larger


def _sizes(mix: Mix) -> list[tuple[object, ...]]:
    """What the simulator would see: a fleet of the same sizes and shares need not be run twice."""
    return [(pool.offer.key, pool.period, sorted(pool.replicas.items()), sorted(pool.load)) for pool in mix.pools]


def _checks(
    mix: Mix,
    problem: Problem,
    candidates: Sequence[Candidate],
    workloads: Sequence[WorkloadPlan],
    verify_of: VerifyOf,
) -> tuple[Check, ...]:
    """Keep the worst period of each workload."""
    worst: dict[str, Check] = {}
    for period in sorted({pool.period for pool in mix.pools}):
        fleet = serving_fleet(mix, period, problem, candidates, workloads)
        for check in verify_of(_at_todays_speed(fleet, problem)):
            before = worst.get(check.workload)
            if before is None or check.attainment_fraction < before.attainment_fraction:
                worst[check.workload] = check
    return tuple(worst.values())


def _at_todays_speed(fleet: ServingFleet, problem: Problem) -> ServingFleet:
    """Where newer engines are counted on, give today's as much less to do: the simulator knows no others."""
    if not problem.gains:
        return fleet
    parts = {pool.id: pool.deployment.accelerator.id for pool in fleet.pools}
    ones = (1.0,) * problem.periods
    streams = []
    for stream in fleet.streams:
        sent = {
            pool: share / problem.gains.get(parts[pool], ones)[fleet.period] for pool, share in stream.shares.items()
        }
        total = sum(sent.values())
        shares = {pool: share / total for pool, share in sent.items()}
        streams.append(replace(stream, requests_per_s=stream.requests_per_s * total, shares=shares))
    return replace(fleet, streams=tuple(streams))


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The fleets that were simulated, the cheapest that held first."""

    verified: tuple[Verified, ...]

    def mix(self, planned: Mix) -> Mix:
        """The fleet as it has to be: what simulation made of it, or itself where nobody simulated it."""
        return next((entry.mix for entry in self.verified if entry.planned.identity == planned.identity), planned)

    @property
    def regret_usd(self) -> float | None:
        """What the first fleet costs beside the cheapest that held; None where none did."""
        held = [entry.mix.cost_usd for entry in self.verified if entry.met]
        return self.verified[0].mix.cost_usd - min(held) if held else None


def prove(family: Family, verify: Callable[[Mix], Verified], step: Callable[[int], None] = lambda _: None) -> Proof:
    """Simulate the winner, its runners-up and every other fleet that could still be cheaper than the best that held.

    Simulation only ever adds to a fleet, so one that is planned dearer than the best that held cannot win.
    """
    found: list[Verified] = []
    for number, mix in enumerate((family.winner, *family.runners_up)):
        step(number)
        found.append(verify(mix))
    seen = {entry.planned.identity for entry in found}
    for mix in sorted(family.fleets, key=lambda mix: mix.cost_usd):
        best_usd = min((entry.mix.cost_usd for entry in found if entry.met), default=inf)
        if mix.identity not in seen and mix.cost_usd < best_usd:
            found.append(verify(mix))
    return Proof(verified=tuple(sorted(found, key=lambda entry: (not entry.met, entry.mix.cost_usd))))
