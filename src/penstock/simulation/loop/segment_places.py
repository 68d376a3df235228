"""Assigns array places to shared prompt segments and reuses the places of segments that are no longer needed.

A place becomes free when no request holds or needs its segment and no replica caches the segment. The memory of the
simulation therefore grows with the KV caches, not with the length of the trace.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from penstock.simulation.loop.world import CACHED, NONE, SEGMENT, World
from penstock.workload import Prefixes

_ROOM = 4
"""The arrays are doubled if fewer than 1 / _ROOM of the places are free."""


class SegmentPlaces:
    """The array places of a workload's segments."""

    def __init__(self) -> None:
        self._place: dict[int, int] = {}
        self._free = [0]
        self._tokens = np.ones(1, np.int32)

    @property
    def size(self) -> int:
        """Number of places."""
        return len(self._tokens)

    def enter(self, world: World, prefixes: Prefixes, base: int) -> tuple[World, Prefixes]:
        """Give every segment in a block of requests a place.

        Return the block's prefixes with places instead of segment names.
        """
        own = prefixes.own[prefixes.own != NONE]
        names = np.unique(np.concatenate([prefixes.path, own]))
        new = [name for name in names.tolist() if name not in self._place]
        if len(new) > len(self._free):
            self._collect(world, base, names)
            if len(self._free) < max(len(new), world.segments.shape[1] // _ROOM):
                world = self._grow(world, len(new))
        taken = [self._free.pop() for _ in new]
        self._place.update(zip(new, taken, strict=True))
        world.cached[:, taken] = np.zeros(1, CACHED)
        places = np.array([self._place[name] for name in names.tolist()], np.int32)
        self._tokens[places] = prefixes.segment_tokens[names]
        renamed = np.where(prefixes.own == NONE, NONE, _among(names, places, prefixes.own))
        path = _among(names, places, prefixes.path)
        return world, replace(
            prefixes, segment_tokens=self._tokens.copy(), path=path, own=renamed.astype(prefixes.own.dtype)
        )

    def _collect(self, world: World, base: int, asked: NDArray[np.int32]) -> None:
        """Free the places of segments that are not cached, held, waited for, or about to be requested."""
        cached = world.cached
        live = ((cached["blocks"] > 0) | (cached["users"] > 0) | (cached["junk"] > 0)).any(axis=0)
        rows = np.arange(base, int(world.control[0]["loaded_rows"])) & (len(world.rows) - 1)
        leaves = world.rows["leaf"][rows]
        live[leaves[leaves != NONE]] = True
        live[[self._place[name] for name in asked.tolist() if name in self._place]] = True
        parents = world.segments["parent"][0]
        above = parents[live]
        while (above := np.unique(above[above != NONE])).size:
            # The ancestors of a live segment stay live.
            above = above[~live[above]]
            live[above] = True
            above = parents[above]
        self._place = {name: place for name, place in self._place.items() if live[place]}
        used = np.zeros(len(live), np.bool_)
        used[list(self._place.values())] = True
        self._free = np.flatnonzero(~used).tolist()

    def _grow(self, world: World, needed: int) -> World:
        known = world.segments.shape[1]
        size = max(known + needed, 2 * known)
        segments = np.zeros((world.segments.shape[0], size), SEGMENT)
        cached = np.zeros((len(world.replicas), size), CACHED)
        segments[:, :known], cached[:, :known] = world.segments, world.cached
        self._tokens = np.concatenate([self._tokens, np.ones(size - known, np.int32)])
        self._free += range(known, size)
        return world._replace(segments=segments, cached=cached)


def _among(names: NDArray[np.int32], places: NDArray[np.int32], wanted: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the array index of each segment name.

    An unknown name gets an arbitrary index, which the caller does not use.
    """
    if not names.size:
        return wanted
    return places[np.minimum(np.searchsorted(names, wanted), len(names) - 1)]
