"""Emulates the continuous batching of an engine, one step at a time.

The emulated engine uses the scheduling rules and step times of the simulator. A test checks that the emulated engine
and the simulator agree. In addition to the simulator's functions, the emulated engine reports each token and can abort
requests.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Final

from penstock.emulator.block_cache import BlockCache
from penstock.simulation.replica import Replica

_CLOCK_S: Final = 1e-9
"""Two times that differ by less are the same, as in the simulator."""


@dataclass(slots=True, eq=False, kw_only=True)
class EmulatedRequest:
    """One request in the emulated engine, and its progress."""

    input_tokens: int
    output_tokens: int
    keys: Sequence[int] = ()
    """Hash of each full block of the prompt. A hash depends on the block and on all blocks before it."""
    arrival_s: float = 0.0
    admitted_s: float | None = None
    first_s: float | None = None
    generated: int = 0
    computed: int = 0
    decoding: bool = False
    hit_tokens: int | None = None
    preemptions: int = 0
    block_keys: list[int] = field(default_factory=list)
    blocks: int = 0
    own_keys: dict[int, int] = field(default_factory=dict)
    """Keys of the request's blocks after the prompt.

    After a preemption, the request may find its blocks by these keys.
    """

    @property
    def tokens(self) -> int:
        """Number of tokens so far: prompt tokens and generated tokens."""
        return self.input_tokens + self.generated

    @property
    def finished(self) -> bool:
        """True once all output tokens are generated."""
        return self.generated >= self.output_tokens


@dataclass(slots=True)
class Totals:
    """Counters of an engine since its start, which the engine's metrics page publishes."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    hit_tokens: int = 0
    looked_up_tokens: int = 0
    preemptions: int = 0
    steps: int = 0


class EmulatedEngine:
    """Emulated engine of one replica. For each step, call `begin`, wait for the returned duration, and call `end`.

    With asynchronous scheduling, a step is scheduled when the previous one begins: requests that arrived since then are
    not seen, and requests that ended with the previous step keep their batch slots and blocks until it is scheduled.
    """

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.cache = BlockCache(replica.kv_blocks)
        self.waiting: deque[EmulatedRequest] = deque()
        self.running: list[EmulatedRequest] = []
        self.totals = Totals()
        self._scheduled: list[tuple[EmulatedRequest, int]] = []
        self._begun_s = 0.0

    @property
    def idle(self) -> bool:
        """True if no request is running or waiting."""
        return not self.running and not self.waiting

    def add(self, request: EmulatedRequest) -> None:
        """Append a request to the queue of waiting requests."""
        self.waiting.append(request)

    def remove(self, request: EmulatedRequest) -> None:
        """Remove an aborted request. The step that is running still takes the time for this request's tokens."""
        if request in self.running:
            self.running.remove(request)
            self._release(request)
        elif request in self.waiting:
            self.waiting.remove(request)

    def begin(self, now_s: float) -> float:
        """Schedule a step and return its duration in seconds, or 0 if no request can be computed."""
        self._scheduled = []
        preemptions = self.totals.preemptions
        seen_s = self._begun_s + _CLOCK_S if self.replica.asynchronous and self.running else inf
        self._begun_s = now_s
        budget = self._continue_running(self.replica.max_batched_tokens)
        if self.totals.preemptions == preemptions:
            self._admit(budget, now_s, seen_s)
        self._release_finished()
        if not self._scheduled:
            return 0.0
        contexts = tuple(one.computed for one, _ in self._scheduled if one.decoding)
        chunks = tuple((one.computed, one.computed + tokens) for one, tokens in self._scheduled if not one.decoding)
        return self.replica.cost.seconds(contexts, chunks)

    def end(self, now_s: float) -> list[EmulatedRequest]:
        """End the current step and return the requests that got a token in it."""
        self.totals.steps += 1
        advanced = []
        running = set(map(id, self.running))
        for request, tokens in self._scheduled:
            if id(request) not in running:
                continue
            request.computed += tokens
            if request.computed < request.tokens:
                continue
            request.decoding = True
            request.generated += 1
            self.totals.output_tokens += 1
            if request.first_s is None:
                request.first_s = now_s
                self.totals.prompt_tokens += request.input_tokens
            advanced.append(request)
        self._scheduled = []
        if not self.replica.asynchronous or (not self.waiting and all(one.finished for one in self.running)):
            self._release_finished()
        return advanced

    def _release_finished(self) -> None:
        for request in self.running:
            if request.finished:
                self._release(request)
        self.running = [request for request in self.running if not request.finished]

    def _continue_running(self, budget: int) -> int:
        turn = 0
        while turn < len(self.running) and budget > 0:
            request = self.running[turn]
            if request.finished:
                turn += 1
                continue
            tokens = min(request.tokens - request.computed, budget)
            if not self._make_room(request, tokens):
                break
            self._allocate(request, tokens)
            self._scheduled.append((request, tokens))
            budget -= tokens
            turn += 1
        return budget

    def _make_room(self, request: EmulatedRequest, tokens: int) -> bool:
        """Preempt requests from the end of the batch until `tokens` more tokens of `request` fit in the KV cache.

        Return False if `request` itself was preempted.
        """
        while self._blocks(request.computed + tokens) - request.blocks > self.cache.free:
            victim = self.running.pop()
            self._release(victim)
            victim.preemptions += 1
            self.totals.preemptions += 1
            if victim.finished:
                continue
            victim.computed, victim.decoding = 0, False
            self.waiting.appendleft(victim)
            if victim is request:
                return False
        return True

    def _admit(self, budget: int, now_s: float, seen_s: float) -> None:
        """Admit waiting requests that arrived until `seen_s`, in order.

        Stop at the first request whose tokens do not all fit in the KV cache.
        """
        while self.waiting and budget > 0 and len(self.running) < self.replica.max_sequences:
            request = self.waiting[0]
            if request.arrival_s > seen_s:
                break
            keys = self._reusable_keys(request)
            hit, idle = self.cache.find(keys)
            if self._blocks(request.tokens) - hit + idle > self.cache.free:
                break
            self.running.append(self.waiting.popleft())
            self.cache.hold(keys[:hit])
            request.block_keys, request.blocks = list(keys[:hit]), hit
            request.computed = hit * self.replica.block_tokens
            self._count_lookup(request)
            if request.admitted_s is None:
                request.admitted_s = now_s
            tokens = min(request.tokens - request.computed, budget)
            self._allocate(request, tokens)
            self._scheduled.append((request, tokens))
            budget -= tokens

    def _count_lookup(self, request: EmulatedRequest) -> None:
        if request.hit_tokens is None:
            request.hit_tokens = request.computed
            self.totals.hit_tokens += request.computed
            self.totals.looked_up_tokens += request.tokens

    def _reusable_keys(self, request: EmulatedRequest) -> Sequence[int]:
        """Return the keys of the cached blocks that a request may reuse.

        The last token of a request is always computed.
        """
        if not self.replica.prefix_caching:
            return ()
        full = (request.tokens - 1) // self.replica.block_tokens
        if not request.own_keys:
            return request.keys[:full]
        return [self._key(request, number) for number in range(full)]

    def _key(self, request: EmulatedRequest, number: int) -> int:
        if number < len(request.keys):
            return request.keys[number]
        return request.own_keys.setdefault(number, self.cache.own_key())

    def _allocate(self, request: EmulatedRequest, tokens: int) -> None:
        after = request.computed + tokens
        more = self._blocks(after) - request.blocks
        self.cache.allocate(more)
        request.blocks += more
        if self.replica.prefix_caching:
            for number in range(len(request.block_keys), after // self.replica.block_tokens):
                request.block_keys.append(self.cache.register(self._key(request, number)))

    def _release(self, request: EmulatedRequest) -> None:
        self.cache.release(request.block_keys, request.blocks - len(request.block_keys))
        request.block_keys, request.blocks = [], 0

    def _blocks(self, tokens: int) -> int:
        return ceil(tokens / self.replica.block_tokens)
