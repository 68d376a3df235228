"""Which endpoints have seen the beginning of a prompt? Hashes of its blocks, forgotten with time."""

from collections import OrderedDict
from typing import Final

import numpy as np

from penstock.routing.records import Records

BLOCK_BYTES: Final = 1024
"""About 256 tokens: shorter than what is worth a detour."""
_MAX_BLOCKS: Final = 64
"""Of one prompt: what Envoy shows of a long one."""
_MAX_ENTRIES: Final = 200_000
_FEW: Final = 8
_KEPT_S: Final = 600.0
"""An endpoint that was not sent a block for so long is no longer believed to have it."""


class PrefixIndex:
    """Blocks of prompts by what comes before them, each with the endpoints it was sent to and when that was last."""

    def __init__(self) -> None:
        self._seen: OrderedDict[int, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def keys(self, body: bytes, start: int, name: str = "") -> list[int]:
        """Name a prompt's blocks, each with all before it; what an adapter computed is no other's."""
        keys, chain = [], hash(name)
        end = min(len(body), start + _MAX_BLOCKS * BLOCK_BYTES)
        for at in range(start, end - BLOCK_BYTES + 1, BLOCK_BYTES):
            chain = hash((chain, body[at : at + BLOCK_BYTES]))
            keys.append(chain)
        return keys

    def fill_hits(self, keys: list[int], hits: Records, tokens_per_block: float, now_s: float) -> None:
        """Write how many tokens of a prompt each endpoint is believed to have."""
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
        """Remember that an endpoint was sent a prompt."""
        seen, bit = self._seen, 1 << endpoint
        for key in keys:
            found = seen.pop(key, None)
            old = found is None or now_s - found[1] > _KEPT_S
            seen[key] = (bit if old or found is None else found[0] | bit, now_s)
        while len(seen) > _MAX_ENTRIES:
            seen.popitem(last=False)

    def forget(self) -> None:
        """Start anew, where endpoints have other numbers."""
        self._seen.clear()


def _fill(hits: Records, mask: int, tokens: int) -> None:
    """Write a number for every endpoint of a mask."""
    if mask.bit_count() > _FEW:
        size = (len(hits) + 7) // 8
        bits = np.unpackbits(np.frombuffer(mask.to_bytes(size, "little"), np.uint8), bitorder="little")
        hits[bits[: len(hits)].view(bool)] = tokens
        return
    while mask:
        lowest = mask & -mask
        hits[lowest.bit_length() - 1] = tokens
        mask ^= lowest
