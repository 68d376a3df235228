"""What is said to fit, and how large is it said to be?"""

from dataclasses import dataclass
from typing import Literal

from penstock.audit.claims.amount import Amount

Sized = Literal["weights", "cache", "left", "params"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitStatement:
    """A model fits on so many devices, or does not; or it takes so many of them at least."""

    model: str
    part: str
    devices: int = 1
    fits: bool = True
    precision: str | None = None
    """None where nobody says: then every usual format is tried."""
    context_tokens: int | None = None
    requests: int = 1
    """How many of that context must have room together."""
    fewest: Amount | None = None
    """How many devices are said to be the fewest; `devices` and `fits` then say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeStatement:
    """How large the weights or the cache of a model are, or what is left beside them."""

    model: str
    sized: Sized
    amount: Amount
    precision: str | None = None
    part: str | None = None
    devices: int = 1
    context_tokens: int | None = None
    requests: int = 1
