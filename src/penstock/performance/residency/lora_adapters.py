"""Computes the bytes of a LoRA adapter and the time to load it."""

from collections.abc import Collection
from typing import Final

from penstock.errors import DeploymentError
from penstock.model import ModelSpec, Part
from penstock.performance.residency.transition_times import Spread, disk_rate

ATTENTION_AND_FFN: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Modules that adapters usually change, by their names in checkpoints."""
_ELEMENT_BYTES: Final = 2
_ADAPTED: Final = frozenset({Part.ATTENTION, Part.DENSE_FFN, Part.SHARED_EXPERTS, Part.ROUTED_EXPERTS})


def adapter_bytes(model: ModelSpec, rank: int, modules: Collection[str] = ATTENTION_AND_FFN) -> int:
    """Return the bytes of an adapter in 16 bits: for each module, two matrices of `rank` by its inputs and outputs."""
    if rank < 1:
        raise DeploymentError(f"the rank of an adapter must be 1 or more, not {rank}")
    adapted = [
        weight
        for weight in model.weights
        if weight.part in _ADAPTED and len(weight.shape) == 2 and weight.module.rsplit(".", 1)[-1] in modules
    ]
    if not adapted:
        known = sorted({weight.module.rsplit(".", 1)[-1] for weight in model.weights if weight.part in _ADAPTED})
        raise DeploymentError(f"{model.name} has none of the modules {', '.join(modules)}; it has {', '.join(known)}")
    return sum(_ELEMENT_BYTES * rank * sum(weight.shape) * weight.copies for weight in adapted)


def adapter_load_s(size_bytes: float) -> Spread:
    """Return the seconds to load an adapter from NVMe, at the rates of published loads of weights.

    ServerlessLLM (OSDI 2024) states 0.37 s for an adapter of 1 GB with safetensors, which is 2.7 GB/s.
    """
    rate = disk_rate()
    return Spread(low=size_bytes / rate.high, median=size_bytes / rate.median, high=size_bytes / rate.low)
