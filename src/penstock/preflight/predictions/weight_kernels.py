"""Predicts the kernel class of each group of weights, and the model with the formats that the kernels multiply."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from penstock.model import ModelSpec, Part, Weight
from penstock.model.weight import BF16
from penstock.preflight.rules.condition import Facts

_NARROW_BITS = 16
_OFF = frozenset({"0", "false", "False"})


class KernelClass(StrEnum):
    """Kernel classes for a weight format, sorted from best to worst. `UNDETERMINED` comes last."""

    NATIVE = "native"
    TRITON = "triton"
    """Generic Triton kernels on the chip's native units for the format."""
    WIDENED = "widened"
    """Weights are stored in a narrow format and are multiplied in 16 bits."""
    EMULATED = "emulated"
    """Weights are dequantised to bf16 again for every matrix product."""
    EXPANDED = "expanded"
    """Weights are dequantised to bf16 once, and are stored in memory as bf16."""
    NONE = "none"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightGroup:
    """Weights of one format that are multiplied by the same kernel."""

    group: str
    """`linears` or `experts`, the layers to which the weights belong."""
    format: str
    stored_bytes: int
    kernel: KernelClass
    by: str


def predict_kernels(model: ModelSpec, facts: Facts, table: Mapping[str, Any]) -> tuple[WeightGroup, ...]:
    """Look up the kernel of every group of weights in the engine's kernel table.

    The groups are sorted by stored bytes, largest first.
    """
    groups: dict[tuple[str, str, str], int] = {}
    for weight in model.weights:
        if weight.part in {Part.MTP, Part.NORM, Part.EMBEDDING} or len(weight.shape) < 2:
            continue
        key = (_group(weight), weight.format.name, _row(weight, facts))
        groups[key] = groups.get(key, 0) + weight.stored_bytes
    found = []
    for (group, stored, row), stored_bytes in groups.items():
        kernel, by = _lookup(row, model.architecture, facts, table)
        found.append(WeightGroup(group=group, format=stored, stored_bytes=stored_bytes, kernel=kernel, by=by))
    return tuple(sorted(found, key=lambda entry: -entry.stored_bytes))


def as_executed(model: ModelSpec, groups: tuple[WeightGroup, ...]) -> ModelSpec:
    """Return the model with the weight formats that the kernels multiply, for speed predictions.

    Expanded weights become bf16. Widened and emulated weights are multiplied in bf16, but keep their name, their bytes,
    and the way in which engines shard and pad them.
    """
    kernels = {(entry.group, entry.format): entry.kernel for entry in groups}
    priced_otherwise = {KernelClass.EXPANDED, KernelClass.EMULATED, KernelClass.WIDENED}
    if not priced_otherwise & set(kernels.values()):
        return model

    def executed(weight: Weight) -> Weight:
        kernel = kernels.get((_group(weight), weight.format.name))
        if kernel is KernelClass.EXPANDED:
            return replace(weight, format=BF16)
        if kernel in {KernelClass.EMULATED, KernelClass.WIDENED} and weight.format.bits < _NARROW_BITS:
            return replace(weight, format=replace(weight.format, widened_to=BF16.name))
        return weight

    return replace(model, weights=tuple(executed(weight) for weight in model.weights))


def emulation_sentence(groups: Iterable[WeightGroup], engine: str, accelerator: str) -> str | None:
    """Say that the speed of emulated weights is not known. Return None if no weights are emulated.

    vLLM converts emulated weights to 16 bits in every step, all experts of a layer included
    (fused_moe/experts/ocp_mx_emulation_moe.py#L192-L206 in 0.32.0). Its authors call that impractically slow
    (vllm#34481, vllm#50814); no throughput is published.
    """
    formats = dict.fromkeys(group.format for group in groups if group.kernel is KernelClass.EMULATED)
    if not formats:
        return None
    names = " and ".join(formats)
    return (
        f"undetermined: {engine} converts all {names} weights to 16 bits in every step on {accelerator}, and "
        "no measurement of that is published (vllm#50814)"
    )


def _group(weight: Weight) -> str:
    return "experts" if weight.part is Part.ROUTED_EXPERTS else "linears"


def _row(weight: Weight, facts: Facts) -> str:
    """Return the name of the row of the kernel table that lists the kernels for a weight."""
    stored = weight.format
    experts = weight.part is Part.ROUTED_EXPERTS
    if stored.bits >= _NARROW_BITS:
        return f"{stored.name}_experts" if experts else stored.name
    if stored.name in {"nf4", "mxfp6"}:
        return stored.name
    if stored.name == "fp8" and not experts:
        if facts.get("quant.activation_bits") == _NARROW_BITS:
            return "fp8_weight_only"
        return "fp8_block" if stored.scale_rows not in {None, 1} else "fp8_tensor"
    if stored.name == "int8":
        if facts.get("quant.activation_bits") != _NARROW_BITS:
            return "int8"
        return "int8_weight_only_experts" if experts else "int8_weight_only"
    return f"{stored.name}_experts" if experts else stored.name


def _lookup(row: str, architecture: str, facts: Facts, table: Mapping[str, Any]) -> tuple[KernelClass, str]:
    engine, chip = facts.get("engine"), facts.get("chip")
    rows = table.get(engine, {}) if isinstance(engine, str) else {}
    entries = rows.get(f"{row}_{architecture}") or rows.get(row, {})
    text = entries.get(chip) if isinstance(chip, str) else None
    written = text or entries.get("default")
    if written is None or facts.get("platform") == "other":
        return KernelClass.UNDETERMINED, "not read for this engine and chip"
    kind, _, by = str(written).partition(": ")
    if kind == "aiter":
        on = _aiter_on(facts, experts="experts" in row)
        return (KernelClass.NATIVE, f"AITER {by}") if on else (KernelClass.TRITON, f"Triton {by}")
    return KernelClass(kind), by


def _aiter_on(facts: Facts, *, experts: bool) -> bool:
    if experts and facts.get("engine") == "vllm" and facts.get("env.VLLM_ROCM_USE_AITER_MOE") in _OFF:
        return False
    name = "env.VLLM_ROCM_USE_AITER" if facts.get("engine") == "vllm" else "env.SGLANG_USE_AITER"
    # SGLang's images set the variable; a bare launch without it uses Triton.
    image = facts.get("launch.install") == "docker" and facts.get("engine") == "sglang"
    return facts.get(name) in {"1", "true", "True"} or (image and facts.get(name) == "unset")
