"""Finds scale tensors by name, decodes them, and checks their values."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.checkpoint.fp8.numerics import DIALECT_OF, Dialect, decode_table
from penstock.checkpoint.safetensors.header import StoredTensor
from penstock.checkpoint.safetensors.stream import Codes

Values = NDArray[np.float64]
_INPUT: Final = re.compile(r"(.*)\.(input_scale|activation_scale|act_scale|input_global_scale)$")
_CACHE: Final = re.compile(r"(?:.*\.)?(k_scale|v_scale|q_scale|kv_scale|prob_scale)$")
_SECOND: Final = ("weight_scale_2", "weight_global_scale")


@dataclass(frozen=True, slots=True)
class ScaleValues:
    """One decoded scale tensor."""

    tensor: StoredTensor
    values: Values


def is_cache_scale(name: str) -> bool:
    """Return whether a tensor of this name holds a scale of the KV cache."""
    return _CACHE.fullmatch(name) is not None


def is_input_scale(name: str) -> bool:
    """Return whether a tensor of this name holds a static scale of activations."""
    return _INPUT.fullmatch(name) is not None


def is_scale(name: str) -> bool:
    """Return whether a tensor of this name holds scales."""
    last = name.rsplit(".", 1)[-1]
    return (
        last == "scale"
        or last.endswith(("_scale", "_scale_inv", "_scales"))
        or last in _SECOND
        or is_cache_scale(name)
        or is_input_scale(name)
    )


def decode_scale(tensor: StoredTensor, raw: Codes) -> Values | None:
    """Return the values of a scale tensor, or None if its dtype is not used for scales.

    The dtype U8 is read as powers of two (E8M0).
    """
    if tensor.dtype == "U8":
        return decode_table(Dialect.E8M0)[raw]
    if tensor.dtype in DIALECT_OF:
        return decode_table(DIALECT_OF[tensor.dtype])[raw]
    if tensor.dtype == "BF16":
        widened = raw.view(np.uint16).astype(np.uint32) << 16
        return widened.view(np.float32).astype(np.float64)
    kinds = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
    if tensor.dtype not in kinds:
        return None
    return raw.view(kinds[tensor.dtype]).astype(np.float64)


def problems(values: Values) -> tuple[str, ...]:
    """Return which kinds of invalid values (NaN, infinite, zero or negative) a scale tensor has."""
    found = []
    if np.isnan(values).any():
        found.append("scale_nan")
    if np.isinf(values).any():
        found.append("scale_infinite")
    if (values == 0).any():
        found.append("scale_zero")
    if (values < 0).any():
        found.append("scale_negative")
    return tuple(found)
