"""Says which resource limits a replica at the highest load that meets its SLO."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from penstock.performance.memory.budget import batch_limit
from penstock.performance.step.step_work import COMPONENTS, PHYSICAL
from penstock.planning.candidates.queueless_screen import QueuelessScreen
from penstock.planning.candidates.replica_capacity import Option
from penstock.planning.spec.plan_types import Bucket
from penstock.workload.slo import Slo

Resource = Literal["capacity", "bandwidth", "compute", "interconnect", "software"]
"""Memory capacity, memory bandwidth, arithmetic, links between devices, or the host and its kernel launches."""
_RESOURCE: Final[dict[str, Resource]] = {
    "weights": "bandwidth",
    "experts": "bandwidth",
    "cache": "bandwidth",
    "compute": "compute",
    "prefill": "compute",
    "widening": "compute",
    "collectives": "interconnect",
    "exchange": "interconnect",
    "messages": "interconnect",
}
"""Maps a component of a step to its resource. All other components are counts of launches: software."""
_NEARLY: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLimit:
    """What limits a replica at the highest load that meets its SLO, without queues."""

    resource: Resource
    roofline_fraction: float
    """Part of the hardware limit that the software reaches: step time at the roofline over predicted step time."""


LimitOf = Callable[[Option, Bucket, Slo], ReplicaLimit | None]
"""Function that returns the resource that limits a replica; None if it serves no request in time or is not known."""


def replica_limit(screen: QueuelessScreen, option: Option, bucket: Bucket, slo: Slo) -> ReplicaLimit | None:
    """Return the resource that limits a replica; None if the replica misses the SLO with one request alone.

    It is memory capacity if the KV cache is full before the SLO is missed. Otherwise it is the resource that takes most
    of the time of a step.
    """
    found = screen.highest_load(option, bucket, slo)
    if found is None:
        return None
    together, most = found[0], screen.most_together(option, bucket)
    parts = screen.compiled(option).parts_s(together, bucket)
    shares: dict[Resource, float] = {}
    for name, (_, seconds) in parts.items():
        resource = _RESOURCE.get(name, "software")
        shares[resource] = shares.get(resource, 0.0) + seconds
    roofline = sum(parts[name][0] for name in COMPONENTS[:PHYSICAL])
    batch = batch_limit(option.deployment)
    full = together >= _NEARLY * most and (batch is None or most < batch)
    return ReplicaLimit(
        resource="capacity" if full else max(shares, key=lambda resource: shares[resource]),
        roofline_fraction=min(1.0, roofline / max(sum(shares.values()), 1e-12)),
    )
