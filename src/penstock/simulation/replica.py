"""What is simulated? A replica as its scheduler sees it, and pools of equal ones."""

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
    """One engine: how long its steps take, and the limits its schedulers keep.

    Where attention is data-parallel it has `cost.ranks` schedulers, each with a queue, a batch and a cache of its own;
    the limits are those of one of them.
    """

    cost: StepCost
    kv_blocks: int
    """Blocks requests can have; vLLM logs one more, which it keeps for itself."""
    block_tokens: int = 16
    max_batched_tokens: int = 8192
    max_sequences: int = 256
    prefix_caching: bool = True
    context_tokens: int | None = None
    """Prompt and answer the model allows together: an engine refuses what is longer. None: no limit is known."""
    asynchronous: bool = False
    """Whether a step is scheduled before the tokens of the one before it are known, as vLLM does on accelerators:
    newcomers and freed blocks are seen one step later."""
    prompts_wait_steps: int = 0
    """Steps for which prompts wait until every rank has one, so that ranks prefill together; 0 where they do not."""
    request_s: float = 0.0
    """Seconds a request spends outside the engine before its first token: HTTP, tokeniser, first detokenising."""
    first_ratio: float = 1.0
    """How much longer a first token takes to reach a client than the steps from its admission on say."""

    def __post_init__(self) -> None:
        if min(self.kv_blocks, self.block_tokens, self.max_sequences) < 1:
            raise DeploymentError("a replica has at least one KV block, one token a block and one request a batch")
        if self.max_batched_tokens < self.max_sequences:
            raise DeploymentError(
                f"a batch of {self.max_sequences} requests needs at least as many tokens a step, "
                f"not {self.max_batched_tokens}; raise max_batched_tokens"
            )

    @property
    def ranks(self) -> int:
        """Schedulers it has."""
        return self.cost.ranks

    @property
    def steps_together(self) -> bool:
        """Whether its ranks wait for each other in every step, as those do that share experts."""
        return self.cost.ranks > 1 and self.cost.expert_s > 0

    @property
    def most_tokens(self) -> int:
        """Prompt and answer of the longest request it serves."""
        return self.kv_tokens if self.context_tokens is None else min(self.context_tokens, self.kv_tokens)

    @property
    def kv_tokens(self) -> int:
        """Tokens the KV cache of a rank holds, and so the longest request."""
        return self.kv_blocks * self.block_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """How KV gets from a prefill to a decode replica: one link per prefill replica."""

    token_s: float
    """Seconds to move one token's KV."""
    start_s: float = 0.0
    """Seconds to set up one transfer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPool:
    """Replicas of one kind. Prefill and decode pools come together, and KV travels from one to the other."""

    name: str
    replica: Replica
    replicas: int = 1
    role: Role = "both"
    transfer: Transfer | None = None
    """Of a prefill pool."""
    usd_per_hour: float | None = None
    """Of one replica."""
    elastic: bool = False
    """Whether replicas without work are given back, so that not using one saves its dollars."""
    vendor: str = ""
    """Or any other name for what fails together."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise DeploymentError(f"pool '{self.name}' needs at least one replica")
        if (self.role == "prefill") != (self.transfer is not None):
            raise DeploymentError(f"pool '{self.name}': a prefill pool, and only that, needs a transfer")

    @property
    def schedulers(self) -> int:
        """Over all replicas."""
        return self.replicas * self.replica.ranks

    def holds(self, input_tokens: NDArray[np.int64], output_tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which requests are within the model's context and fit the cache when it is empty."""
        needed = self.kv_needed_tokens(input_tokens, output_tokens)
        fits: NDArray[np.bool_] = (needed <= self.replica.kv_tokens) & ~self.exceeds_context(
            input_tokens, output_tokens
        )
        return fits

    def exceeds_context(self, input_tokens: NDArray[np.int64], output_tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which requests are longer than the model allows."""
        limit = self.replica.context_tokens
        return input_tokens + output_tokens > (np.inf if limit is None else limit)

    def kv_needed_tokens(self, input_tokens: Tokens, output_tokens: Tokens) -> Tokens:
        """Tokens a request has in this pool's cache at most: nothing reads the last one, and prefill ends before."""
        return input_tokens if self.role == "prefill" else input_tokens + output_tokens - 1
