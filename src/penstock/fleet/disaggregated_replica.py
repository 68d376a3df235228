"""Defines a disaggregated deployment: prefill replicas, decode replicas, and the KV transfer rate."""

from dataclasses import dataclass
from typing import Final

from penstock.errors import DeploymentError
from penstock.fleet.deployment import Deployment

NETWORK_BYTES_PER_S: Final = 50e9
"""Bytes per second from one device to another machine, if each device has a 400 Gb/s adapter.

With a tenth of this rate, the median prediction errors for disaggregated deployments change by less than one
percentage point.
"""


@dataclass(frozen=True, kw_only=True)
class Disaggregated:
    """Identical prefill-only replicas and identical decode-only replicas of one model."""

    prefill: Deployment
    prefill_replicas: int
    decode: Deployment
    decode_replicas: int
    kv_bytes_per_s: float | None = None
    """Rate at which one prefill replica sends KV, in bytes per second.

    If None, the link speed in the catalog is used; one machine or rack must then hold all replicas.
    """

    def __post_init__(self) -> None:
        if min(self.prefill_replicas, self.decode_replicas) < 1:
            raise DeploymentError("a disaggregated deployment must have at least one prefill and one decode replica")

    @property
    def devices(self) -> int:
        """Number of devices of all replicas."""
        ahead, after = self.prefill.parallelism.devices, self.decode.parallelism.devices
        return self.prefill_replicas * ahead + self.decode_replicas * after

    @property
    def sending_bytes_per_s(self) -> float:
        """Rate at which one prefill replica sends KV, in bytes per second: the given rate, or the catalog's."""
        if self.kv_bytes_per_s is not None:
            return self.kv_bytes_per_s
        part = self.prefill.accelerator
        link, same = part.link, part.id == self.decode.accelerator.id
        if link is None or not same or self.devices > (link.domain_devices or 0):
            raise DeploymentError(
                f"no single {part.id} machine or rack links all {self.devices} devices of the deployment; "
                "state the rate at which one prefill replica sends KV with --kv-gbps"
            )
        one_way = link.per_peer_bytes_per_s_one_way or link.aggregate_bytes_per_s_one_way
        if one_way is None:
            raise DeploymentError(
                f"the catalog has no link speed for {part.id}; state the KV transfer rate with --kv-gbps"
            )
        return one_way * self.prefill.parallelism.devices
