"""Which prompt begins like which other? A tree of segments: every segment has one parent and a length."""

from dataclasses import dataclass

import numpy as np

from penstock.workload.requests import NO_SEGMENT, Int32s, Int64s, Prefixes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SegmentTree:
    """Segments by id. A request names only the last segment it begins with; the ancestors are its path."""

    parent: Int32s
    """-1 at a root. A parent may have a larger id than its child."""
    tokens: Int32s
    depth: Int32s
    """Segments on the path that ends here: 1 at a root."""

    def __len__(self) -> int:
        return len(self.parent)

    def prefixes(self, last: Int32s, own: Int32s) -> Prefixes:
        """Spell out the paths of requests that begin with everything down to their `last` segment (-1: nothing)."""
        lengths = np.where(last >= 0, self.depth[last], 0) if len(self) else np.zeros(len(last), np.int64)
        path_start = np.zeros(len(last) + 1, np.int64)
        np.cumsum(lengths, out=path_start[1:])
        path = np.empty(path_start[-1], np.int32)
        # From the last segment upwards, one level of all paths at a time.
        rows = np.flatnonzero(last >= 0)
        segment, place = last[rows], path_start[rows + 1] - 1
        while len(segment):
            path[place] = segment
            segment, place = self.parent[segment], place - 1
            below_root = segment >= 0
            segment, place = segment[below_root], place[below_root]
        return Prefixes(segment_tokens=self.tokens, path_start=path_start, path=path, own=own)


def grow_tree(parent: Int32s, tokens: Int32s) -> SegmentTree:
    """Make a tree of parents and lengths; parents that go in a circle are an error."""
    depth = np.ones(len(parent), np.int32)
    ancestor = parent.copy()
    for _ in range(len(parent) + 1):
        below = np.flatnonzero(ancestor >= 0)
        if not len(below):
            return SegmentTree(parent=parent, tokens=tokens, depth=depth)
        depth[below] += 1
        ancestor[below] = parent[ancestor[below]]
    raise ValueError("segments follow each other in a circle")


def join_chains(parent: Int32s, tokens: Int64s, visits: Int64s) -> tuple[SegmentTree, Int32s]:
    """Make one segment of a run of nodes that every visitor passes together.

    `visits` counts the requests whose path contains a node. A node with as many visits as its parent is passed by all
    of the parent's visitors, so nothing ever ends or branches between them. Returns the tree of joined segments and,
    for each node, the segment it became part of.
    """
    if not len(parent):
        return grow_tree(parent, tokens.astype(np.int32)), parent
    joined = (parent >= 0) & (visits[parent] == visits)
    head = np.where(joined, parent, np.arange(len(parent)))
    while True:  # Pointer jumping: the distance to the head of the run halves each time.
        further = head[head]
        if (further == head).all():
            break
        head = further
    heads = np.flatnonzero(~joined)
    segment_of_node = np.searchsorted(heads, head).astype(np.int32)
    above = parent[heads]
    parent_segment = np.where(above >= 0, segment_of_node[above], NO_SEGMENT).astype(np.int32)
    length = np.bincount(segment_of_node, weights=tokens, minlength=len(heads)).astype(np.int32)
    return grow_tree(parent_segment, length), segment_of_node
