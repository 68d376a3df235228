"""In which ways do people split a model over a part? Inside a node, in a rack that links like one, across nodes."""

from typing import Final

from penstock.catalog.accelerator import Accelerator
from penstock.fleet.deployment import Parallelism
from penstock.model import ModelSpec

_WIDEST_TENSOR: Final = 16
"""Ranks an all-reduce after every layer is spread over, even where a whole rack links at full speed."""
_WIDEST_EXPERTS: Final = 64
"""Ranks experts are spread over in a rack."""
_NODES: Final = (2, 4)
"""Nodes of one replica, where it is on several: experts spread over them, or stages of a pipeline."""


def splits_of(model: ModelSpec, accelerator: Accelerator) -> tuple[Parallelism, ...]:
    """List the splits that need no pipeline, the fewest devices first.

    Tensor parallelism in powers of two: what engines run well, and sizes that add up in a node without gaps. A mixture
    of experts may hold whole experts on each rank instead of slices of all, and may have attention by itself on each
    rank beside that. Only a mixture that no device holds alone is spread over several nodes: for a smaller one more
    replicas do the same with less to send.
    """
    together = linked_devices(accelerator)
    tensor = [Parallelism(tp=ranks) for ranks in _powers(min(together, _WIDEST_TENSOR))]
    if model.experts is None:
        return tuple(tensor)
    whole = [Parallelism(tp=split.tp, expert_parallel=True) for split in tensor if split.tp > 1]
    alone = [Parallelism(dp=ranks, expert_parallel=True) for ranks in _expert_ranks(model, accelerator)]
    return tuple(sorted([*tensor, *whole, *alone], key=lambda split: split.devices))


def _expert_ranks(model: ModelSpec, accelerator: Accelerator) -> list[int]:
    """Over how many devices a mixture is spread with attention by itself on each."""
    node, together = accelerator.node.devices, linked_devices(accelerator)
    if model.weight_bytes <= accelerator.usable_hbm_bytes:
        return _powers(node)[1:]
    if together > node:
        return _powers(min(together, _WIDEST_EXPERTS))[1:]
    # Parts that share a slot with their network do not exchange experts over it.
    meshed = accelerator.link is not None and accelerator.link.topology in {"switched", "mesh"}
    return _powers(node)[1:] + [nodes * node for nodes in _NODES if meshed]


def stages_of(accelerator: Accelerator) -> tuple[Parallelism, ...]:
    """List the splits for a model that no devices hold that link at full speed: its layers in stages, a node each."""
    return tuple(Parallelism(tp=accelerator.node.devices, pp=nodes) for nodes in _NODES)


def linked_devices(accelerator: Accelerator) -> int:
    """Devices that reach each other at full speed: a node, or the rack whose switches span its nodes."""
    link, node = accelerator.link, accelerator.node.devices
    racked = link is not None and link.topology == "switched" and (link.domain_devices or 0) > node
    return (link.domain_devices or node) if link is not None and racked else node


def _powers(most: int) -> list[int]:
    return [2**power for power in range(12) if 2**power <= most]
