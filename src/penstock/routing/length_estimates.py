"""Estimates answer lengths, and prompt lengths in tokens, from averages over past requests.

Answer lengths are averaged per SLO class and per power of two of the prompt length. If a power of two has few samples,
the estimate is mostly the average of the class. Prompts arrive as bytes. A ratio learned per class converts bytes into
tokens without a tokenizer.
"""

from typing import Final

import numpy as np

from penstock.compiled.marks import compiled
from penstock.routing.records import Record, Records

BUCKETS: Final = 24
"""Buckets per class: one per power of two of the prompt length; bucket 0 covers all lengths."""
_FEW: Final = 20.0
"""Number of samples at which a bucket's average has the same weight as the average of its class."""
_MEMORY: Final = 1000.0
"""Maximum number of samples in an average.

With more samples, older answers lose weight, so that the average adapts to new traffic.
"""

LENGTH: Final = np.dtype([("answers", "f8"), ("mean_tokens", "f8"), ("bytes_per_token", "f8")], align=True)


def new_lengths(classes: int, *, answer_tokens: float = 256.0, bytes_per_token: float = 4.0) -> Records:
    """Return a table without samples. Every class and prompt length has the same expected answer length."""
    lengths = np.zeros((classes, BUCKETS), LENGTH)
    lengths["mean_tokens"], lengths["bytes_per_token"] = answer_tokens, bytes_per_token
    return lengths


@compiled
def _bucket(input_tokens: int) -> int:
    place = 1
    while input_tokens > 1 and place < BUCKETS - 1:
        input_tokens >>= 1
        place += 1
    return place


@compiled
def expected_tokens(lengths: Records, slo_class: int, input_tokens: int, limit_tokens: int) -> int:
    """Return the expected answer length of a prompt in tokens, capped by the client's limit if there is one."""
    kind = min(max(slo_class, 0), lengths.shape[0] - 1)
    all_of, like_it = lengths[kind, 0], lengths[kind, _bucket(input_tokens)]
    share = like_it["answers"] / (like_it["answers"] + _FEW)
    tokens = max(1, round(share * like_it["mean_tokens"] + (1.0 - share) * all_of["mean_tokens"]))
    return int(min(tokens, limit_tokens) if limit_tokens > 0 else tokens)


@compiled
def saw_answer(lengths: Records, slo_class: int, input_tokens: int, output_tokens: int) -> None:
    """Update the averages with the length of a finished answer."""
    kind = min(max(slo_class, 0), lengths.shape[0] - 1)
    _average(lengths[kind, 0], output_tokens)
    _average(lengths[kind, _bucket(input_tokens)], output_tokens)


@compiled
def _average(entry: Record, output_tokens: int) -> None:
    entry["answers"] = min(entry["answers"] + 1.0, _MEMORY)
    entry["mean_tokens"] += (output_tokens - entry["mean_tokens"]) / entry["answers"]


@compiled
def tokens_of(lengths: Records, slo_class: int, prompt_bytes: int) -> int:
    """Estimate the number of tokens of a prompt from its number of bytes."""
    kind = min(max(slo_class, 0), lengths.shape[0] - 1)
    return int(max(1, round(prompt_bytes / lengths[kind, 0]["bytes_per_token"])))


@compiled
def saw_prompt(lengths: Records, slo_class: int, prompt_bytes: int, input_tokens: int) -> None:
    """Update the learned bytes per token with a prompt whose tokens an engine counted."""
    kind = min(max(slo_class, 0), lengths.shape[0] - 1)
    if input_tokens > 0 and prompt_bytes > 0:
        entry = lengths[kind, 0]
        entry["bytes_per_token"] += (prompt_bytes / input_tokens - entry["bytes_per_token"]) / _FEW
