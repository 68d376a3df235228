"""What do data-parallel ranks do, step by step? As many plain schedulers, in lock-step where they share experts.

Who serves a request is vLLM's own choice (`DPLBAsyncMPClient.get_core_engine_for_request` of 0.32, with exact counts).
Ranks that share experts take every step together, without work of their own too (`DPEngineCoreProc.run_busy_loop`).
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from reference.engine import (
    Cost,
    ReferenceRequest,
    ReferenceSettings,
    RequestOutcome,
    step_seconds,
)
from reference.engine import _Engine as Engine
from reference.engine import _Sequence as Sequenced


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCost:
    """A step of ranks that share experts: what all do together, and what each does with its own tokens."""

    together: Cost
    """Its step, its experts, and per token of any rank what the experts take."""
    own: Cost


class Balancer:
    """Chooses a rank."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = engines
        self.turn = 0

    def place(self, sequence: Sequenced) -> int:
        """Queue a request where the load is least; the look starts one rank further each time."""
        order = [(self.turn + ahead) % len(self.engines) for ahead in range(len(self.engines))]
        self.turn += 1
        best = min(order, key=lambda rank: (self._load(self.engines[rank]), order.index(rank)))
        self.engines[best].waiting.append(sequence)
        return best

    def _load(self, engine: Engine) -> float:
        used = engine.pool.num_used / engine.settings.num_blocks
        return len(engine.running) + len(engine.waiting) * (1 + 6 * max(0.0, used - 0.5))


def simulate_together(
    requests: Sequence[ReferenceRequest],
    settings: ReferenceSettings,
    cost: RankCost,
    *,
    ranks: int,
    users: int | None = None,
) -> tuple[list[RequestOutcome], list[int], int]:
    """Serve requests on ranks in lock-step; returns what clients saw, which rank served whom, and how many steps."""
    engines = [Engine(settings) for _ in range(ranks)]
    balancer = Balancer(engines)
    sequences = [Sequenced(request, number, request.arrival_s) for number, request in enumerate(requests)]
    to_come, placed = deque(sequences), [-1] * len(sequences)
    idle_users, now_s, steps = users or 0, 0.0, 0

    def arrive(until_s: float) -> None:
        nonlocal idle_users
        while to_come and (idle_users > 0 if users is not None else to_come[0].arrival_s <= until_s):
            sequence = to_come.popleft()
            if users is not None:
                sequence.arrival_s = until_s
                idle_users -= 1
            placed[sequence.number] = balancer.place(sequence)

    while to_come or any(engine.waiting or engine.running for engine in engines):
        if users is None and not any(engine.waiting or engine.running for engine in engines):
            now_s = max(now_s, to_come[0].arrival_s)
        arrive(now_s)
        scheduled = [engine.schedule() for engine in engines]
        end_s = now_s + _seconds(cost, scheduled)
        steps += 1
        if users is None:
            arrive(end_s)
        for engine, batch in zip(engines, scheduled, strict=True):
            idle_users += engine.finish(batch, end_s)
        now_s = end_s
    return [sequence.outcome() for sequence in sequences], placed, steps


def _seconds(cost: RankCost, scheduled: Sequence[Sequence[tuple[Sequenced, int]]]) -> float:
    slowest, contexts, chunks = -math.inf, [], []
    for batch in scheduled:
        own_contexts = [sequence.computed for sequence, _ in batch if not sequence.prefilling]
        own_chunks = [(one.computed, one.computed + tokens) for one, tokens in batch if one.prefilling]
        slowest = max(slowest, step_seconds(cost.own, own_contexts, own_chunks))
        contexts += own_contexts
        chunks += own_chunks
    return slowest + step_seconds(cost.together, contexts, chunks)
