"""Assigns requests to turns of open conversations, block by block, and keeps only open conversations in memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from penstock.errors import UsageError
from penstock.workload.prefixes.segment_table import SegmentTable
from penstock.workload.prefixes.tree import spell_paths
from penstock.workload.randomness import NATIVE_BLOCK, RandomStream, generator
from penstock.workload.requests import NO_SEGMENT, Int32s, Int64s, Prefixes
from penstock.workload.synthetic.sharing import MAX_ADDED_TOKENS, Conversations

Bools = NDArray[np.bool_]
_RADIX = 2**16
_MAX_OPEN = 2**24  # a round of turns is shuffled at once: about 20 bytes for each open conversation


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Block:
    """A native block sorted by slot, then by time, so that the turns of a conversation are adjacent."""

    slot: Int32s
    prompt: Int32s
    parting: Bools
    """Whether the user ends the conversation after this turn."""
    added: Int64s
    """Tokens that the turn adds to the conversation: the new part of the prompt, and the answer."""

    @property
    def first(self) -> Int64s:
        """First row of each slot."""
        return np.flatnonzero(np.diff(self.slot, prepend=np.int32(-1)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Followed:
    """The position of each request in its conversation."""

    start: Int64s
    """Index of the first row in this block that belongs to the same conversation."""
    turn: Int64s
    """Number of the turn within its conversation, counted from 1."""
    history_tokens: Int64s
    """Tokens of history at the beginning of the prompt."""
    closed: Bools
    """Whether this is the last turn."""


class Turns:
    """The conversations of one workload; each slot has one open conversation at a time.

    When a conversation ends, the next turn in the same slot starts a new conversation.
    """

    def __init__(self, sharing: Conversations, *, seed: int, slots: int, shuffled: bool) -> None:
        if slots > _MAX_OPEN:
            raise UsageError(
                f"{slots:,} conversations would be open at once, but the limit is {_MAX_OPEN:,}; lower turn_gap_s"
            )
        system = sharing.system
        prompts, self._system_tokens = (0, 0) if system is None else (system.prompts, system.tokens)
        self._sharing = sharing
        self._seed = seed
        self._rounds = _rounds(seed, slots, shuffled=shuffled)
        self._table = SegmentTable(np.full(prompts, self._system_tokens, np.int32))
        self._nodes = _Nodes(prompts)
        self._history_tokens = np.zeros(slots, np.int64)  # after a slot's last turn; 0 if a new conversation is due
        self._taken = np.zeros(slots, np.int64)  # turns so far in its conversation
        self._last = np.full(slots, NO_SEGMENT, np.int32)  # node of its last turn

    def extend(self, block: int, brought: Int32s, output_tokens: Int32s) -> tuple[Int32s, Prefixes]:
        """Prepend the history of the conversation to each new part of a prompt.

        Return the prompt lengths and the shared prefixes.
        """
        rng = generator(self._seed, RandomStream.SHARING, block)
        rows, system = len(brought), self._sharing.system
        prompt = np.full(rows, NO_SEGMENT, np.int32) if system is None else system.draw(rng, rows)
        parting = rng.random(rows) * self._sharing.mean_turns < 1
        brought = np.minimum(brought, MAX_ADDED_TOKENS)
        added = brought.astype(np.int64) + output_tokens
        slot = next(self._rounds)
        # 16-bit keys use radix sort, which is eight times as fast.
        order = np.argsort(slot.astype(np.uint16) if len(self._last) <= _RADIX else slot, kind="stable")
        turns = _Block(slot=slot[order], prompt=prompt[order], parting=parting[order], added=added[order])
        followed = self._follow(turns)
        input_tokens = np.empty(rows, np.int32)
        input_tokens[order] = followed.history_tokens + brought[order]
        return input_tokens, self._link(turns, followed, order)

    def _follow(self, turns: _Block) -> _Followed:
        """Find where conversations start and end, and the length of the history at each turn."""
        row, first, limit = np.arange(len(turns.slot)), turns.first, self._sharing.max_history_tokens
        carried = self._history_tokens[turns.slot[first]]
        opening = np.full(len(row), self._system_tokens, np.int64)
        opening[first] = np.where(carried > 0, carried, self._system_tokens)
        taken = np.zeros(len(row), np.int64)
        taken[first] = np.where(carried > 0, self._taken[turns.slot[first]], 0)
        reached = np.cumsum(turns.added)
        before = reached - turns.added
        # For a conversation that opened here, the row after its last turn: too long, too many turns, parting, or end of
        # block.
        too_long = np.maximum(np.searchsorted(reached, before + limit - opening), row) + 1
        too_many = row - taken + self._sharing.max_turns
        after_parting = np.append(np.flatnonzero(turns.parting) + 1, len(row))
        parting = np.repeat(after_parting, np.diff(after_parting, prepend=0))
        block_end = np.repeat(np.append(first[1:], len(row)), np.diff(first, append=len(row)))
        starts = _chain(np.minimum.reduce([too_long, too_many, parting, block_end]))
        start = np.repeat(starts, np.diff(starts, append=len(row)))
        history = opening[start] + before - before[start]
        turn = taken[start] + row - start + 1
        full = (history + turns.added >= limit) | (turn >= self._sharing.max_turns)
        return _Followed(start=start, turn=turn, history_tokens=history, closed=turns.parting | full)

    def _link(self, turns: _Block, followed: _Followed, order: Int64s) -> Prefixes:
        """Give every turn that is continued a segment, and every turn the path of its conversation's earlier turns."""
        rows, first = len(order), turns.first
        is_closed = np.empty(rows, np.bool_)
        is_closed[order] = followed.closed
        continued = np.flatnonzero(~is_closed)
        own = np.full(rows, NO_SEGMENT, np.int32)
        own[continued] = len(self._nodes) + np.arange(len(continued))
        own_sorted = own[order]
        last_sorted = np.concatenate([own_sorted[:1], own_sorted[:-1]])
        opens = followed.start == np.arange(rows)
        last_sorted[opens] = turns.prompt[opens]
        carries = first[self._history_tokens[turns.slot[first]] > 0]
        last_sorted[carries] = self._last[turns.slot[carries]]
        depth_sorted = self._nodes.depth_of(last_sorted[followed.start]) + np.arange(rows) - followed.start
        last, depth, added = np.empty_like(own), np.empty_like(own), np.empty(rows, np.int64)
        last[order], depth[order], added[order] = last_sorted, depth_sorted, turns.added
        self._nodes.add(last[continued], depth[continued] + 1, len(self._table))
        self._table.add(added[continued].astype(np.int32))
        prefixes = self._nodes.prefixes(last, own, self._table.tokens)
        self._remember(turns, followed, own_sorted)
        return prefixes

    def _remember(self, turns: _Block, followed: _Followed, own_sorted: Int32s) -> None:
        final = np.append(turns.first[1:], len(turns.slot)) - 1
        slot, closed = turns.slot[final], followed.closed[final]
        self._history_tokens[slot] = np.where(closed, 0, followed.history_tokens[final] + turns.added[final])
        self._taken[slot] = followed.turn[final]
        self._last[slot] = own_sorted[final]
        self._last = self._nodes.forget_all_but(self._last)


class _Nodes:
    """Tree of the turns of open conversations, with the system prompts as roots.

    Nodes are renumbered when old nodes are removed; segment ids never change.
    """

    def __init__(self, prompts: int) -> None:
        self._prompts = prompts
        self._parent = np.full(prompts, NO_SEGMENT, np.int32)
        self._depth = np.ones(prompts, np.int32)
        self._segment = np.arange(prompts, dtype=np.int32)
        self._kept = prompts

    def __len__(self) -> int:
        return len(self._parent)

    def depth_of(self, node: Int32s) -> Int32s:
        """Return the depth of each node: 1 for a root, 0 for the node number -1, which stands for no node."""
        if not len(self):
            return np.zeros(len(node), np.int32)
        return np.where(node >= 0, self._depth[node], 0).astype(np.int32)

    def add(self, parent: Int32s, depth: Int32s, first_segment: int) -> None:
        """Add nodes for the next segments."""
        segments = np.arange(first_segment, first_segment + len(parent), dtype=np.int32)
        self._parent = np.concatenate([self._parent, parent])
        self._depth = np.concatenate([self._depth, depth])
        self._segment = np.concatenate([self._segment, segments])

    def prefixes(self, last: Int32s, own: Int32s, segment_tokens: Int32s) -> Prefixes:
        """Return the shared prefixes of requests.

        `last` is the node at which a request's shared path ends, and `own` is the node of the request itself.
        """
        path_start, path = spell_paths(self._parent, self._depth, last)
        segments = np.full(len(own), NO_SEGMENT, np.int32)
        segments[own >= 0] = self._segment[own[own >= 0]]
        return Prefixes(segment_tokens=segment_tokens, path_start=path_start, path=self._segment[path], own=segments)

    def forget_all_but(self, last: Int32s) -> Int32s:
        """Remove nodes that are not on a path to a node in `last`, if enough nodes have accumulated.

        Return the new numbers of the nodes in `last`. System prompts are always kept.
        """
        if len(self) < 2 * self._kept + 4 * NATIVE_BLOCK:
            return last
        needed = np.zeros(len(self), np.bool_)
        needed[: self._prompts] = True
        node = last[last >= 0]
        while len(node):
            needed[node] = True
            node = self._parent[node]
            node = node[node >= 0]
        number = np.append(np.cumsum(needed) - 1, NO_SEGMENT).astype(np.int32)  # -1 indexes the -1 at the end
        self._parent = number[self._parent[needed]]
        self._depth, self._segment = self._depth[needed], self._segment[needed]
        self._kept = len(self)
        return number[last]


def _chain(following: Int64s) -> Int64s:
    """Return 0, following[0], following[following[0]] and so on.

    There is one step per conversation, not per request.
    """
    steps, at = following.tolist(), 0
    starts = []
    while at < len(steps):
        starts.append(at)
        at = steps[at]
    return np.array(starts, np.int64)


def _rounds(seed: int, slots: int, *, shuffled: bool) -> Iterator[Int32s]:
    """Yield the conversation slot of each turn, one native block at a time.

    A round contains every slot once. If `shuffled` is true, each half of a round is shuffled separately.
    """
    half, held = slots // 2, np.empty(0, np.int32)
    for chunk in count():
        turns = np.tile(np.arange(slots, dtype=np.int32), (-(-NATIVE_BLOCK // slots), 1))
        if shuffled and half:
            keys = generator(seed, RandomStream.ROUNDS, chunk).random(turns.shape)
            turns[:, :half] = np.argsort(keys[:, :half], axis=1)
            turns[:, half:] = half + np.argsort(keys[:, half:], axis=1)
        held = np.concatenate([held, turns.ravel()])
        whole = len(held) - len(held) % NATIVE_BLOCK
        yield from held[:whole].reshape(-1, NATIVE_BLOCK)
        held = held[whole:]
