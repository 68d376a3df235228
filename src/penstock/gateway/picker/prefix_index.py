"""Indexes which endpoints hold a prompt's prefix, by block hashes that expire."""

from collections import OrderedDict
from typing import Final

import numpy as np

from penstock.routing.records import Records

BLOCK_BYTES: Final = 1024
"""Bytes per block, about 256 tokens: shorter than a prefix that is worth a detour to another endpoint."""
_MAX_BLOCKS: Final = 64
"""Maximum blocks per prompt: the part of a long prompt that Envoy shows."""
_MAX_ENTRIES: Final = 200_000
_FEW: Final = 8
_KEPT_S: Final = 600.0
"""Seconds after which a block that was not sent again counts as evicted."""


class PrefixIndex:
    """Index from chained block hashes to the endpoints that received the block, and the last time."""

    def __init__(self) -> None:
        self._seen: OrderedDict[int, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def keys(self, body: bytes, start: int, name: str = "") -> list[int]:
        """Return a key per block, chained over all blocks before it.

        `name` seeds the chain: cached blocks of one adapter are of no use to another.
        """
        keys, chain = [], hash(name)
        end = min(len(body), start + _MAX_BLOCKS * BLOCK_BYTES)
        for at in range(start, end - BLOCK_BYTES + 1, BLOCK_BYTES):
            chain = hash((chain, body[at : at + BLOCK_BYTES]))
            keys.append(chain)
        return keys

    def fill_hits(self, keys: list[int], hits: Records, tokens_per_block: float, now_s: float) -> None:
        """Write into `hits` how many prefix tokens each endpoint is expected to have cached."""
        hits[:] = 0
        having, tokens = 0, 0
        for number, key in enumerate(keys):
            found = self._seen.get(key)
            mask = 0 if found is None or now_s - found[1] > _KEPT_S else found[0]
            if number == 0:
                having = mask
            elif lost := having & ~mask:
                _fill(hits, lost, tokens)
                having &= mask
            if not having:
                return
            tokens = int((number + 1) * tokens_per_block)
        _fill(hits, having, tokens)

    def note(self, keys: list[int], endpoint: int, now_s: float) -> None:
        """Record that a prompt's blocks were sent to an endpoint."""
        seen, bit = self._seen, 1 << endpoint
        for key in keys:
            found = seen.pop(key, None)
            old = found is None or now_s - found[1] > _KEPT_S
            seen[key] = (bit if old or found is None else found[0] | bit, now_s)
        while len(seen) > _MAX_ENTRIES:
            seen.popitem(last=False)

    def forget(self) -> None:
        """Clear the index, for a fleet whose endpoint indices changed."""
        self._seen.clear()


def _fill(hits: Records, mask: int, tokens: int) -> None:
    """Write `tokens` for every endpoint in a bit mask."""
    if mask.bit_count() > _FEW:
        size = (len(hits) + 7) // 8
        bits = np.unpackbits(np.frombuffer(mask.to_bytes(size, "little"), np.uint8), bitorder="little")
        hits[bits[: len(hits)].view(bool)] = tokens
        return
    while mask:
        lowest = mask & -mask
        hits[lowest.bit_length() - 1] = tokens
        mask ^= lowest
