"""Defines the capacity of a replica in a pool, in requests per second within an SLO, as the planner uses it."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.fleet.deployment import Deployment
from penstock.fleet.disaggregated_replica import Disaggregated
from penstock.performance.prediction.predict_deployment import Range
from penstock.performance.prediction.speculation import Speculation
from penstock.planning.spec.plan_types import Bucket, WorkloadPlan
from penstock.workload.slo import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Rate that one replica of a pool sustains within the SLO; zero if the replica misses the SLO at any rate."""

    requests_per_s: Range
    tier: str
    grounds: str
    """Sentence about the source of the rate: the measurements, the engine, and whether the rate was simulated."""
    prefill_fraction: float | None
    """Share of busy device time that prefill takes; None if unknown."""
    measured_engine: str | None = None
    """Engine whose measurements predict the rate; None if there are no measurements."""

    @property
    def meets_slo(self) -> bool:
        """Return whether the replica serves this length within the SLO at any rate."""
        return self.requests_per_s.value > 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Option:
    """One way to run a workload on an accelerator: the weights, split, drafts and engine."""

    id: str
    weights: str
    deployment: Deployment
    """Deployment of one replica; for a disaggregated unit, the deployment of a decode replica."""
    measured_engine: str
    """Engine whose measurements predict the speed of this option."""
    speculation: Speculation | None = None
    """Speculative decoding with the checkpoint's own draft layers; None if the option does not draft."""
    disaggregated: Disaggregated | None = None
    """The prefill and decode replicas of a disaggregated unit; None if each replica does both."""


def way_of(deployment: Deployment, speculation: Speculation | None, unit: Disaggregated | None = None) -> str:
    """Describe a replica: its split and drafted tokens per step, or the prefill and decode replicas of a unit."""
    if unit is not None:
        prefill, decode = unit.prefill.parallelism, unit.decode.parallelism
        return f"{unit.prefill_replicas} prefill {prefill} to {unit.decode_replicas} decode {decode}"
    split = deployment.parallelism
    return f"{split}" if speculation is None else f"{split} mtp{speculation.drafted_tokens}"


CapacityOf = Callable[[Option, WorkloadPlan], tuple[Capacity, ...]]
"""Function that returns a replica's capacity for each length of a workload, in the workload's order."""


def length_by_length(capacity_of: Callable[[Deployment, Bucket, Slo], Capacity]) -> CapacityOf:
    """Return a capacity function that judges each length separately."""

    def every(option: Option, workload: WorkloadPlan) -> tuple[Capacity, ...]:
        return tuple(capacity_of(option.deployment, share.bucket, workload.slo) for share in workload.shares)

    return every


def mixed_rate(fractions: tuple[float, ...], rates: tuple[float, ...]) -> float:
    """Return a replica's rate for a mix of lengths, in requests per second; 0 if the replica serves no length.

    Lengths that the replica cannot serve are left to other replicas and do not count in the mix.
    """
    served = [(fraction, rate) for fraction, rate in zip(fractions, rates, strict=True) if rate > 0]
    busy = sum(fraction / rate for fraction, rate in served)
    return sum(fraction for fraction, _ in served) / busy if busy else 0.0


def cannot(reason: str) -> Capacity:
    """Return the capacity of a replica that misses the SLO at any rate, with the reason."""
    return Capacity(
        requests_per_s=Range(value=0.0, low=0.0, high=0.0), tier="none", grounds=reason, prefill_fraction=None
    )
