"""Keeps the capacities that were found for one workload shape, by kind of replica and pool size."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.planning.candidates.replica_capacity import Capacity, RateCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCapacity:
    """The rate of a replica over its prediction error, and the headroom that the plan's confidence takes."""

    errors: tuple[float, ...]
    requests_per_s: tuple[float, ...]
    headroom: float

    @classmethod
    def of(cls, capacity: Capacity, headroom: float) -> "KnownCapacity":
        """Return what is kept of a capacity."""
        curve = capacity.curve
        return cls(errors=tuple(curve.errors), requests_per_s=tuple(curve.requests_per_s), headroom=headroom)

    def capacity_like(self, other: Capacity) -> Capacity:
        """Return the capacity with this curve; its grounds and tier are those of another pool of the same kind."""
        return replace(other, curve=RateCurve(errors=self.errors, requests_per_s=self.requests_per_s))


@dataclass(slots=True)
class ShapeMemory:
    """What is known of one workload shape."""

    curves: dict[tuple[str, int], KnownCapacity] = field(default_factory=dict)
    """Maps kind of replica and number of simulated replicas to the curve."""
    rates_by_size: dict[str, dict[int, float]] = field(default_factory=dict)
    """Maps kind of replica to its simulated rate per replica, by the number of simulated replicas."""
    screened_rates: dict[str, float] = field(default_factory=dict)
    """Maps kind of replica to its predicted rate without queues."""

    def curve(self, name: str, replicas: int) -> KnownCapacity | None:
        """Return the curve of a kind in a pool; None if it is not known."""
        return self.curves.get((name, replicas))

    def keep_curve(self, name: str, replicas: int, found: KnownCapacity) -> None:
        """Keep the curve of a kind in a pool."""
        self.curves[name, replicas] = found

    def rates(self, name: str) -> Mapping[int, float]:
        """Return the known rates per replica by pool size."""
        return self.rates_by_size.get(name, {})

    def keep_rate(self, name: str, replicas: int, rate: float) -> None:
        """Keep the rate per replica in a pool of this size."""
        self.rates_by_size.setdefault(name, {})[replicas] = rate

    def screened_rate(self, name: str) -> float | None:
        """Return the predicted rate of a kind; None if it is not known."""
        return self.screened_rates.get(name)

    def keep_screened(self, name: str, rate: float) -> None:
        """Keep the predicted rate of a kind."""
        self.screened_rates[name] = rate
