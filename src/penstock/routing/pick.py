"""What does a routing decision see, and what does it say? The types that the simulator and the gateway share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRequest:
    """What is known of a request before it is served."""

    input_tokens: int
    output_tokens: int | None = None
    """None where nobody can know: a gateway sees a limit at most."""
    slo_class: int = 0
    segments: tuple[int, ...] = ()
    """The shared parts its prompt begins with, outermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointState:
    """One endpoint at the moment of a decision."""

    address: str
    pool: str
    running: int
    waiting: int
    kv_used_fraction: float
    outstanding_tokens: int
    """Prompt and output tokens of the requests it was given and has not answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The endpoint that serves the request, and what spoke for it."""

    address: str
    scores: Mapping[str, float] = field(default_factory=dict)


class Picker(Protocol):
    """Any function that decides."""

    def __call__(self, request: RouteRequest, endpoints: Sequence[EndpointState], /) -> Decision:
        """Choose one of the endpoints."""
