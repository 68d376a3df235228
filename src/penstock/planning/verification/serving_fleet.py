"""What does the simulator run, and what does it say? A period's pools with their peak, and a check of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.candidates.replica_capacity import Option
from penstock.planning.optimizer.problem import DemandKey, Mix, Problem
from penstock.planning.spec.plan_types import Bucket, WorkloadPlan
from penstock.workload.slo import Slo


@dataclass(frozen=True, kw_only=True)
class ServingPool:
    """Identical replicas that serve; spare nodes stand by and are not here."""

    id: str
    option: Option
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

    def times(self, factor: float) -> "ServingFleet":
        """Return the same fleet with so many times the requests."""
        streams = tuple(replace(entry, requests_per_s=entry.requests_per_s * factor) for entry in self.streams)
        return replace(self, streams=streams)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What a workload got in the simulation from one pool, at the peak and the headroom asked for."""

    workload: str
    attainment_fraction: float
    required_fraction: float
    note: str = ""
    pool: str | None = None
    """None is all of the workload's pools together."""
    sustained_share: float | None = None
    """The highest load it sustains within the SLO, as a share of what it was given; 1 where it is just right
    and by how much was not asked, None where nobody searched."""
    just_right: bool = False
    """Whether it holds, and would not with one replica less."""

    @property
    def met(self) -> bool:
        """Whether enough requests kept the SLO."""
        return self.attainment_fraction >= self.required_fraction


VerifyOf = Callable[[ServingFleet], tuple[Check, ...]]


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
            pools.append(ServingPool(id=pool_id(name, pool.offer.site), option=by_id[name].option, replicas=count))
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


def at_todays_speed(fleet: ServingFleet, problem: Problem) -> ServingFleet:
    """Where newer engines are counted on, give today's as much less to do: the simulator knows no others."""
    if not problem.gains:
        return fleet
    parts = {pool.id: pool.option.deployment.accelerator.id for pool in fleet.pools}
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
