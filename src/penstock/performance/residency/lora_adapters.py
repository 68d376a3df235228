"""Computes the bytes of a LoRA adapter and the time to load it."""

from collections.abc import Collection
from typing import Final

from penstock.errors import DeploymentError
from penstock.model import ModelSpec, Part
from penstock.performance.residency.transition_times import Spread, disk_rate

ATTENTION_AND_FFN: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Modules that adapters usually change, by their names in checkpoints."""
_ELEMENT_BYTES: Final = 2
_LOAD_START_S: Final = 0.04
"""Seconds of a load before bytes move (`tests/data/vllm_cpu_cold_loads.json`)."""
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


def adapter_load_s(size_bytes: float, *, disk_bytes_per_s: float | None = None) -> Spread:
    """Return the seconds to load an adapter from disk into a running engine.

    Without `disk_bytes_per_s`, the rates are those of published loads of weights from NVMe. ServerlessLLM (OSDI 2024)
    states 0.37 s for an adapter of 1 GB with safetensors, which is 2.7 GB/s. The time before bytes move was measured
    with vLLM 0.32.0 on a CPU, where 3.6 to 116 MB took 0.04 s and their bytes at 1.2 GB/s.
    """
    stated = disk_bytes_per_s
    rate = disk_rate() if stated is None else Spread(low=stated, median=stated, high=stated)
    return Spread(
        low=_LOAD_START_S + size_bytes / rate.high,
        median=_LOAD_START_S + size_bytes / rate.median,
        high=_LOAD_START_S + size_bytes / rate.low,
    )
