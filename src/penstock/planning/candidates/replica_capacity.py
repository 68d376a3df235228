"""Defines the capacity of a replica in a pool, in requests per second within an SLO, as the planner uses it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.fleet.deployment import Deployment
from penstock.fleet.disaggregated_replica import Disaggregated
from penstock.performance.calibration.first_token_regression import Software
from penstock.performance.prediction.predict_deployment import Range
from penstock.performance.prediction.speculation import Speculation
from penstock.performance.step.step_work import Array
from penstock.planning.spec.plan_types import Bucket, WorkloadPlan
from penstock.workload.slo import Slo

P10_ERROR: Final = -1.2815515655446004
"""P10 of the standard normal distribution; P90 is its negative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCurve:
    """Sustained rate of a replica over the prediction error, in standard deviations.

    A negative error is a replica that is slower than predicted.
    """

    errors: tuple[float, ...]
    requests_per_s: tuple[float, ...]
    """The rate at each error; 0 where the replica misses the SLO at any rate."""

    def __post_init__(self) -> None:
        if not self.errors or len(self.errors) != len(self.requests_per_s):
            raise ValueError("a rate curve needs at least one error, and one rate for each error")
        if np.any(np.diff(self.errors) <= 0) or np.any(np.diff(self.requests_per_s) < 0) or self.requests_per_s[0] < 0:
            raise ValueError("the errors of a rate curve must increase, and its rates must not decrease")

    @classmethod
    def through(cls, rate: Range) -> "RateCurve":
        """Return the curve through the P10, the median and the P90 of a rate."""
        low, high = min(rate.low, rate.value), max(rate.high, rate.value)
        return cls(errors=(P10_ERROR, 0.0, -P10_ERROR), requests_per_s=(low, rate.value, high))

    @property
    def range(self) -> Range:
        """Return the median, the P10 and the P90 of the rate."""
        known = dict(zip(self.errors, self.requests_per_s, strict=True))
        asked = (P10_ERROR, 0.0, -P10_ERROR)
        # A point of the curve is taken as it is, without the rounding of a logarithm.
        low, value, high = (known.get(error, read) for error, read in zip(asked, self.at(np.array(asked)), strict=True))
        return Range(value=float(value), low=float(low), high=float(high))

    def scaled(self, by: float) -> "RateCurve":
        """Return the curve with every rate multiplied by `by`."""
        return RateCurve(errors=self.errors, requests_per_s=tuple(rate * by for rate in self.requests_per_s))

    def at(self, error: Array) -> Array:
        """Return the rate at each error, in requests per second.

        Between two points the logarithm of the rate is linear. It continues with the same slope beyond the ends. Below
        the first point with a rate, the rate is 0 if the curve has a point there.
        """
        errors, rates = np.array(self.errors), np.array(self.requests_per_s)
        served = rates > 0
        if not served.any():
            return np.zeros_like(error, dtype=np.float64)
        x, y = errors[served], np.log(rates[served])
        found = np.interp(error, x, y)
        if len(x) > 1:
            found = np.where(error > x[-1], y[-1] + (error - x[-1]) * (y[-1] - y[-2]) / (x[-1] - x[-2]), found)
            found = np.where(error < x[0], y[0] + (error - x[0]) * (y[1] - y[0]) / (x[1] - x[0]), found)
        impossible = (error < x[0]) & (not served.all())
        return np.asarray(np.where(impossible, 0.0, np.exp(found)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Rate that one replica of a pool sustains within the SLO; zero if the replica misses the SLO at any rate."""

    curve: RateCurve
    """The rate over the prediction error: simulated for candidates, derived from the predicted interval otherwise."""
    tier: str
    grounds: str
    simulated_replicas: int | None = None
    """Replicas of the simulated pool; None if the rate was not simulated."""
    """Sentence about the source of the rate: the measurements, the engine, and whether the rate was simulated."""
    prefill_fraction: float | None
    """Share of busy device time that prefill takes; None if unknown."""
    measured_engine: str | None = None
    """Engine whose measurements predict the rate; None if there are no measurements."""
    software: Software | None = None
    """Release and day of the measured software for which the rate is predicted; None if there are no measurements."""

    @property
    def requests_per_s(self) -> Range:
        """Return the median, the P10 and the P90 of the rate."""
        return self.curve.range

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
        curve=RateCurve(errors=(0.0,), requests_per_s=(0.0,)), tier="none", grounds=reason, prefill_fraction=None
    )
