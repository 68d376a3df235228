"""Represents shared prompts as a tree of segments, each with one parent and a length."""

from dataclasses import dataclass

import numpy as np

from penstock.workload.requests import NO_SEGMENT, Int32s, Int64s, Prefixes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SegmentTree:
    """A tree of segments by id.

    A request names only its last shared segment; the path leads from the root to that segment.
    """

    parent: Int32s
    """Parent id; -1 at a root. A parent may have a larger id than its child."""
    tokens: Int32s
    depth: Int32s
    """Number of segments on the path from the root to this segment; 1 at a root."""

    def __len__(self) -> int:
        return len(self.parent)

    def prefixes(self, last: Int32s, own: Int32s) -> Prefixes:
        """Return the prefixes of requests whose shared path ends at their `last` segment (-1: no path)."""
        path_start, path = spell_paths(self.parent, self.depth, last)
        return Prefixes(segment_tokens=self.tokens, path_start=path_start, path=path, own=own)


def spell_paths(parent: Int32s, depth: Int32s, last: Int32s) -> tuple[Int64s, Int32s]:
    """Return the path from the root to each node in `last`; -1 has no path.

    The first array has the start of each path in the second array, which joins all paths.
    """
    path_start = np.zeros(len(last) + 1, np.int64)
    rows = np.flatnonzero(last >= 0)
    node = last[rows]
    path_start[rows + 1] = depth[node]
    np.cumsum(path_start, out=path_start)
    path = np.empty(path_start[-1], np.int32)
    place = path_start[rows + 1] - 1
    while len(node):  # from the last node upwards, one level of all paths at a time
        path[place] = node
        node, place = parent[node], place - 1
        below_root = node >= 0
        node, place = node[below_root], place[below_root]
    return path_start, path


def grow_tree(parent: Int32s, tokens: Int32s) -> SegmentTree:
    """Build a tree from parents and lengths. Raise ValueError if parents form a cycle."""
    depth, ancestor = np.ones(len(parent), np.int32), parent.copy()
    for _ in range(len(parent).bit_length() + 1):  # each iteration doubles the distance to the ancestor
        below = np.flatnonzero(ancestor >= 0)
        if not len(below):
            return SegmentTree(parent=parent, tokens=tokens, depth=depth)
        depth[below] += depth[ancestor[below]]
        ancestor[below] = ancestor[ancestor[below]]
    raise ValueError("the parents of segments form a cycle")


def keep_rooted(ids: Int64s, parent_ids: Int64s) -> tuple[Int64s, Int32s, Int64s]:
    """Drop nodes with a missing ancestor; the parent of a root is -1. `ids` are ascending.

    Return the kept ids, the index of each parent among the kept ids (-1 at a root), and the index of each kept id in
    `ids`.
    """
    root, absent = len(ids), len(ids) + 1
    place = np.minimum(np.searchsorted(ids, parent_ids), max(root - 1, 0))
    known = ids[place] == parent_ids if len(ids) else np.zeros(0, np.bool_)
    upward = np.where(parent_ids < 0, root, np.where(known, place, absent))
    ancestor = np.append(upward, [root, absent])
    for _ in range(len(ids).bit_length() + 1):
        ancestor = ancestor[ancestor]
    kept = np.flatnonzero(ancestor[:root] == root)
    number = np.full(root + 2, NO_SEGMENT, np.int32)
    number[kept] = np.arange(len(kept))
    return ids[kept], number[upward[kept]], kept


def join_chains(parent: Int32s, tokens: Int64s, visits: Int64s) -> tuple[SegmentTree, Int32s]:
    """Merge each chain of nodes that the same requests visit into one segment.

    `visits` counts the requests whose path contains a node. If a node has as many visits as its parent, all requests
    that visit the parent also visit the node, so no path ends or branches between the two. Return the tree of merged
    segments and, for each node, the merged segment that contains the node.
    """
    if not len(parent):
        return grow_tree(parent, tokens.astype(np.int32)), parent
    joined = (parent >= 0) & (visits[parent] == visits)
    head = np.where(joined, parent, np.arange(len(parent)))
    while True:  # pointer jumping: the distance to the head of the run halves each time
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
