"""Claims about an accelerator's data sheet figure, about the ratio of two such figures, or about a threshold."""

from dataclasses import dataclass
from typing import Final, Literal

from penstock.audit.claims.amount import Amount

FlopsBasis = Literal["unstated", "dense", "sparse"]
Scope = Literal["device", "node", "rack", "unit"]
"""Hardware that a figure covers. `unit` is one compute unit or streaming multiprocessor."""

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
    """A claim about a data sheet figure, such as `h100 fp8 3,958 TFLOPS`."""

    accelerator: str
    quantity: str
    amount: Amount
    basis: FlopsBasis = "unstated"
    scope: Scope = "device"
    sustained: bool = False
    """Whether the claim calls the figure sustained instead of peak."""
    variants: tuple[str, ...] = ()
    """Other accelerators that the claim may mean, if it names only a generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioStatement:
    """A claim about the ratio of two accelerators' figures, such as `mi300x memory 1.5x of h100`."""

    accelerator: str
    over: str
    quantity: str
    amount: Amount
    over_quantity: str | None = None
    """Quantity of the second accelerator if it differs from `quantity`.

    For example, FP4 of one may be divided by FP8 of the other.
    """
    basis: FlopsBasis = "unstated"
    scope: Scope = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitStatement:
    """A claim that an accelerator is below or above the threshold of a rule, such as export controls."""

    accelerator: str
    limit: str
    below: bool
