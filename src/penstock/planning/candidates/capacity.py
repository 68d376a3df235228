"""How much does one replica carry? Requests per second within an SLO, per length: the planner's seam."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.fleet.deployment import Deployment
from penstock.performance.prediction.predict import Range
from penstock.planning.asked.plan import Bucket
from penstock.workload.slo import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What one replica sustains within the SLO; zero where it cannot meet it at any rate."""

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


CapacityOf = Callable[[Deployment, Bucket, Slo], Capacity]


def cannot(reason: str) -> Capacity:
    """Say that a replica meets the SLO at no rate."""
    return Capacity(
        requests_per_s=Range(value=0.0, low=0.0, high=0.0), tier="none", grounds=reason, prefill_fraction=None
    )
