"""Stores the length of every segment in one table that only grows, so that blocks share it without copies."""

import numpy as np

from penstock.errors import UsageError
from penstock.workload.requests import Int32s

_MAX_SEGMENTS = 2**31 - 1


class SegmentTable:
    """Segment lengths by id: 4 bytes per segment, at most doubled by spare capacity."""

    def __init__(self, tokens: Int32s) -> None:
        self._room = tokens.copy()
        self._count = len(tokens)

    def __len__(self) -> int:
        return self._count

    @property
    def tokens(self) -> Int32s:
        """The current table. A table given to a block does not change when segments are added."""
        return self._room[: self._count]

    def add(self, tokens: Int32s) -> None:
        """Append the lengths of new segments."""
        count = self._count + len(tokens)
        if count > _MAX_SEGMENTS:
            raise UsageError(f"more than {_MAX_SEGMENTS:,} shared segments; request fewer requests at a time")
        if count > len(self._room):
            room = np.empty(max(count, 2 * len(self._room)), np.int32)
            room[: self._count] = self.tokens
            self._room = room
        self._room[self._count : count] = tokens
        self._count = count
