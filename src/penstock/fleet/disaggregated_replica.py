"""What is deployed where prompts and answers are computed apart? Two kinds of replicas, and how fast KV travels."""

from dataclasses import dataclass
from typing import Final

from penstock.errors import DeploymentError
from penstock.fleet.deployment import Deployment

NETWORK_BYTES_PER_S: Final = 50e9
"""Of one device to another machine: a 400 Gb/s adapter each. Ten times less moves a median error by under a point."""


@dataclass(frozen=True, kw_only=True)
class Disaggregated:
    """Equal replicas that only prefill and equal replicas that only decode, of one model."""

    prefill: Deployment
    prefill_replicas: int
    decode: Deployment
    decode_replicas: int
    kv_bytes_per_s: float | None = None
    """What one prefill replica sends KV at; None: over the links of one machine or rack that holds them all."""

    def __post_init__(self) -> None:
        if min(self.prefill_replicas, self.decode_replicas) < 1:
            raise DeploymentError("a disaggregated deployment has at least one replica of each kind")

    @property
    def devices(self) -> int:
        """Devices of all replicas."""
        ahead, after = self.prefill.parallelism.devices, self.decode.parallelism.devices
        return self.prefill_replicas * ahead + self.decode_replicas * after

    @property
    def sending_bytes_per_s(self) -> float:
        """What one prefill replica sends KV at, as said or as the catalog has it."""
        if self.kv_bytes_per_s is not None:
            return self.kv_bytes_per_s
        part = self.prefill.accelerator
        link, same = part.link, part.id == self.decode.accelerator.id
        if link is None or not same or self.devices > (link.domain_devices or 0):
            raise DeploymentError(
                f"{self.devices} devices are more than one {part.id} machine or rack links; "
                "say how fast a prefill replica sends KV with --kv-gbps"
            )
        one_way = link.per_peer_bytes_per_s_one_way or link.aggregate_bytes_per_s_one_way
        if one_way is None:
            raise DeploymentError(f"the catalog has no link speed of {part.id}; say it with --kv-gbps")
        return one_way * self.prefill.parallelism.devices
