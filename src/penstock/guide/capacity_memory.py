"""Keeps the capacities that were found for one workload shape, by kind of replica and pool size."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.planning.candidates.replica_capacity import Capacity, RateCurve
from penstock.planning.candidates.replica_limit import Resource


class CapacityFiles(Protocol):
    """Capacities of earlier processes."""

    def read(self, key: str) -> Mapping[str, Any] | None:
        """Return what was kept under a key; None if nothing was."""

    def write(self, key: str, kept: Mapping[str, object]) -> None:
        """Keep something under a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCapacity:
    """The rate of a replica over its prediction error, and the headroom that the plan's confidence takes."""

    errors: tuple[float, ...]
    requests_per_s: tuple[float, ...]
    headroom: float
    tier: str

    @classmethod
    def of(cls, capacity: Capacity, headroom: float) -> "KnownCapacity":
        """Return what is kept of a capacity."""
        curve = capacity.curve
        return cls(
            errors=tuple(curve.errors),
            requests_per_s=tuple(curve.requests_per_s),
            headroom=headroom,
            tier=capacity.tier,
        )

    def capacity(self, engine: str) -> Capacity:
        """Return the capacity of a replica with this curve."""
        return Capacity(
            curve=RateCurve(errors=self.errors, requests_per_s=self.requests_per_s),
            tier=self.tier,
            grounds="simulated for the guide",
            prefill_fraction=None,
            measured_engine=engine,
        )


@dataclass(slots=True)
class ShapeMemory:
    """What is known of one workload shape. A kind is a split with its engine."""

    kinds: list[str] = field(default_factory=list)
    """Kinds that were found at the highest load."""
    curves: dict[str, dict[int, KnownCapacity]] = field(default_factory=dict)
    """Maps kind and number of simulated replicas to the curve."""
    rates: dict[str, dict[int, float]] = field(default_factory=dict)
    """Maps kind and number of simulated replicas to the simulated rate per replica."""
    sketches: dict[str, dict[int, float]] = field(default_factory=dict)
    """Maps kind and number of simulated replicas to a quick estimate of the rate. It is used to compare engines."""
    screened: dict[str, float] = field(default_factory=dict)
    """Maps kind to its predicted rate without queues."""
    launchable: dict[str, bool] = field(default_factory=dict)
    """Maps kind to whether its launch passes preflight."""
    limits: dict[str, tuple[Resource, float] | None] = field(default_factory=dict)
    """Maps kind to the resource that limits a replica, and the part of its hardware limit that it reaches."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Maps what has no candidate, such as `guide on h100_sxm`, to the reason."""
    changed: bool = False

    def plain(self) -> dict[str, object]:
        """Return everything as JSON types."""
        curves = {
            name: {
                str(size): [known.errors, known.requests_per_s, known.headroom, known.tier]
                for size, known in by.items()
            }
            for name, by in self.curves.items()
        }
        return {
            "kinds": self.kinds,
            "curves": curves,
            "rates": self.rates,
            "sketches": self.sketches,
            "screened": self.screened,
            "launchable": self.launchable,
            "limits": self.limits,
            "left_out": self.left_out,
        }

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> "ShapeMemory":
        """Return a memory from JSON types."""
        return cls(
            kinds=list(kept["kinds"]),
            curves={
                name: {
                    int(size): KnownCapacity(
                        errors=tuple(entry[0]), requests_per_s=tuple(entry[1]), headroom=float(entry[2]), tier=entry[3]
                    )
                    for size, entry in by.items()
                }
                for name, by in kept["curves"].items()
            },
            rates=_by_size(kept["rates"]),
            sketches=_by_size(kept["sketches"]),
            screened=dict(kept["screened"]),
            launchable=dict(kept["launchable"]),
            limits={name: None if limit is None else (limit[0], limit[1]) for name, limit in kept["limits"].items()},
            left_out=dict(kept["left_out"]),
        )


def _by_size(kept: Mapping[str, Mapping[str, float]]) -> dict[str, dict[int, float]]:
    return {name: {int(size): rate for size, rate in by.items()} for name, by in kept.items()}
