"""Which prompts begin alike? System prompts that many requests share, and conversations that grow turn by turn.

Sharing adds to what the lengths say, as benchmark tools do (`vllm bench --random-prefix-len`): the drawn prompt length
is what a request brings itself, and its prompt is what it shares plus that.
"""

from dataclasses import dataclass

import numpy as np

from penstock.errors import UsageError
from penstock.workload.requests import MAX_TOKENS, NO_SEGMENT, Int32s, Prefixes

MAX_ADDED_TOKENS = MAX_TOKENS // 2
"""What is shared and what is brought are each cut to this, so that together they stay a length."""

_MAX_PROMPTS = 2**20
_MAX_TURNS = 1000  # A native block's paths then take at most 131 MB.


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemPrompts:
    """Some prompts that every request begins with one of; the k-th most popular has weight 1 / k ** zipf_exponent."""

    prompts: int
    tokens: int
    zipf_exponent: float = 1.0

    def __post_init__(self) -> None:
        if not (1 <= self.prompts <= _MAX_PROMPTS and 1 <= self.tokens <= MAX_ADDED_TOKENS):
            raise UsageError(f"{self.prompts:,} system prompts of {self.tokens:,} tokens cannot be meant")
        if not 0 <= self.zipf_exponent < np.inf:
            raise UsageError(f"a Zipf exponent of {self.zipf_exponent:g} cannot be meant; 0 makes all equally popular")

    def draw(self, rng: np.random.Generator, requests: int) -> Int32s:
        """Pick a prompt for each request."""
        weights = np.arange(1, self.prompts + 1) ** -self.zipf_exponent
        bounds = np.cumsum(weights)
        picked = np.searchsorted(bounds, rng.random(requests) * bounds[-1], "right")
        prompts: Int32s = np.minimum(picked, self.prompts - 1).astype(np.int32)
        return prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """Turn after turn: each prompt begins with the prompt and the answer of the turn before.

    Arrivals stay what they are; each request takes the next turn of one of the conversations that are open. As many are
    open as requests arrive in `turn_gap_s` (Little's law), or one per user in a closed loop, and they take turns in
    rounds whose halves are shuffled: a turn follows the last one after 0.5 to 1.5 times `turn_gap_s`, never sooner, so
    an answer can be read before it is replied to. An ended conversation makes room for a new one.
    """

    mean_turns: float
    """Turns are geometric: any turn is the last with probability 1 / mean_turns."""
    turn_gap_s: float
    max_history_tokens: int
    """A conversation also ends once its prompt and answer are this long together: what a context can hold."""
    max_turns: int = 100
    """And after so many turns: paths are as long as conversations."""
    system: SystemPrompts | None = None
    """What a conversation begins with."""

    def __post_init__(self) -> None:
        if not 1 <= self.mean_turns < np.inf:
            raise UsageError(f"a mean of {self.mean_turns:g} turns cannot be meant; it is at least 1")
        if not 0 < self.turn_gap_s < np.inf:
            raise UsageError(f"a gap of {self.turn_gap_s:g} s between turns cannot be meant; it is above 0")
        if not 1 <= self.max_history_tokens <= MAX_ADDED_TOKENS:
            raise UsageError(f"a history of {self.max_history_tokens:,} tokens cannot be meant")
        if not 1 <= self.max_turns <= _MAX_TURNS:
            raise UsageError(f"conversations of {self.max_turns:,} turns are not followed; at most {_MAX_TURNS:,} are")


Sharing = SystemPrompts | Conversations


def begin_with_prompts(sharing: SystemPrompts, rng: np.random.Generator, brought: Int32s) -> tuple[Int32s, Prefixes]:
    """Put a system prompt before what each request brings; returns the prompts' lengths and what they share."""
    prefixes = Prefixes(
        segment_tokens=np.full(sharing.prompts, sharing.tokens, np.int32),
        path_start=np.arange(len(brought) + 1),
        path=sharing.draw(rng, len(brought)),
        own=np.full(len(brought), NO_SEGMENT, np.int32),
    )
    return np.minimum(brought, MAX_ADDED_TOKENS) + np.int32(sharing.tokens), prefixes
