"""What is said of a part? A figure of its data sheet, or a ratio between two parts."""

from dataclasses import dataclass
from typing import Final, Literal

from penstock.audit.claims.amount import Amount

FlopsBasis = Literal["unstated", "dense", "sparse"]
Scope = Literal["device", "node", "rack", "unit"]
"""`unit` is one compute unit or streaming multiprocessor."""

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
    """A figure of a data sheet: `h100 fp8 3,958 TFLOPS`."""

    part: str
    quantity: str
    amount: Amount
    basis: FlopsBasis = "unstated"
    scope: Scope = "device"
    sustained: bool = False
    """Whether it is said to be delivered, and not a peak."""
    variants: tuple[str, ...] = ()
    """Parts that bear the name as well, where it was a bare generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioStatement:
    """One part's figure over another's: `mi300x memory 1.5x of h100`."""

    part: str
    over: str
    quantity: str
    amount: Amount
    over_quantity: str | None = None
    """What of the other part, where it is something else: FP4 of one over FP8 of the other."""
    basis: FlopsBasis = "unstated"
    scope: Scope = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitStatement:
    """A part lies below or above a threshold of a rule: export controls count its operations."""

    part: str
    limit: str
    below: bool
