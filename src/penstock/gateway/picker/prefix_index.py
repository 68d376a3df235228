"""Estimates which endpoints have a prompt's prefix in their cache.

An index of block hashes records the blocks sent to each endpoint, and entries expire.
"""

from collections import OrderedDict
from typing import Final

import numpy as np

from penstock.routing.records import Records

BLOCK_BYTES: Final = 1024
"""Bytes per block, about 256 tokens.

A shared prefix should influence the choice of an endpoint only if it is longer than one block.
"""
_MAX_BLOCKS: Final = 64
"""Maximum number of blocks per prompt.

If a request body is longer, Envoy usually sends a picker only the part up to this maximum.
"""
_MAX_ENTRIES: Final = 200_000
_FEW: Final = 8
_EXPIRY_S: Final = 600.0
"""Seconds after which a block that was not sent again counts as evicted from the endpoints' caches."""


class PrefixIndex:
    """Index of block keys: for each block, the endpoints that received the block and the time when it was last sent."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def keys(self, body: bytes, start: int, name: str = "") -> list[int]:
        """Return a key for each full block of the prompt, which begins at the byte `start` of the body.

        A key depends on the block, on all blocks before it, and on the model or adapter `name`. Cached blocks of one
        adapter are of no use to another adapter.
        """
        keys, chain = [], hash(name)
        end = min(len(body), start + _MAX_BLOCKS * BLOCK_BYTES)
        for at in range(start, end - BLOCK_BYTES + 1, BLOCK_BYTES):
            chain = hash((chain, body[at : at + BLOCK_BYTES]))
            keys.append(chain)
        return keys

    def fill_hits(self, keys: list[int], hits: Records, tokens_per_block: float, now_s: float) -> None:
        """Write into `hits` how many tokens of the prompt's prefix each endpoint is expected to have cached."""
        hits[:] = 0
        holders, tokens = 0, 0
        for number, key in enumerate(keys):
            entry = self._blocks.get(key)
            mask = 0 if entry is None or now_s - entry[1] > _EXPIRY_S else entry[0]
            if number == 0:
                holders = mask
            elif lost := holders & ~mask:
                _fill(hits, lost, tokens)
                holders &= mask
            if not holders:
                return
            tokens = int((number + 1) * tokens_per_block)
        _fill(hits, holders, tokens)

    def add(self, keys: list[int], endpoint: int, now_s: float) -> None:
        """Record that a prompt's blocks were sent to an endpoint."""
        blocks, bit = self._blocks, 1 << endpoint
        for key in keys:
            entry = blocks.pop(key, None)
            old = entry is None or now_s - entry[1] > _EXPIRY_S
            blocks[key] = (bit if old or entry is None else entry[0] | bit, now_s)
        while len(blocks) > _MAX_ENTRIES:
            blocks.popitem(last=False)


def _fill(hits: Records, mask: int, tokens: int) -> None:
    """Write the value `tokens` into `hits` for every endpoint whose bit is set in `mask`."""
    if mask.bit_count() > _FEW:
        size = (len(hits) + 7) // 8
        bits = np.unpackbits(np.frombuffer(mask.to_bytes(size, "little"), np.uint8), bitorder="little")
        hits[bits[: len(hits)].view(bool)] = tokens
        return
    while mask:
        lowest = mask & -mask
        hits[lowest.bit_length() - 1] = tokens
        mask ^= lowest
