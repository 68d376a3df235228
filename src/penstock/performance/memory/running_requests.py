"""Computes how many requests run at once in a KV cache.

Engines admit a request as soon as blocks are free for its prompt. They take blocks for the answer while it grows, and
preempt a request if no block is left. So a full cache holds the mean context of the running requests, not the whole
length of each. The simulator follows the blocks one by one, and both agree.
"""

from math import inf


def mean_context_tokens(input_tokens: float, output_tokens: float) -> float:
    """Return the mean number of tokens that a running request keeps: its prompt and half of its answer.

    Requests that started at different times have generated half of their answers on average.
    """
    return input_tokens + output_tokens / 2


def running_requests(
    held_tokens: float, input_tokens: float, output_tokens: float, *, max_requests: float | None = None
) -> float:
    """Return how many requests run at once if more requests wait.

    `held_tokens` are the tokens that the cache holds. `max_requests` is the engine's batch limit, None if it has none.
    """
    limit = inf if max_requests is None else max_requests
    return min(held_tokens / mean_context_tokens(input_tokens, output_tokens), limit)
