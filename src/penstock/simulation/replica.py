"""Defines the objects of a simulation: a replica with the limits of its scheduler, and pools of equal replicas."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import DeploymentError
from penstock.fleet.pools import Role
from penstock.performance.step.step_cost import StepCost

Tokens = TypeVar("Tokens", int, NDArray[np.int64])


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One engine: its step times and the limits of its schedulers.

    With data-parallel attention, an engine has `cost.ranks` schedulers, each with its own queue, batch and cache. The
    limits apply to each scheduler.
    """

    cost: StepCost
    kv_blocks: int
    """KV blocks available to requests. vLLM logs one more block, which it reserves."""
    block_tokens: int = 16
    max_batched_tokens: int = 8192
    max_sequences: int = 256
    prefix_caching: bool = True
    context_tokens: int | None = None
    """Maximum length of prompt plus answer in tokens; an engine refuses longer requests. None: no known limit."""
    asynchronous: bool = False
    """Whether a step is scheduled before the tokens of the previous step are known, as vLLM does on accelerators.

    With such asynchronous scheduling, new requests and freed blocks are seen one step later.
    """
    prompts_wait_steps: int = 0
    """Maximum steps for which prompts wait until every rank has a prompt, so that ranks prefill together.

    0 means no wait.
    """
    request_s: float = 0.0
    """Seconds a request spends outside the engine before its first token: HTTP, tokenizer, first detokenization."""
    first_ratio: float = 1.0
    """Client's time from admission to the first token, divided by the duration of the engine steps in that time."""

    def __post_init__(self) -> None:
        if min(self.kv_blocks, self.block_tokens, self.max_sequences) < 1:
            raise DeploymentError(
                "a replica must have at least one KV block, one token per block and one request per batch"
            )
        if self.max_batched_tokens < self.max_sequences:
            raise DeploymentError(
                f"max_batched_tokens is {self.max_batched_tokens}, below the batch limit of {self.max_sequences} "
                f"requests; raise it to {self.max_sequences} or more"
            )

    @property
    def ranks(self) -> int:
        """Number of schedulers."""
        return self.cost.ranks

    @property
    def steps_together(self) -> bool:
        """Whether the ranks wait for each other in every step, as they do with expert parallelism."""
        return self.cost.ranks > 1 and self.cost.expert_s > 0

    @property
    def max_tokens(self) -> int:
        """Length of the longest request that the replica serves, prompt plus answer, in tokens."""
        return self.kv_tokens if self.context_tokens is None else min(self.context_tokens, self.kv_tokens)

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV cache of one rank holds, which limits the longest request."""
        return self.kv_blocks * self.block_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """KV transfer from a prefill to a decode replica, over one link per prefill replica."""

    token_s: float
    """Seconds to move one token's KV."""
    start_s: float = 0.0
    """Seconds to set up one transfer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPool:
    """A pool of equal replicas.

    Prefill and decode pools are used together, and the KV cache of each prompt moves from prefill to decode.
    """

    name: str
    replica: Replica
    replicas: int = 1
    role: Role = "both"
    transfer: Transfer | None = None
    """KV transfer; set only in a prefill pool."""
    usd_per_hour: float | None = None
    """Price of one replica in dollars per hour."""
    elastic: bool = False
    """Whether unused replicas are given back and then cost nothing."""
    vendor: str = ""
    """Vendor, or any other name of a failure domain."""
    model: int = 0
    """Number of the pool's model, from 0. A picker sends a request only to pools of its model."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise DeploymentError(f"pool '{self.name}' needs at least one replica")
        if (self.role == "prefill") != (self.transfer is not None):
            raise DeploymentError(
                f"pool '{self.name}': a prefill pool must have a KV transfer, and other pools must not have one"
            )

    @property
    def schedulers(self) -> int:
        """Schedulers over all replicas."""
        return self.replicas * self.replica.ranks

    def holds(self, input_tokens: NDArray[np.int64], output_tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which requests are within the model's context and fit in an empty KV cache."""
        needed = self.kv_needed_tokens(input_tokens, output_tokens)
        fits: NDArray[np.bool_] = (needed <= self.replica.kv_tokens) & ~self.exceeds_context(
            input_tokens, output_tokens
        )
        return fits

    def exceeds_context(self, input_tokens: NDArray[np.int64], output_tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which requests exceed the model's context."""
        limit = self.replica.context_tokens
        return input_tokens + output_tokens > (np.inf if limit is None else limit)

    def kv_needed_tokens(self, input_tokens: Tokens, output_tokens: Tokens) -> Tokens:
        """Return the maximum KV tokens of a request in this pool.

        The last output token is never read, and a prefill pool holds only the prompt.
        """
        return input_tokens if self.role == "prefill" else input_tokens + output_tokens - 1
