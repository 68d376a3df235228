"""What is simulated? A replica as its scheduler sees it, and pools of equal ones."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import DeploymentError
from penstock.fleet.pools import Role
from penstock.performance.step.cost import StepCost

Tokens = TypeVar("Tokens", int, NDArray[np.int64])


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One engine: how long its steps take, and the limits its scheduler keeps."""

    cost: StepCost
    kv_blocks: int
    """Blocks a request can have; vLLM logs one more, which it keeps for itself."""
    block_tokens: int = 16
    max_batched_tokens: int = 8192
    max_sequences: int = 256
    prefix_caching: bool = True
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
    def kv_tokens(self) -> int:
        """Tokens the KV cache holds."""
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

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise DeploymentError(f"pool '{self.name}' needs at least one replica")
        if (self.role == "prefill") != (self.transfer is not None):
            raise DeploymentError(f"pool '{self.name}': a prefill pool, and only that, needs a transfer")

    def kv_needed_tokens(self, input_tokens: Tokens, output_tokens: Tokens) -> Tokens:
        """Tokens a request has in this pool's cache at most: nothing reads the last one, and prefill ends before."""
        return input_tokens if self.role == "prefill" else input_tokens + output_tokens - 1
