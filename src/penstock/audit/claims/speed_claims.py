"""Claims about speed: a rate, a latency or a number of requests, with the stated part of the setup."""

from dataclasses import dataclass
from typing import Literal

from penstock.audit.claims.amount import Amount

Metric = Literal["throughput", "tpot", "ttft", "requests"]
"""Output tokens per second, seconds per output token, seconds to first token, or concurrent requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSetup:
    """The setup of a run; a field is None if the claim does not state it."""

    model: str
    accelerator: str
    devices: int = 1
    precision: str | None = None
    cache: str | None = None
    engine: str | None = None
    concurrency: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    drafted: bool | None = None
    """Whether speculative decoding is used, so that a step yields more than one token."""
    replicas: int = 1
    """Number of replicas that the figure covers: a rate of 32 devices may be of four replicas of eight."""
    data_parallel: int = 1
    expert_parallel: bool = False
    disaggregated: bool = False
    """Whether prefill runs on other devices, so that decode steps contain no prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedStatement:
    """A rate, a latency or a number of requests of one setup."""

    setup: ServedSetup
    metric: Metric
    amount: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRatioStatement:
    """The ratio of one setup's rate to another's, on other devices or at another time."""

    setup: ServedSetup
    over: ServedSetup
    amount: Amount
