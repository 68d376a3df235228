"""Estimates which endpoints have a prompt's prefix in their cache, from a table that several threads may share.

A row of the table is a block of a prompt: its key, the time when it was last sent, and a bit for each endpoint that
received it. A key covers the block and all blocks before it. Every word is written at once, so threads that read and
write the same row see an old or a new word. At worst a hit is missed, or a hit is assumed that another block had.
"""

from typing import Annotated, Any, Final, NamedTuple

import numpy as np

from penstock.compiled.interface import exported_short
from penstock.compiled.marks import compiled
from penstock.compiled.tables import ArrayOf
from penstock.routing.records import Records

PREFIX_BLOCK: Final = np.dtype([("key", "i8"), ("sent_s", "f8")], align=True)
"""A block that was sent. The key 0 marks a free row."""
WAYS: Final = 8
"""Rows in which a key may be stored. If all of them are taken, the block that was sent least recently is replaced."""
HOLDERS_PER_WORD: Final = 32
_EXPIRY_S: Final = 600.0
"""Seconds after which a block that was not sent again counts as evicted from the endpoints' caches."""


class PrefixTable(NamedTuple):
    """The shared rows, and the blocks and hits of one request."""

    blocks: Annotated[Any, ArrayOf(PREFIX_BLOCK)]
    """A power of two of rows, at least WAYS."""
    holders: Annotated[Any, ArrayOf(np.int64, 2)]
    """For each row, one bit per endpoint, 32 in each word."""
    keys: Annotated[Any, ArrayOf(np.int64)]
    """Keys of the request's blocks, in the order of the prompt. A key is positive."""
    common: Annotated[Any, ArrayOf(np.int64)]
    """Scratch space, as long as a row of `holders`."""
    hits: Annotated[Any, ArrayOf(np.int64)]
    """Result: cached prompt tokens at each endpoint."""


@exported_short
def match_prefix(t: PrefixTable, count: int, tokens_per_block: float, max_tokens: int, now_s: float) -> None:
    """Write into `hits` how many tokens of the first `count` blocks each endpoint is expected to have cached."""
    for index in range(len(t.hits)):
        t.hits[index] = 0
    tokens = 0
    for number in range(count):
        place = _find(t.blocks, t.keys[number])
        known = place >= 0 and now_s - t.blocks[place]["sent_s"] <= _EXPIRY_S
        left = 0
        for word in range(len(t.common)):
            held = t.holders[place, word] if known else 0
            if number == 0:
                t.common[word] = held
            else:
                _fill(t.hits, word, t.common[word] & ~held, tokens)
                t.common[word] &= held
            left |= t.common[word]
        if left == 0:
            return
        tokens = min(int((number + 1) * tokens_per_block), max_tokens)
    for word in range(len(t.common) if count > 0 else 0):
        _fill(t.hits, word, t.common[word], tokens)


@exported_short
def add_prefix(t: PrefixTable, count: int, endpoint: int, now_s: float) -> None:
    """Record that the first `count` blocks were sent to an endpoint."""
    for number in range(count):
        key = t.keys[number]
        place = _find(t.blocks, key)
        new = place < 0
        if new:
            place = _oldest(t.blocks, key)
        if new or now_s - t.blocks[place]["sent_s"] > _EXPIRY_S:
            for word in range(len(t.common)):
                t.holders[place, word] = 0
        t.blocks[place]["key"] = key
        t.holders[place, endpoint // HOLDERS_PER_WORD] |= 1 << (endpoint % HOLDERS_PER_WORD)
        t.blocks[place]["sent_s"] = now_s


@compiled
def _first_way(blocks: Records, key: int) -> int:
    return int((key & (len(blocks) // WAYS - 1)) * WAYS)


@compiled
def _find(blocks: Records, key: int) -> int:
    first = _first_way(blocks, key)
    for place in range(first, first + WAYS):
        if blocks[place]["key"] == key:
            return place
    return -1


@compiled
def _oldest(blocks: Records, key: int) -> int:
    first = _first_way(blocks, key)
    best = first
    for place in range(first, first + WAYS):
        if blocks[place]["key"] == 0:
            return place
        if blocks[place]["sent_s"] < blocks[best]["sent_s"]:
            best = place
    return best


@compiled
def _fill(hits: Records, word: int, holders: int, tokens: int) -> None:
    """Write `tokens` into `hits` for the endpoints whose bits are set in one word."""
    index = word * HOLDERS_PER_WORD
    while holders != 0:
        if holders & 1:
            hits[index] = tokens
        holders >>= 1
        index += 1
