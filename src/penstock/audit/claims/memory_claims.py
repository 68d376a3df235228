"""Claims about memory: whether a model fits, and the size of a model."""

from dataclasses import dataclass
from typing import Literal

from penstock.audit.claims.amount import Amount

Sized = Literal["weights", "cache", "left", "params"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitStatement:
    """A claim that a model fits, or does not fit, on some devices, or a claim about the minimum number of devices."""

    model: str
    accelerator: str
    devices: int = 1
    fits: bool = True
    precision: str | None = None
    """Weight format. If the claim states no format (None), every usual format is tried."""
    context_tokens: int | None = None
    requests: int = 1
    """Number of requests, each with `context_tokens`, that must fit at the same time."""
    fewest: Amount | None = None
    """Claimed minimum number of devices. If this minimum is set, `devices` and `fits` are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeStatement:
    """A claim about a model's number of parameters, weight bytes or KV cache bytes, or about the memory left."""

    model: str
    sized: Sized
    amount: Amount
    precision: str | None = None
    accelerator: str | None = None
    devices: int = 1
    context_tokens: int | None = None
    requests: int = 1
