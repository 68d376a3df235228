"""What does one engine do, step by step? A plain model of vLLM 0.32's scheduler, the yardstick of the fast simulator.

Every step is executed, every block is an object, every second is a sum over the requests of the step. The rules are
those of `vllm/v1/core/sched/scheduler.py`, `kv_cache_manager.py` and `block_pool.py` without asynchronous scheduling.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from reference.kv_blocks import Block, BlockPool, ContentHashes, Token


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRequest:
    """One request; its prompt begins with the segments of `path`, the rest is its own or becomes segment `own`."""

    arrival_s: float
    input_tokens: int
    output_tokens: int
    path: tuple[tuple[int, int], ...] = ()
    own: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSettings:
    """What an operator sets; `num_blocks` are the usable ones (vLLM keeps one more as its null block)."""

    max_num_batched_tokens: int
    max_num_seqs: int
    block_tokens: int
    num_blocks: int
    prefix_caching: bool = True

    def __post_init__(self) -> None:
        if self.max_num_seqs > self.max_num_batched_tokens:
            raise ValueError("max_num_seqs must not exceed max_num_batched_tokens")


class Cost(Protocol):
    """The terms of a step's seconds."""

    @property
    def step_s(self) -> float: ...
    @property
    def decode_s(self) -> float: ...
    @property
    def prefill_token_s(self) -> float: ...
    @property
    def prompt_step_s(self) -> float: ...
    @property
    def expert_s(self) -> float: ...
    @property
    def expert_miss(self) -> float: ...
    @property
    def limits(self) -> tuple[float, ...]: ...
    @property
    def context_s(self) -> tuple[float, ...]: ...
    @property
    def pair_s(self) -> tuple[float, ...]: ...
    @property
    def batch_factors(self) -> tuple[float, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCost:
    """A cost of its own, so that the reference needs nothing from the code it checks."""

    step_s: float
    decode_s: float = 0.0
    prefill_token_s: float = 0.0
    prompt_step_s: float = 0.0
    expert_s: float = 0.0
    expert_miss: float = 1.0
    limits: tuple[float, ...] = ()
    context_s: tuple[float, ...] = ()
    pair_s: tuple[float, ...] = ()
    batch_factors: tuple[float, ...] = ()
    """Factors on steps that decode 1, 2, 4 and more requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step computed: the KV length behind each decode, the positions [from, to) of each prefill chunk."""

    start_s: float
    end_s: float
    contexts: tuple[int, ...]
    chunks: tuple[tuple[int, int], ...]
    used_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """What one client saw; hits are those of its first admission. One output token has no time per output token."""

    arrival_s: float
    ttft_s: float
    e2e_s: float
    tpot_s: float | None
    prefix_hit_tokens: int
    preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceResult:
    """Outcomes in the order of the requests, and what the engine counted; hits here include resumed requests."""

    outcomes: tuple[RequestOutcome, ...]
    steps: tuple[Step, ...]
    preemptions: int
    hit_tokens: int
    computed_tokens: int
    evictions: int
    peak_used_blocks: int


@dataclass(slots=True, eq=False)
class _Sequence:
    """A request inside the engine."""

    request: ReferenceRequest
    number: int
    arrival_s: float
    generated: int = 0
    computed: int = 0
    prefilling: bool = True
    table: list[Block] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    registered: int = 0
    first_hit_tokens: int | None = None
    preemptions: int = 0
    first_token_s: float = math.nan
    last_token_s: float = math.nan

    @property
    def tokens(self) -> int:
        return self.request.input_tokens + self.generated

    @property
    def finished(self) -> bool:
        return self.generated == self.request.output_tokens

    def token(self, position: int) -> Token:
        """The content of a position: in a segment of the path, or in what the request adds to it."""
        offset = position
        for segment, length in self.request.path:
            if offset < length:
                return segment, offset
            offset -= length
        return (self.request.own if self.request.own >= 0 else ("request", self.number)), offset

    def outcome(self) -> RequestOutcome:
        outputs = self.request.output_tokens
        return RequestOutcome(
            arrival_s=self.arrival_s,
            ttft_s=self.first_token_s - self.arrival_s,
            e2e_s=self.last_token_s - self.arrival_s,
            tpot_s=(self.last_token_s - self.first_token_s) / (outputs - 1) if outputs > 1 else None,
            prefix_hit_tokens=self.first_hit_tokens or 0,
            preemptions=self.preemptions,
        )


def step_seconds(cost: Cost, contexts: Sequence[int], chunks: Sequence[tuple[int, int]]) -> float:
    """How long a step takes, term by term."""
    prefill_tokens = sum(end - start for start, end in chunks)
    seconds = cost.step_s + len(contexts) * cost.decode_s + prefill_tokens * cost.prefill_token_s
    seconds += cost.prompt_step_s if any(end - start > 1 for start, end in chunks) else 0.0
    seconds += cost.expert_s * (1 - cost.expert_miss ** (len(contexts) + prefill_tokens))
    for limit, context_s, pair_s in zip(cost.limits, cost.context_s, cost.pair_s, strict=True):
        seconds += context_s * sum(min(context, limit) for context in contexts)
        seconds += pair_s * sum(_pairs(end, limit) - _pairs(start, limit) for start, end in chunks)
    return seconds * _batch_factor(cost.batch_factors, len(contexts))


def _batch_factor(factors: tuple[float, ...], requests: int) -> float:
    """Walk up the doublings to the two entries around a batch, and go from one to the other by its logarithm."""
    if not factors or not requests:
        return 1.0
    low = min(requests.bit_length() - 1, len(factors) - 1)
    high = min(low + 1, len(factors) - 1)
    return factors[low] + (factors[high] - factors[low]) * (math.log2(requests) - low)


def _pairs(tokens: int, limit: float) -> float:
    """Query-key pairs of the first `tokens` positions when a query sees at most `limit` keys."""
    return tokens * tokens / 2 if tokens <= limit else limit * limit / 2 + limit * (tokens - limit)


class _Engine:
    """The scheduler and its blocks; one call of `schedule` and `finish` is one step."""

    def __init__(self, settings: ReferenceSettings) -> None:
        self.settings = settings
        self.pool = BlockPool(settings.num_blocks)
        self.waiting: deque[_Sequence] = deque()
        self.running: list[_Sequence] = []
        self.preemptions = 0
        self.hit_tokens = 0
        self.computed_tokens = 0
        self.lost_tokens = 0
        self._hashes = ContentHashes()

    def schedule(self) -> list[tuple[_Sequence, int]]:
        """Who computes how many tokens in this step: the running in order of admission, then the waiting."""
        scheduled: list[tuple[_Sequence, int]] = []
        budget = self.settings.max_num_batched_tokens
        preemptions_before = self.preemptions
        turn = 0
        while turn < len(self.running) and budget > 0:
            sequence = self.running[turn]
            tokens = min(sequence.tokens - sequence.computed, budget)
            if not self._make_room(sequence, tokens):
                break
            self._allocate(sequence, tokens)
            scheduled.append((sequence, tokens))
            budget -= tokens
            turn += 1
        if self.preemptions == preemptions_before:
            self._admit(scheduled, budget)
        return scheduled

    def finish(self, scheduled: Sequence[tuple[_Sequence, int]], now_s: float) -> int:
        """The step is over: who caught up has one more token, who is complete leaves. How many left."""
        left = 0
        for sequence, tokens in scheduled:
            sequence.computed += tokens
            self.computed_tokens += tokens
            if sequence.computed < sequence.tokens:
                continue
            sequence.prefilling = False
            sequence.generated += 1
            if sequence.generated == 1:
                sequence.first_token_s = now_s
            if sequence.finished:
                sequence.last_token_s = now_s
                self.pool.release(sequence.table)
                sequence.table = []
                left += 1
        self.running = [sequence for sequence in self.running if not sequence.finished]
        return left

    def _blocks(self, tokens: int) -> int:
        return math.ceil(tokens / self.settings.block_tokens)

    def _make_room(self, sequence: _Sequence, tokens: int) -> bool:
        """Preempt from the end of the running until the tokens fit; False when the request itself had to go."""
        while self._blocks(sequence.computed + tokens) - len(sequence.table) > self.pool.num_free:
            victim = self.running.pop()
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, victim: _Sequence) -> None:
        self.pool.release(victim.table)
        self.lost_tokens += victim.computed
        victim.table, victim.registered, victim.computed, victim.prefilling = [], 0, 0, True
        victim.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(victim)

    def _admit(self, scheduled: list[tuple[_Sequence, int]], budget: int) -> None:
        """First come, first served; the first that does not fit with its whole input stops the rest."""
        while self.waiting and budget > 0 and len(self.running) < self.settings.max_num_seqs:
            sequence = self.waiting[0]
            hit = self._hit(sequence)
            taken_from_queue = sum(block.references == 0 for block in hit)
            if self._blocks(sequence.tokens) - len(hit) + taken_from_queue > self.pool.num_free:
                break
            self.pool.take_found(hit)
            sequence.table, sequence.registered = hit, len(hit)
            sequence.computed = len(hit) * self.settings.block_tokens
            self.hit_tokens += sequence.computed
            if sequence.first_hit_tokens is None:
                sequence.first_hit_tokens = sequence.computed
            tokens = min(sequence.tokens - sequence.computed, budget)
            self._allocate(sequence, tokens)
            self.running.append(self.waiting.popleft())
            scheduled.append((sequence, tokens))
            budget -= tokens

    def _hit(self, sequence: _Sequence) -> list[Block]:
        """Full blocks found by content; the last token is always computed, it gives the next one."""
        if not self.settings.prefix_caching:
            return []
        return self.pool.longest_hit(self._hashes_of(sequence, (sequence.tokens - 1) // self.settings.block_tokens))

    def _allocate(self, sequence: _Sequence, tokens: int) -> None:
        """Blocks for the tokens of this step; full ones can be found from now on, also by who is admitted next."""
        after = sequence.computed + tokens
        sequence.table += self.pool.take_new(self._blocks(after) - len(sequence.table))
        if self.settings.prefix_caching:
            full = after // self.settings.block_tokens
            hashes = self._hashes_of(sequence, full)
            for number in range(sequence.registered, full):
                self.pool.register(sequence.table[number], hashes[number])
            sequence.registered = max(sequence.registered, full)

    def _hashes_of(self, sequence: _Sequence, blocks: int) -> list[int]:
        size = self.settings.block_tokens
        for number in range(len(sequence.hashes), blocks):
            tokens = tuple(sequence.token(position) for position in range(number * size, (number + 1) * size))
            parent = sequence.hashes[-1] if sequence.hashes else None
            sequence.hashes.append(self._hashes.of(parent, tokens))
        return sequence.hashes[:blocks]


def simulate(
    requests: Sequence[ReferenceRequest], settings: ReferenceSettings, cost: Cost, *, users: int | None = None
) -> ReferenceResult:
    """Serve the requests at their arrivals, or in a closed loop of users who take the next one when theirs is done."""
    _refuse_what_never_fits(requests, settings)
    engine = _Engine(settings)
    sequences = [_Sequence(request, number, request.arrival_s) for number, request in enumerate(requests)]
    to_come = deque(sequences)
    idle_users = len(sequences) if users is None else users
    steps: list[Step] = []
    now_s = 0.0
    while to_come or engine.waiting or engine.running:
        if users is None and not engine.waiting and not engine.running:
            now_s = max(now_s, to_come[0].arrival_s)
        while to_come and idle_users > 0 and (users is not None or to_come[0].arrival_s <= now_s):
            sequence = to_come.popleft()
            if users is not None:
                sequence.arrival_s = now_s
                idle_users -= 1
            engine.waiting.append(sequence)
        step, left = _step(engine, cost, now_s)
        steps.append(step)
        now_s = step.end_s
        if users is not None:
            idle_users += left
    _check_tokens(engine, sequences)
    return ReferenceResult(
        outcomes=tuple(sequence.outcome() for sequence in sequences),
        steps=tuple(steps),
        preemptions=engine.preemptions,
        hit_tokens=engine.hit_tokens,
        computed_tokens=engine.computed_tokens,
        evictions=engine.pool.evictions,
        peak_used_blocks=max((step.used_blocks for step in steps), default=0),
    )


def _step(engine: _Engine, cost: Cost, now_s: float) -> tuple[Step, int]:
    scheduled = engine.schedule()
    if not scheduled:
        raise AssertionError("requests wait or run, but a step has nothing to compute")
    engine.pool.check(sequence.table for sequence in engine.running)
    contexts = tuple(sequence.computed for sequence, _ in scheduled if not sequence.prefilling)
    chunks = tuple((one.computed, one.computed + tokens) for one, tokens in scheduled if one.prefilling)
    end_s = now_s + step_seconds(cost, contexts, chunks)
    used = engine.pool.num_used
    left = engine.finish(scheduled, end_s)
    return Step(start_s=now_s, end_s=end_s, contexts=contexts, chunks=chunks, used_blocks=used), left


def _refuse_what_never_fits(requests: Sequence[ReferenceRequest], settings: ReferenceSettings) -> None:
    """vLLM refuses at start-up a cache that cannot hold its longest request; the last token is never cached."""
    if any(later.arrival_s < earlier.arrival_s for earlier, later in pairwise(requests)):
        raise ValueError("requests must be ordered by arrival")
    for request in requests:
        if sum(tokens for _, tokens in request.path) > request.input_tokens:
            raise ValueError("a request's path is longer than its prompt")
        if request.input_tokens + request.output_tokens - 1 > settings.num_blocks * settings.block_tokens:
            raise ValueError("a request alone does not fit the KV cache")


def _check_tokens(engine: _Engine, sequences: Sequence[_Sequence]) -> None:
    """All outputs were made, all blocks came back, every token in the cache was computed, hit, or lost and redone."""
    if any(not sequence.finished for sequence in sequences) or engine.pool.num_used:
        raise AssertionError("a request is unfinished or a block is still held")
    cached = sum(sequence.request.input_tokens + sequence.request.output_tokens - 1 for sequence in sequences)
    if engine.computed_tokens + engine.hit_tokens != cached + engine.lost_tokens:
        raise AssertionError("computed and hit tokens are not what was cached and what preemption lost")
