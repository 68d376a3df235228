"""Defines the simulator's input and output: the pools of a period at peak load, and a check of each pool."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.candidates.replica_capacity import Option
from penstock.planning.optimizer.problem import NODE, DemandKey, Mix, Offer, Problem
from penstock.planning.spec.plan_types import Bucket, WorkloadPlan
from penstock.workload.slo import Slo


@dataclass(frozen=True, kw_only=True)
class ServingPool:
    """Identical replicas that serve requests; replicas on spare nodes are not included."""

    id: str
    option: Option
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStream:
    """Peak requests of one length of one workload, with the pools to which they are sent."""

    workload: str
    bucket: Bucket
    slo: Slo
    requests_per_s: float
    shares: Mapping[str, float]
    """Maps pool id to the pool's share of these requests. In a pool, the least loaded replica gets the next request."""


@dataclass(frozen=True, kw_only=True)
class ServingFleet:
    """Input of the simulator: the pools of one period, and the peak load that they must carry."""

    period: int
    pools: tuple[ServingPool, ...]
    streams: tuple[RequestStream, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Simulated result of one workload on one pool, at peak load plus headroom."""

    workload: str
    attainment_fraction: float
    required_fraction: float
    note: str = ""
    pool: str | None = None
    """Pool id; None for all pools of the workload together."""
    sustained_share: float | None = None
    """Highest load that the pool sustains within the SLO, relative to its planned load.

    The value is 1 if the pool is exactly sized, so that no search was needed. The value is None if the load was not
    searched for any other reason.
    """
    peak_factor: float | None = None
    """Simulated load relative to the load at the peak: the inverse of the allowed utilisation, times the headroom."""
    just_right: bool = False
    """Whether the pool meets the SLO but would miss the SLO with one replica less."""

    @property
    def met(self) -> bool:
        """Return whether enough requests met the SLO."""
        return self.attainment_fraction >= self.required_fraction


VerifyOf = Callable[[ServingFleet], tuple[Check, ...]]


def pool_id(replica: str, offer: Offer) -> str:
    """Return the pool id, which is unique for each kind of replica on each offer."""
    return f"{replica} at {offer.site}" + ("" if offer.unit == NODE else f" in {offer.unit}")


def serving_fleet(
    mix: Mix, period: int, problem: Problem, candidates: Sequence[Candidate], workloads: Sequence[WorkloadPlan]
) -> ServingFleet:
    """Describe one period of a fleet for the simulator."""
    by_id = {entry.id: entry for entry in candidates}
    pools: list[ServingPool] = []
    shares: dict[DemandKey, dict[str, float]] = {}
    for pool in (entry for entry in mix.pools if entry.period == period):
        for name, count in pool.replicas.items():
            pools.append(ServingPool(id=pool_id(name, pool.offer), option=by_id[name].option, replicas=count))
        for (name, demand), share in pool.load.items():
            shares.setdefault(demand, {})[pool_id(name, pool.offer)] = share
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


def at_planned_load(fleet: ServingFleet, problem: Problem) -> ServingFleet:
    """Raise the load of each pool by the plan's headroom, and divide it by the assumed software gains.

    The simulator models today's engines at their predicted speed, so the headroom for slower engines and for a larger
    demand is simulated as load.
    """
    ones = (1.0,) * problem.periods
    factors = {
        pool.id: 1
        / problem.gains.get(pool.option.deployment.accelerator.id, ones)[fleet.period]
        / problem.allowed_utilisation(pool.option.id, fleet.period)
        for pool in fleet.pools
    }
    streams = []
    for stream in fleet.streams:
        sent = {pool: share * factors[pool] for pool, share in stream.shares.items()}
        total = sum(sent.values())
        shares = {pool: share / total for pool, share in sent.items()}
        streams.append(replace(stream, requests_per_s=stream.requests_per_s * total, shares=shares))
    return replace(fleet, streams=tuple(streams))


def load_factors(fleet: ServingFleet, planned: ServingFleet) -> dict[str, float]:
    """Map each workload to its planned load relative to its load at the peak."""
    peak, raised = (
        {
            name: sum(stream.requests_per_s for stream in streams if stream.workload == name)
            for name in {stream.workload for stream in streams}
        }
        for streams in (fleet.streams, planned.streams)
    )
    return {name: raised[name] / rate for name, rate in peak.items() if rate}
