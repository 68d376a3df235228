"""Models shared prompt prefixes: system prompts that many requests share, and conversations that grow turn by turn.

Shared tokens are added to the drawn lengths, as in benchmark tools (`vllm bench --random-prefix-len`): the drawn prompt
length is the part that is not shared, and the whole prompt is the shared part plus this part.
"""

from dataclasses import dataclass

import numpy as np

from penstock.errors import UsageError
from penstock.workload.requests import MAX_TOKENS, NO_SEGMENT, Int32s, Prefixes

MAX_ADDED_TOKENS = MAX_TOKENS // 2
"""Maximum tokens of each part of a prompt, shared and unshared, so that their sum is a valid prompt length."""

_MAX_PROMPTS = 2**20
_MAX_TURNS = 1000  # the paths of a native block then take at most 131 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemPrompts:
    """A set of system prompts.

    Every prompt begins with one system prompt; the k-th most popular system prompt has weight 1 / k ** zipf_exponent.
    """

    prompts: int
    tokens: int
    zipf_exponent: float = 1.0

    def __post_init__(self) -> None:
        if not (1 <= self.prompts <= _MAX_PROMPTS and 1 <= self.tokens <= MAX_ADDED_TOKENS):
            raise UsageError(
                f"{self.prompts:,} system prompts of {self.tokens:,} tokens are out of range; write 1 to "
                f"{_MAX_PROMPTS:,} prompts of 1 to {MAX_ADDED_TOKENS:,} tokens"
            )
        if not 0 <= self.zipf_exponent < np.inf:
            raise UsageError(
                f"the Zipf exponent must be 0 (all system prompts are equally popular) or more, not "
                f"{self.zipf_exponent:g}"
            )

    def draw(self, rng: np.random.Generator, requests: int) -> Int32s:
        """Draw a system prompt for each request."""
        weights = np.arange(1, self.prompts + 1) ** -self.zipf_exponent
        bounds = np.cumsum(weights)
        picked = np.searchsorted(bounds, rng.random(requests) * bounds[-1], "right")
        prompts: Int32s = np.minimum(picked, self.prompts - 1).astype(np.int32)
        return prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """Conversations, in which each prompt begins with the prompt and the answer of the previous turn.

    Conversations do not change arrival times: each arriving request becomes the next turn of an open conversation. The
    number of open conversations is the number of requests that arrive in `turn_gap_s` (Little's law), or one per user
    in a closed loop. In each round, every open conversation has one turn, and the order within each half of the round
    is random. So a turn follows the previous turn of its conversation after 0.5 to 1.5 times `turn_gap_s`, which leaves
    time to read the answer. When a conversation ends, a new conversation replaces it.
    """

    mean_turns: float
    """Mean turns per conversation. The number of turns is geometrically distributed: any turn is the last with
    probability 1 / mean_turns."""
    turn_gap_s: float
    max_history_tokens: int
    """Context size: a conversation ends when prompt plus answer reach this number of tokens."""
    max_turns: int = 100
    """Maximum number of turns of a conversation, which limits the length of segment paths."""
    system: SystemPrompts | None = None
    """System prompts that conversations begin with."""

    def __post_init__(self) -> None:
        if not 1 <= self.mean_turns < np.inf:
            raise UsageError(f"a mean of {self.mean_turns:g} turns is out of range; write 1 or more")
        if not 0 < self.turn_gap_s < np.inf:
            raise UsageError(f"a gap of {self.turn_gap_s:g} s between turns is not possible; write more than 0 s")
        if not 1 <= self.max_history_tokens <= MAX_ADDED_TOKENS:
            raise UsageError(
                f"a history of {self.max_history_tokens:,} tokens is out of range; write 1 to {MAX_ADDED_TOKENS:,}"
            )
        if not 1 <= self.max_turns <= _MAX_TURNS:
            raise UsageError(
                f"conversations of {self.max_turns:,} turns are too long; the limit is {_MAX_TURNS:,} turns"
            )


Sharing = SystemPrompts | Conversations


def begin_with_prompts(sharing: SystemPrompts, rng: np.random.Generator, brought: Int32s) -> tuple[Int32s, Prefixes]:
    """Prepend a system prompt to the unshared part of each prompt.

    Return the prompt lengths and the shared prefixes.
    """
    prefixes = Prefixes(
        segment_tokens=np.full(sharing.prompts, sharing.tokens, np.int32),
        path_start=np.arange(len(brought) + 1),
        path=sharing.draw(rng, len(brought)),
        own=np.full(len(brought), NO_SEGMENT, np.int32),
    )
    return np.minimum(brought, MAX_ADDED_TOKENS) + np.int32(sharing.tokens), prefixes
