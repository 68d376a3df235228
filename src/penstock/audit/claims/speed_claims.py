"""How fast is it said to be? A rate, a time or a number of requests, with as much of its setup as is stated."""

from dataclasses import dataclass
from typing import Literal

from penstock.audit.claims.amount import Amount

Metric = Literal["throughput", "tpot", "ttft", "requests"]
"""Output tokens a second, seconds between two of them, seconds to the first, requests that run together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSetup:
    """What ran, as far as it is stated; None is not stated."""

    model: str
    part: str
    devices: int = 1
    precision: str | None = None
    cache: str | None = None
    engine: str | None = None
    concurrency: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    drafted: bool | None = None
    """Whether tokens are drafted, so that a step yields more than one."""
    replicas: int = 1
    """Copies of the replica the figure is of: a rate of 32 devices may be that of four times eight."""
    data_parallel: int = 1
    expert_parallel: bool = False
    disaggregated: bool = False
    """Whether prompts are processed on other devices, so that steps that decode carry none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedStatement:
    """A rate, a time or a number of requests of one setup."""

    setup: ServedSetup
    metric: Metric
    amount: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRatioStatement:
    """One setup's rate over another's, on other devices or the same a while later."""

    setup: ServedSetup
    over: ServedSetup
    amount: Amount
