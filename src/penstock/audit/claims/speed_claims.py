"""Claims about a rate, a latency or a number of requests.

Each claim has those properties of the setup that its text states.
"""

from dataclasses import dataclass
from typing import Literal

from penstock.audit.claims.amount import Amount

Metric = Literal["throughput", "tpot", "ttft", "requests"]
"""`throughput` is output tokens per second, `tpot` seconds per output token, `ttft` seconds to the first token.

`requests` is the number of concurrent requests.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSetup:
    """The setup of a run. A field is None if the claim does not state that property."""

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
    """Whether speculative decoding is used, so that one step can yield several tokens per request."""
    replicas: int = 1
    """Number of replicas that the figure covers.

    The rate of 32 devices, for example, may be the sum over four replicas of eight devices each.
    """
    data_parallel: int = 1
    expert_parallel: bool = False
    disaggregated: bool = False
    """Whether prefill runs on other devices than decode, so that decode steps contain no prompt tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedStatement:
    """A claim about a rate, a latency or a number of requests of one setup."""

    setup: ServedSetup
    metric: Metric
    amount: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRatioStatement:
    """A claim about the ratio of two setups' rates. The setups may differ in devices or in other properties."""

    setup: ServedSetup
    over: ServedSetup
    amount: Amount
