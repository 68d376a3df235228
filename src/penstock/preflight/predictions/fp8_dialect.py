"""Predicts what happens to FP8 tensors at load.

FP8 tensors are kept as stored, converted exactly, left in the wrong dialect, widened or refused.
"""

from dataclasses import dataclass
from enum import StrEnum

from penstock.fleet.release import Release
from penstock.preflight.rules.condition import Facts


class Treatment(StrEnum):
    """Treatment of a group of FP8 tensors when the engine loads them."""

    AS_STORED = "as stored"
    CONVERTED = "converted exactly"
    """Bytes are kept, except that 0x80 becomes 0x00, and scales are doubled."""
    UNCONVERTED = "left in the other dialect"
    WIDENED = "widened to 16 bits"
    REFUSED = "refused"
    UNSCALED = "scale 1.0"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectStep:
    """One group of FP8 tensors, and its treatment when the engine loads it."""

    group: str
    treatment: Treatment
    note: str


_CONVERTS = {"fp8", "deepseek_v4_fp8", "compressed-tensors", "quark", "fbgemm_fp8"}


def predict_dialect(facts: Facts) -> tuple[DialectStep, ...]:
    """Predict the treatment of FP8 weights at load, with their scales, and of an FP8 KV cache.

    The result is empty without FP8.
    """
    formats = facts.get("weights.formats")
    steps = []
    if isinstance(formats, frozenset) and formats & {"fp8", "mxfp8"}:
        steps.append(_weights(facts, "mxfp8" if "fp8" not in formats else "fp8"))
    if facts.get("kv.stored") == "fp8":
        steps.append(_cache(facts))
    return tuple(steps)


def _weights(facts: Facts, stored: str) -> DialectStep:
    dialect, method = facts.get("chip.fp8"), facts.get("quant.method")
    group = "weights and their scales"
    if dialect == "ocp":
        return DialectStep(group=group, treatment=Treatment.AS_STORED, note="the chip reads OCP FP8")
    if dialect == "none":
        rocm = facts.get("platform") == "rocm"
        treatment = Treatment.REFUSED if rocm else Treatment.WIDENED
        return DialectStep(group=group, treatment=treatment, note="the chip has no FP8 units")
    if dialect != "fnuz":
        return DialectStep(group=group, treatment=Treatment.UNDETERMINED, note="the chip's dialect is not known")
    if stored == "mxfp8":
        return DialectStep(group=group, treatment=Treatment.WIDENED, note="MXFP8 is expanded to bf16 off gfx950")
    if facts.get("engine") == "sglang":
        return _sglang_weights(group, method)
    if facts.get("engine") == "vllm":
        return _vllm_weights(group, facts)
    return DialectStep(group=group, treatment=Treatment.UNDETERMINED, note="how this engine loads FP8 was not read")


def _sglang_weights(group: str, method: object) -> DialectStep:
    if isinstance(method, str) and method.startswith("modelopt"):
        return DialectStep(group=group, treatment=Treatment.REFUSED, note="ModelOpt is documented as NVIDIA only")
    return DialectStep(group=group, treatment=Treatment.CONVERTED, note="normalised at load, scales doubled")


def _vllm_weights(group: str, facts: Facts) -> DialectStep:
    method, scheme, version = facts.get("quant.method"), facts.get("quant.scheme"), facts.get("version")
    known = version if isinstance(version, Release) else None
    if method == "modelopt" and scheme == "tensor":
        return DialectStep(group=group, treatment=Treatment.UNCONVERTED, note="no FNUZ branch for per-tensor ModelOpt")
    if method == "modelopt" and scheme == "channel" and known is not None and known < Release("0.26.0"):
        return DialectStep(group=group, treatment=Treatment.UNCONVERTED, note="converted from 0.26.0 on")
    if facts.get("weights.e8m0_scales") is True and known is not None and known < Release("0.24.0"):
        return DialectStep(group=group, treatment=Treatment.REFUSED, note="one-byte scales cannot be doubled yet")
    if method in _CONVERTS or method == "modelopt":
        return DialectStep(
            group=group, treatment=Treatment.CONVERTED, note="0x80 becomes 0x00 and every scale is doubled"
        )
    return DialectStep(group=group, treatment=Treatment.UNDETERMINED, note=f"{method} was not read")


def _cache(facts: Facts) -> DialectStep:
    dialect, scales = facts.get("chip.fp8"), facts.get("kv.scales")
    group = "KV cache"
    if dialect == "none":
        return DialectStep(group=group, treatment=Treatment.UNDETERMINED, note="the chip has no FP8 units")
    kinds = facts.get("model.attention")
    if isinstance(kinds, frozenset) and kinds & {"compressed", "sparse"}:
        return DialectStep(group=group, treatment=Treatment.AS_STORED, note="scaled per block as it is written")
    if scales is False:
        largest = "240" if dialect == "fnuz" else "448"
        return DialectStep(group=group, treatment=Treatment.UNSCALED, note=f"no k/v scales: saturates at {largest}")
    if scales is True:
        treatment = Treatment.CONVERTED if dialect == "fnuz" else Treatment.AS_STORED
        return DialectStep(group=group, treatment=treatment, note="k/v scales from the checkpoint")
    return DialectStep(group=group, treatment=Treatment.UNDETERMINED, note="headers were not read: scales unknown")
