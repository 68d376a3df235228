"""How long will an answer be, and how many tokens is a prompt? Learned from what was seen, never known.

Answers are averaged per class of requests and power of two of the prompt's length, and lean on the class's average
where few were seen. Prompts arrive as bytes; a ratio learned per class turns them into tokens without a tokeniser.
"""

from typing import Final

import numpy as np

from penstock.routing.policy_compiler import native
from penstock.routing.records import Record, Records

BUCKETS: Final = 24
"""Powers of two of a prompt's length told apart; the first place of a class is for all of them."""
_FEW: Final = 20.0
"""Answers of a bucket that weigh as much as the class."""
_MEMORY: Final = 1000.0
"""Answers after which older ones fade, so that a change of traffic is followed."""

LENGTH: Final = np.dtype([("answers", "f8"), ("mean_tokens", "f8"), ("bytes_per_token", "f8")], align=True)


def new_lengths(classes: int, *, answer_tokens: float = 256.0, bytes_per_token: float = 4.0) -> Records:
    """Return a table that has seen nothing and expects as many tokens of everybody."""
    lengths = np.zeros((classes, BUCKETS), LENGTH)
    lengths["mean_tokens"], lengths["bytes_per_token"] = answer_tokens, bytes_per_token
    return lengths


@native
def _bucket(input_tokens: int) -> int:
    place = 1
    while input_tokens > 1 and place < BUCKETS - 1:
        input_tokens >>= 1
        place += 1
    return place


@native
def expected_tokens(lengths: Records, slo_class: int, input_tokens: int, limit_tokens: int) -> int:
    """Return the answer to expect of a prompt; never more than the client allows, where it says."""
    kind = min(max(slo_class, 0), lengths.shape[0] - 1)
    all_of, like_it = lengths[kind, 0], lengths[kind, _bucket(input_tokens)]
    share = like_it["answers"] / (like_it["answers"] + _FEW)
    tokens = max(1, round(share * like_it["mean_tokens"] + (1.0 - share) * all_of["mean_tokens"]))
    return int(min(tokens, limit_tokens) if limit_tokens > 0 else tokens)


@native
def saw_answer(lengths: Records, slo_class: int, input_tokens: int, output_tokens: int) -> None:
    """Learn from an answer that ended."""
    kind = min(max(slo_class, 0), lengths.shape[0] - 1)
    _average(lengths[kind, 0], output_tokens)
    _average(lengths[kind, _bucket(input_tokens)], output_tokens)


@native
def _average(entry: Record, output_tokens: int) -> None:
    entry["answers"] = min(entry["answers"] + 1.0, _MEMORY)
    entry["mean_tokens"] += (output_tokens - entry["mean_tokens"]) / entry["answers"]


@native
def tokens_of(lengths: Records, slo_class: int, prompt_bytes: int) -> int:
    """Estimate a prompt's tokens from its bytes."""
    kind = min(max(slo_class, 0), lengths.shape[0] - 1)
    return int(max(1, round(prompt_bytes / lengths[kind, 0]["bytes_per_token"])))


@native
def saw_prompt(lengths: Records, slo_class: int, prompt_bytes: int, input_tokens: int) -> None:
    """Learn from a prompt whose tokens the engine counted."""
    kind = min(max(slo_class, 0), lengths.shape[0] - 1)
    if input_tokens > 0 and prompt_bytes > 0:
        entry = lengths[kind, 0]
        entry["bytes_per_token"] += (prompt_bytes / input_tokens - entry["bytes_per_token"]) / _FEW
