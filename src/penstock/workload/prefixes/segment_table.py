"""Stores the length of every prompt segment in one append-only table, which blocks of requests share without copies."""

import numpy as np

from penstock.errors import UsageError
from penstock.workload.requests import Int32s

_MAX_SEGMENTS = 2**31 - 1


class SegmentTable:
    """Table of segment lengths by segment id. It takes 4 bytes per segment, or up to 8 with spare capacity."""

    def __init__(self, tokens: Int32s) -> None:
        self._room = tokens.copy()
        self._count = len(tokens)

    def __len__(self) -> int:
        return self._count

    @property
    def tokens(self) -> Int32s:
        """The current table. Adding segments does not change a table that a block already has."""
        return self._room[: self._count]

    def add(self, tokens: Int32s) -> None:
        """Append the lengths of new segments."""
        count = self._count + len(tokens)
        if count > _MAX_SEGMENTS:
            limit = f"more than {_MAX_SEGMENTS:,} shared segments"
            raise UsageError(f"these requests have {limit}; generate fewer requests per call")
        if count > len(self._room):
            room = np.empty(max(count, 2 * len(self._room)), np.int32)
            room[: self._count] = self.tokens
            self._room = room
        self._room[self._count : count] = tokens
        self._count = count
