"""Computes how many requests run at once in a KV cache.

Engines admit a request as soon as blocks are free for its prompt. They take blocks for the answer while it grows, and
preempt a request if no block is left. So a full cache holds the mean context of the running requests, not the whole
length of each. The simulator follows the blocks one by one, and both agree.
"""

from math import inf
from typing import Final

GENERATED_FRACTION: Final = 0.5
"""Fraction of its answer that a running request has generated, on average over requests that started at different
times."""


def mean_context_tokens(
    input_tokens: float, output_tokens: float, generated_fraction: float = GENERATED_FRACTION
) -> float:
    """Return the mean number of tokens that a running request keeps: its prompt and a part of its answer."""
    return input_tokens + generated_fraction * output_tokens


def running_requests(
    held_tokens: float,
    input_tokens: float,
    output_tokens: float,
    *,
    max_requests: float | None = None,
    generated_fraction: float = GENERATED_FRACTION,
) -> float:
    """Return how many requests run at once if more requests wait.

    `held_tokens` are the tokens that the cache holds. `max_requests` is the engine's batch limit, None if it has none.
    """
    limit = inf if max_requests is None else max_requests
    return min(held_tokens / mean_context_tokens(input_tokens, output_tokens, generated_fraction), limit)
