"""Weight formats as people name them, and models stored in these formats."""

import difflib
from collections.abc import Mapping
from typing import Final

from penstock.errors import UsageError
from penstock.model import ModelSpec
from penstock.model.model_spec import model_as_measured
from penstock.model.weight import FORMATS, FP16, INT8_CHANNEL, WeightFormat

Q4_K_M: Final = WeightFormat(name="int4", bits=4.85, widened_to="fp16")
"""llama.cpp's mixture of four and six bits.

The format q4_k_m takes 4.85 bits per weight in Llama models, including scales.
"""
PRECISIONS: Final[Mapping[str, WeightFormat]] = {**FORMATS, "fp16": FP16, "int8": INT8_CHANNEL, "q4_k_m": Q4_K_M}
_SPELLINGS: Final = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "q4": "q4_k_m",
    "4-bit": "int4",
    "fp4": "mxfp4",
}
_SPELLINGS_MORE: Final = {"awq": "int4", "gptq": "int4", "int8-w8a8": "int8", "w8a8": "int8", "8-bit": "int8"}
USUAL: Final = ("fp16", "fp8", "int4")
"""Formats that are tried if the claim states no format, sorted by width, widest first."""


def precision_name(text: str) -> str:
    """Return the canonical name of a weight format that is written as people write it."""
    spelled = text.strip().lower()
    name = {**_SPELLINGS, **_SPELLINGS_MORE}.get(spelled, spelled)
    if name in PRECISIONS:
        return name
    near = difflib.get_close_matches(spelled[:20], PRECISIONS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(PRECISIONS)}"
    raise UsageError(f"'{text[:30]}' is not a weight format; {hint}")


def in_format(model: ModelSpec, precision: str | None) -> ModelSpec:
    """Return a model stored in a weight format. If the format is None, return the model as released."""
    if precision is None:
        return model
    if precision in FORMATS:
        return model_as_measured(model, precision)
    return model.stored_as(PRECISIONS[precision])


def formats_tried(precision: str | None) -> tuple[str | None, ...]:
    """Return the formats that a claimed rate may refer to.

    If the claim states no format, return the released format, fp8 and int4.
    """
    return (None, "fp8", "int4") if precision is None else (precision,)


def possible_formats(precision: str | None) -> tuple[str, ...]:
    """Return the formats that a claim may mean. If the claim states no format, return the usual formats."""
    return USUAL if precision is None else (precision,)
