"""Applies `--quantization`.

Depending on the method, the engine quantises a 16-bit checkpoint at load, or needs an already quantised checkpoint.
"""

from dataclasses import replace
from typing import Final

from penstock.model.config_json import Config
from penstock.model.weight import FP8_BLOCK, FP8_CHANNEL, FP8_TENSOR, INT4, INT8_CHANNEL, MXFP8, Part, WeightFormat
from penstock.preflight.facts.quantisation_scheme import read_scheme
from penstock.preflight.facts.situation import Subject

_ONLINE: Final[dict[str, tuple[WeightFormat, str]]] = {
    # vLLM's docs/features/quantization and config/quantization.py; SGLang's server_args.py.
    "fp8": (FP8_TENSOR, "fp8"),
    "fp8_per_tensor": (FP8_TENSOR, "fp8"),
    "fp8_per_channel": (FP8_CHANNEL, "fp8"),
    "fp8_per_block": (FP8_BLOCK, "fp8"),
    "ptpc_fp8": (FP8_CHANNEL, "fp8"),
    "w8a8_fp8": (FP8_CHANNEL, "fp8"),
    "mxfp8": (MXFP8, "mxfp8"),
    "bitsandbytes": (INT4, "bitsandbytes"),
    "w8a8_int8": (INT8_CHANNEL, "w8a8_int8"),
    "int8_per_channel_weight_only": (INT8_CHANNEL, "int8"),
}
"""Methods that quantise a 16-bit checkpoint at load, each with the resulting format and its name in a config."""
_EXPERTS: Final = {"experts_int8": INT8_CHANNEL}
_STORED: Final = {
    "awq": "awq",
    "awq_marlin": "awq",
    "auto_awq": "awq",
    "gptq": "gptq",
    "gptq_marlin": "gptq",
    "auto_gptq": "gptq",
    "compressed-tensors": "compressed-tensors",
    "modelopt": "modelopt",
    "modelopt_fp4": "modelopt",
    "modelopt_fp8": "modelopt",
    "modelopt_mxfp8": "modelopt",
    "modelopt_mixed": "modelopt",
    "quark": "quark",
    "fbgemm_fp8": "fbgemm_fp8",
    "auto-round": "auto-round",
}
"""Methods that need a quantised checkpoint, each with the method's name in the checkpoint's config."""

_EITHER: Final = {"fp8": "fp8", "mxfp4": "mxfp4"}
"""Methods that a checkpoint may have stored, and that engines may also apply at load. With a checkpoint of another
method, both engines stop with "Quantization method specified in the model config does not match"
(vllm@v0.28.0rc2:vllm/config/model.py, sglang@v0.5.18:python/sglang/srt/configs/model_config.py)."""

_READ_BY_OTHERS: Final = frozenset({"modelopt", "quark"})
"""Methods of checkpoints that a launch may serve with `--quantization fp8`: InferenceX ran nvidia/GLM-5-NVFP4 so."""


def as_launched(subject: Subject, method: str | None) -> Subject:
    """Return the checkpoint with the weights that the engine holds after loading.

    For example, `--quantization fp8` halves the bytes of a bf16 checkpoint.
    """
    if method is None or subject.scheme.method != "none":
        return subject
    if method in _EXPERTS:
        spec, name = subject.model.stored_as(_EXPERTS[method], only=Part.ROUTED_EXPERTS), method
    elif method in _ONLINE:
        spec, name = subject.model.stored_as(_ONLINE[method][0]), _ONLINE[method][1]
    else:
        return subject
    section = {"quant_method": name, "activation_scheme": "dynamic"}
    return replace(
        subject, model=spec, scheme=read_scheme(spec, None, Config({"quantization": section}, "--quantization"))
    )


def mismatch(subject: Subject, method: str | None) -> str | None:
    """Return the reason why the quantisation method cannot read the checkpoint.

    Return None if it can, or if this is unknown.
    """
    needed = None if method is None else _STORED.get(method) or _EITHER.get(method)
    if needed is None:
        return None
    has = subject.scheme.method
    if has == "none":
        stored_only = method in _STORED
        reason = f"--quantization {method} needs a quantised checkpoint, and this one is not quantised"
        return reason if stored_only else None
    if method in _EITHER and has in _READ_BY_OTHERS:
        return None
    if has in {*_STORED.values(), *_EITHER.values()} and has != needed:
        return f"--quantization {method} does not read this checkpoint, whose config says {has}; leave the flag out"
    return None
