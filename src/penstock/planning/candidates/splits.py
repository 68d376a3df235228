"""Lists the splits of a model over devices: within a node, within a rack linked like a node, or across nodes."""

from typing import Final

from penstock.catalog.accelerator import Accelerator
from penstock.fleet.deployment import Parallelism
from penstock.model import ModelSpec

_WIDEST_TENSOR: Final = 16
"""Maximum tensor-parallel ranks, even if a rack links more devices at full speed, because every layer all-reduces."""
_WIDEST_EXPERTS: Final = 64
"""Maximum ranks of expert parallelism in a rack."""
_NODES: Final = (2, 4)
"""Node counts considered for a replica that spans several nodes, by expert parallelism or as pipeline stages."""


def splits_of(model: ModelSpec, accelerator: Accelerator) -> tuple[Parallelism, ...]:
    """List the splits without pipeline stages, sorted by number of devices, first the fewest.

    Tensor-parallel sizes are powers of two, which engines run well and which fill a node without gaps. A
    mixture-of-experts model may hold whole experts on each rank instead of slices of all experts, and may also run
    attention separately on each rank. A mixture-of-experts model that fits on one device is never spread over several
    nodes, because separate replicas serve the same load with less communication.
    """
    together = linked_devices(accelerator)
    tensor = [Parallelism(tp=ranks) for ranks in _powers(min(together, _WIDEST_TENSOR))]
    if model.experts is None:
        return tuple(tensor)
    whole = [Parallelism(tp=split.tp, expert_parallel=True) for split in tensor if split.tp > 1]
    alone = [Parallelism(dp=ranks, expert_parallel=True) for ranks in _expert_ranks(model, accelerator)]
    return tuple(sorted([*tensor, *whole, *alone], key=lambda split: split.devices))


def _expert_ranks(model: ModelSpec, accelerator: Accelerator) -> list[int]:
    """Return the numbers of devices that may share a mixture of experts, with separate attention on each device."""
    node, together = accelerator.node.devices, linked_devices(accelerator)
    if model.weight_bytes <= accelerator.usable_hbm_bytes:
        return _powers(node)[1:]
    if together > node:
        return _powers(min(together, _WIDEST_EXPERTS))[1:]
    # Accelerators that share a slot with their network do not exchange experts over it.
    meshed = accelerator.link is not None and accelerator.link.topology in {"switched", "mesh"}
    return _powers(node)[1:] + [nodes * node for nodes in _NODES if meshed]


def stages_of(accelerator: Accelerator) -> tuple[Parallelism, ...]:
    """List the pipeline splits, one node per stage, for models that devices linked at full speed cannot hold."""
    return tuple(Parallelism(tp=accelerator.node.devices, pp=nodes) for nodes in _NODES)


def linked_devices(accelerator: Accelerator) -> int:
    """Return how many devices are linked at full speed: all in a node, or all in a rack with switches between nodes."""
    link, node = accelerator.link, accelerator.node.devices
    racked = link is not None and link.topology == "switched" and (link.domain_devices or 0) > node
    return (link.domain_devices or node) if link is not None and racked else node


def _powers(most: int) -> list[int]:
    return [2**power for power in range(12) if 2**power <= most]
