"""Selects the datapath with which an accelerator multiplies weights that are stored in a given format."""

from typing import Final

from penstock.catalog.accelerator import Accelerator, Precision
from penstock.errors import UnsupportedPrecision
from penstock.model import Weight

_WIDE: Final = frozenset({Precision.BF16, Precision.FP16})
_WIDE_BITS: Final = 16


def compute_precision(format_name: str, accelerator: Accelerator) -> Precision:
    """Return the datapath that multiplies weights of a format.

    A format without a datapath is widened to the next format that has one.

    The FP4 datapaths of vendors other than NVIDIA multiply only MX blocks, so NVFP4 is widened on their accelerators.
    """
    wanted: dict[str, tuple[Precision, ...]] = {
        "fp8": (Precision.FP8, Precision.BF16),
        "mxfp8": (Precision.FP8, Precision.BF16),
        "int8": (Precision.INT8, Precision.BF16),
        "nvfp4": (Precision.FP4, Precision.BF16) if accelerator.vendor == "nvidia" else (Precision.BF16,),
        "mxfp4": (Precision.FP4, Precision.BF16),
        "fp16": (Precision.FP16, Precision.BF16),
        "fp32": (Precision.TF32, Precision.FP32),
    }
    for precision in wanted.get(format_name, (Precision.BF16, Precision.FP16)):
        if precision in accelerator.dense_flops_per_s:
            return precision
    raise UnsupportedPrecision(
        f"the catalog lists no datapath of {accelerator.id} for {format_name} weights; choose another weight format"
    )


def widens(weight: Weight, accelerator: Accelerator) -> bool:
    """Return whether a kernel must convert a weight to a wider format before the multiplication."""
    stored = weight.format
    return stored.bits < _WIDE_BITS and compute_precision(stored.multiplied_as, accelerator) in _WIDE
