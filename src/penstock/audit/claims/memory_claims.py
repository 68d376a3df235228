"""Claims about memory: fit and size."""

from dataclasses import dataclass
from typing import Literal

from penstock.audit.claims.amount import Amount

Sized = Literal["weights", "cache", "left", "params"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitStatement:
    """A claim that a model fits or does not fit on a number of devices, or about the fewest devices."""

    model: str
    accelerator: str
    devices: int = 1
    fits: bool = True
    precision: str | None = None
    """Weight format; if the claim states none (None), every usual format is tried."""
    context_tokens: int | None = None
    requests: int = 1
    """Number of requests of that context that must fit together."""
    fewest: Amount | None = None
    """Claimed minimum number of devices; if it is set, `devices` and `fits` are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeStatement:
    """A claim about the size of a model's weights or KV cache, or about the remaining memory."""

    model: str
    sized: Sized
    amount: Amount
    precision: str | None = None
    accelerator: str | None = None
    devices: int = 1
    context_tokens: int | None = None
    requests: int = 1
