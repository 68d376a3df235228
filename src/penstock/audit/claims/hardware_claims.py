"""Claims about an accelerator: a figure of its data sheet, or a ratio between two."""

from dataclasses import dataclass
from typing import Final, Literal

from penstock.audit.claims.amount import Amount

FlopsBasis = Literal["unstated", "dense", "sparse"]
Scope = Literal["device", "node", "rack", "unit"]
"""Scope of a figure; `unit` is one compute unit or streaming multiprocessor."""

FORMATS_OF_FLOPS: Final = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp6", "fp4")
QUANTITIES: Final = (
    "memory",
    "bandwidth",
    "tdp",
    "compute_units",
    "wavefront",
    "link",
    "link_domain",
    *FORMATS_OF_FLOPS,
)
MEASURES: Final = {
    "memory": "bytes",
    "bandwidth": "bytes/s",
    "link": "bytes/s",
    "tdp": "watts",
    "compute_units": "count",
    "wavefront": "count",
    "link_domain": "count",
    **dict.fromkeys(FORMATS_OF_FLOPS, "flops/s"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecStatement:
    """A data sheet figure: `h100 fp8 3,958 TFLOPS`."""

    accelerator: str
    quantity: str
    amount: Amount
    basis: FlopsBasis = "unstated"
    scope: Scope = "device"
    sustained: bool = False
    """Whether the figure is said to be sustained, not a peak."""
    variants: tuple[str, ...] = ()
    """Other accelerators that the name may mean, if it names only a generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioStatement:
    """The ratio of one accelerator's figure to another's: `mi300x memory 1.5x of h100`."""

    accelerator: str
    over: str
    quantity: str
    amount: Amount
    over_quantity: str | None = None
    """Quantity of the other accelerator if it differs: FP4 of one over FP8 of the other."""
    basis: FlopsBasis = "unstated"
    scope: Scope = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitStatement:
    """A claim that an accelerator is below or above the threshold of a rule, such as export controls."""

    accelerator: str
    limit: str
    below: bool
