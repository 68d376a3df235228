"""What does an engine do that schedules a step before it knows the tokens of the last? Step by step, as vLLM 0.32.

Two batches are in flight (`EngineCore.step_with_batch_queue`): when one is done, the next is already running and the
one after it is scheduled, with what is known then. So newcomers and blocks that became free wait one step more, and a
request counts with a placeholder for the token it is about to get (`AsyncScheduler`).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from reference.engine import (
    Cost,
    ReferenceRequest,
    ReferenceResult,
    ReferenceSettings,
    Step,
    step_seconds,
)
from reference.engine import _check_tokens as check_tokens
from reference.engine import _Engine as Engine
from reference.engine import _refuse_what_never_fits as refuse_what_never_fits
from reference.engine import _Sequence as Sequenced


@dataclass(frozen=True, slots=True)
class Part:
    """What one request has in a batch."""

    sequence: Sequenced
    start: int
    tokens: int
    prefilling: bool
    samples: bool
    preemptions: int
    """How often it had been preempted when it was scheduled: more by now, and its placeholder is gone."""


class AsyncEngine(Engine):
    """The same scheduler, one step ahead of the tokens."""

    def __init__(self, settings: ReferenceSettings) -> None:
        super().__init__(settings)
        self.placeholders: dict[int, int] = {}

    def ahead(self) -> list[Part]:
        """Schedule a batch, and count its tokens as computed."""
        budget, preemptions = self.settings.max_num_batched_tokens, self.preemptions
        chosen: list[tuple[Sequenced, int]] = []
        turn = 0
        while turn < len(self.running) and budget > 0:
            sequence = self.running[turn]
            expected = sequence.generated + self._held(sequence)
            tokens = min(sequence.request.input_tokens + expected - sequence.computed, budget)
            # Its last token is on the way: nothing more is to be scheduled, but its blocks and its seat are still held.
            if expected >= sequence.request.output_tokens and self._held(sequence):
                turn += 1
                continue
            if not self._make_room(sequence, tokens):
                break
            self._allocate(sequence, tokens)
            chosen.append((sequence, tokens))
            budget -= tokens
            turn += 1
        if self.preemptions == preemptions:
            self._admit(chosen, budget)
        return [self._count(sequence, tokens) for sequence, tokens in chosen]

    def done(self, batch: Sequence[Part], now_s: float) -> int:
        """A batch is over: tokens become known, who is complete leaves. How many left."""
        left = 0
        for part in batch:
            sequence = part.sequence
            if not part.samples:
                continue
            sequence.generated += 1
            if sequence.generated == 1:
                sequence.first_token_s = now_s
            if part.preemptions == sequence.preemptions:
                self.placeholders[sequence.number] -= 1
                self._register(sequence, sequence.computed - self.placeholders[sequence.number])
            if sequence.finished:
                sequence.last_token_s = now_s
                if part.preemptions != sequence.preemptions:
                    self.lost_tokens -= sequence.tokens - 1  # it lost its blocks with its last token on the way
                self.pool.release(sequence.table)
                sequence.table = []
                left += 1
        self.running = [sequence for sequence in self.running if not sequence.finished]
        self.waiting = deque(sequence for sequence in self.waiting if not sequence.finished)
        return left

    def _held(self, sequence: Sequenced) -> int:
        return self.placeholders.get(sequence.number, 0)

    def _count(self, sequence: Sequenced, tokens: int) -> Part:
        start, prefilling = sequence.computed, sequence.prefilling
        sequence.computed += tokens
        self.computed_tokens += tokens
        samples = sequence.computed == sequence.tokens + self._held(sequence)
        if samples:
            self.placeholders[sequence.number] = self._held(sequence) + 1
            sequence.prefilling = False
        return Part(sequence, start, tokens, prefilling, samples, sequence.preemptions)

    def _preempt(self, victim: Sequenced) -> None:
        self.placeholders[victim.number] = 0
        super()._preempt(victim)

    def _allocate(self, sequence: Sequenced, tokens: int) -> None:
        after = sequence.computed + tokens
        sequence.table += self.pool.take_new(self._blocks(after) - len(sequence.table))
        self._register(sequence, min(after, sequence.tokens))

    def _register(self, sequence: Sequenced, tokens: int) -> None:
        """Full blocks of known tokens can be found from now on."""
        if not self.settings.prefix_caching or not sequence.table:
            return
        full = tokens // self.settings.block_tokens
        hashes = self._hashes_of(sequence, full)
        for number in range(sequence.registered, full):
            self.pool.register(sequence.table[number], hashes[number])
        sequence.registered = max(sequence.registered, full)


def simulate_ahead(
    requests: Sequence[ReferenceRequest], settings: ReferenceSettings, cost: Cost, *, users: int | None = None
) -> ReferenceResult:
    """Serve the requests with two batches in flight."""
    refuse_what_never_fits(requests, settings)
    engine = AsyncEngine(settings)
    sequences = [Sequenced(request, number, request.arrival_s) for number, request in enumerate(requests)]
    to_come = deque(sequences)
    idle_users = len(sequences) if users is None else users
    steps: list[Step] = []
    flying: deque[tuple[list[Part], float]] = deque()
    known_s = free_s = 0.0
    while to_come or engine.waiting or engine.running or flying:
        if users is None and not flying and not engine.waiting and not engine.running:
            known_s = max(known_s, to_come[0].arrival_s)
        while to_come and idle_users > 0 and (users is not None or to_come[0].arrival_s <= known_s):
            sequence = to_come.popleft()
            if users is not None:
                sequence.arrival_s = known_s
                idle_users -= 1
            engine.waiting.append(sequence)
        batch = engine.ahead()
        if batch:
            free_s = max(free_s, known_s)
            steps.append(_step(engine, cost, batch, free_s))
            free_s = steps[-1].end_s
            flying.append((batch, free_s))
        if flying and (len(flying) == 2 or not batch):
            batch, known_s = flying.popleft()
            left = engine.done(batch, known_s)
            idle_users += left if users is not None else 0
    check_tokens(engine, sequences)
    return ReferenceResult(
        outcomes=tuple(sequence.outcome() for sequence in sequences),
        steps=tuple(steps),
        preemptions=engine.preemptions,
        hit_tokens=engine.hit_tokens,
        computed_tokens=engine.computed_tokens,
        evictions=engine.pool.evictions,
        peak_used_blocks=max((step.used_blocks for step in steps), default=0),
    )


def _step(engine: AsyncEngine, cost: Cost, batch: Sequence[Part], start_s: float) -> Step:
    contexts = tuple(part.start for part in batch if not part.prefilling)
    chunks = tuple((part.start, part.start + part.tokens) for part in batch if part.prefilling)
    end_s = start_s + step_seconds(cost, contexts, chunks)
    return Step(start_s=start_s, end_s=end_s, contexts=contexts, chunks=chunks, used_blocks=engine.pool.num_used)
