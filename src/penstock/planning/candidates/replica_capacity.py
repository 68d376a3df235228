"""How much does a replica carry beside others of its kind? Requests per second within an SLO: the planner's seam."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.fleet.deployment import Deployment
from penstock.fleet.disaggregated_replica import Disaggregated
from penstock.performance.prediction.predict_deployment import Range, Speculation
from penstock.planning.spec.plan_types import Bucket, WorkloadPlan
from penstock.workload.slo import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What one replica of a pool sustains within the SLO; zero where it cannot meet it at any rate."""

    requests_per_s: Range
    tier: str
    grounds: str
    """Where the figure comes from: which measurements, which engine, simulated or not."""
    prefill_fraction: float | None
    """Share of busy device time that prompts take; None where nobody knows."""
    measured_engine: str | None = None
    """Whose measurements it rests on; None where it rests on none."""

    @property
    def meets_slo(self) -> bool:
        """Whether it serves this length at all."""
        return self.requests_per_s.value > 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Option:
    """One way to run a workload on a part: its weights, its split, its drafts, and the engine that is started."""

    id: str
    weights: str
    deployment: Deployment
    """Of one replica; where prompts are computed apart, of one that decodes."""
    measured_engine: str
    """The engine whose measurements speak for it."""
    speculation: Speculation | None = None
    """How it drafts with the checkpoint's own layers; None where it does not."""
    apart: Disaggregated | None = None
    """The replicas that prefill and those that decode, which are one unit; None where each does both."""


def way_of(deployment: Deployment, speculation: Speculation | None, apart: Disaggregated | None = None) -> str:
    """Say how a replica is run: its split, and how many tokens a step drafts; or both kinds of a unit."""
    if apart is not None:
        ahead, after = apart.prefill.parallelism, apart.decode.parallelism
        return f"{apart.prefill_replicas} prefill {ahead} to {apart.decode_replicas} decode {after}"
    split = deployment.parallelism
    return f"{split}" if speculation is None else f"{split} mtp{speculation.drafted_tokens}"


CapacityOf = Callable[[Option, WorkloadPlan], tuple[Capacity, ...]]
"""What a replica carries of each length of a workload, in the workload's order."""


def length_by_length(capacity_of: Callable[[Deployment, Bucket, Slo], Capacity]) -> CapacityOf:
    """Ask about every length alone."""

    def every(option: Option, workload: WorkloadPlan) -> tuple[Capacity, ...]:
        return tuple(capacity_of(option.deployment, share.bucket, workload.slo) for share in workload.shares)

    return every


def mixed_rate(fractions: tuple[float, ...], rates: tuple[float, ...]) -> float:
    """Requests per second of a mix of lengths, each of which takes its share of a replica's time; 0 if none is served.

    Lengths that it does not serve at all are somebody else's: the mix is of the others.
    """
    served = [(fraction, rate) for fraction, rate in zip(fractions, rates, strict=True) if rate > 0]
    busy = sum(fraction / rate for fraction, rate in served)
    return sum(fraction for fraction, _ in served) / busy if busy else 0.0


def cannot(reason: str) -> Capacity:
    """Say that a replica meets the SLO at no rate."""
    return Capacity(
        requests_per_s=Range(value=0.0, low=0.0, high=0.0), tier="none", grounds=reason, prefill_fraction=None
    )
