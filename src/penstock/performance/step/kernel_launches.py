"""Counts the launches and messages of a step that do not depend on the batch of the step.

The launches are those of matrix multiplications after the engine has fused them. The messages are exchanges between
ranks.
"""

from typing import Final

from penstock.catalog.accelerator import Accelerator, Precision
from penstock.fleet.deployment import Deployment
from penstock.model import ModelSpec
from penstock.model.weight import WeightFormat
from penstock.performance.step.datapath import compute_precision

_WIRE_BYTES: Final = 2
"""Bytes per activation in messages: sixteen bits."""
_SLOT_BYTES_PER_S: Final = 32e9
"""Bytes per second of one PCIe 4.0 x16 slot, which a device without links of its own uses."""
_NETWORK_BYTES_PER_S: Final = 50e9
"""Bytes per second of the network between machines, per device: 400 Gb/s."""


def link_bytes_per_s(accelerator: Accelerator, ranks: int) -> float:
    """Return the bytes per second that one device can send to the other ranks.

    In a mesh, only the links to the other ranks count. If the ranks span several machines, the network is the limit.
    """
    link = accelerator.link
    if link is None or link.aggregate_bytes_per_s_one_way is None:
        return _SLOT_BYTES_PER_S
    if ranks > (link.domain_devices or accelerator.node.devices):
        return min(_NETWORK_BYTES_PER_S, link.aggregate_bytes_per_s_one_way)
    together = link.aggregate_bytes_per_s_one_way
    if link.topology == "mesh" and link.per_peer_bytes_per_s_one_way is not None:
        return min(together, link.per_peer_bytes_per_s_one_way * max(1, ranks - 1))
    return together


def multiplications(model: ModelSpec, accelerator: Accelerator) -> tuple[int, int]:
    """Count the matrix multiplications of the layers, and how many of them first quantise their input in blocks.

    Fused matrices count as one launch. Scales of a whole tensor or row are applied by the preceding kernel. Scales of
    blocks need an extra kernel.
    """
    fused = model.fused_matrices
    return sum(fused.values()), sum(count for stored, count in fused.items() if _in_blocks(stored, accelerator))


def _in_blocks(stored: WeightFormat, accelerator: Accelerator) -> bool:
    if stored.scale_columns is None or stored.widened_to is not None:
        return False
    return compute_precision(stored.name, accelerator) in {Precision.FP8, Precision.FP4, Precision.INT8}


def exchange(deployment: Deployment) -> tuple[float, int]:
    """Return the seconds per token of exchanges between data-parallel ranks, and the number of messages per step.

    The seconds are the time to send the activations of one token at peak bandwidth.

    A rank with whole experts receives only the tokens that are routed to its experts, and sends their results back. If
    experts are sliced, every rank processes every token, so all ranks gather and scatter all tokens.
    """
    model, split = deployment.model, deployment.parallelism
    ranks = split.tp * split.dp
    if model.experts is None or split.dp == 1:
        return 0.0, 0
    layers = sum(layer.feed_forward == "moe" for layer in model.layers)
    visited = 1 - (1 - 1 / ranks) ** model.experts.per_token if split.expert_parallel else 1.0
    sent_bytes = 2 * model.hidden_size * _WIRE_BYTES * visited * (ranks - 1) / ranks
    return layers * sent_bytes / link_bytes_per_s(deployment.accelerator, ranks), 2 * layers
