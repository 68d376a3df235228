"""Short ways to say what is simulated."""

from collections.abc import Sequence
from io import StringIO

import numpy as np
from rich.console import Console

from penstock.api.answer import ApiAnswer
from penstock.model.sequence_mixers import EVERYTHING
from penstock.performance.step.step_cost import StepCost
from penstock.simulation.outcome import Outcome
from penstock.simulation.replica import Replica, ReplicaPool
from penstock.workload import Prefixes, Requests
from reference.scenarios import Scenario

COST = StepCost(step_s=0.012, decode_s=2e-5, prefill_token_s=3e-5, context_s=(3e-8,), pair_s=(1e-9,))
"""Of the order of an 8B model on one accelerator."""


def requests(
    arrival_s: Sequence[float], tokens: Sequence[tuple[int, int]], classes: Sequence[int] | None = None
) -> Requests:
    return Requests(
        arrival_s=np.array(arrival_s, np.float64),
        input_tokens=np.array([inputs for inputs, _ in tokens], np.int32),
        output_tokens=np.array([outputs for _, outputs in tokens], np.int32),
        slo_class=np.array(classes if classes is not None else [0] * len(tokens), np.uint8),
    )


def conversation_lengths(count: int, rate_per_s: float, seed: int = 0) -> Requests:
    """Poisson arrivals with lengths shaped like the Azure conversation trace: log-normal, 1,000 in and 200 out."""
    rng = np.random.default_rng(seed)
    return Requests(
        arrival_s=np.cumsum(rng.exponential(1 / rate_per_s, count)),
        input_tokens=np.clip(rng.lognormal(6.3, 1.2, count), 1, 8000).astype(np.int32),
        output_tokens=np.clip(rng.lognormal(4.9, 0.9, count), 1, 2000).astype(np.int32),
        slo_class=np.zeros(count, np.uint8),
    )


def pool(kv_blocks: int = 8000, cost: StepCost = COST, *, replicas: int = 1, name: str = "one") -> ReplicaPool:
    return ReplicaPool(name=name, replica=Replica(cost=cost, kv_blocks=kv_blocks), replicas=replicas)


def result_bytes(outcome: Outcome) -> bytes:
    """Return the bytes of what happened to each request, to compare two runs to the last bit."""
    served = outcome.served
    assert served is not None
    columns = (served.ttft_s, served.e2e_s, served.replica, served.waited_s, served.hit_tokens, served.preemptions)
    return b"".join(column.tobytes() for column in columns)


def scenario_requests(scenario: Scenario) -> Requests:
    """Say a reference scenario's requests in columns."""
    rows = scenario.requests
    starts = np.cumsum([0, *(len(row.path) for row in rows)])
    prefixes = Prefixes(
        segment_tokens=np.array(scenario.segment_tokens, np.int32),
        path_start=starts.astype(np.int64),
        path=np.array([segment for row in rows for segment, _ in row.path], np.int32),
        own=np.array([row.own for row in rows], np.int32),
    )
    return Requests(
        arrival_s=np.array([row.arrival_s for row in rows]),
        input_tokens=np.array([row.input_tokens for row in rows], np.int32),
        output_tokens=np.array([row.output_tokens for row in rows], np.int32),
        slo_class=np.zeros(len(rows), np.uint8),
        prefixes=prefixes if scenario.segment_tokens else None,
    )


def scenario_pool(scenario: Scenario) -> ReplicaPool:
    """Say a reference scenario's engine as a pool of one."""
    settings, cost = scenario.settings, scenario.cost
    limits = tuple(EVERYTHING if np.isinf(limit) else int(limit) for limit in cost.limits)
    replica = Replica(
        cost=StepCost(
            step_s=cost.step_s,
            decode_s=cost.decode_s,
            prefill_token_s=cost.prefill_token_s,
            prompt_step_s=cost.prompt_step_s,
            expert_s=cost.expert_s,
            expert_miss=cost.expert_miss,
            limits=limits or (EVERYTHING,),
            context_s=cost.context_s or (0.0,),
            pair_s=cost.pair_s or (0.0,),
            batch_factors=cost.batch_factors,
        ),
        kv_blocks=settings.num_blocks,
        block_tokens=settings.block_tokens,
        max_batched_tokens=settings.max_num_batched_tokens,
        max_sequences=settings.max_num_seqs,
        prefix_caching=settings.prefix_caching,
    )
    return ReplicaPool(name="one", replica=replica)


def drawn(answer: ApiAnswer) -> str:
    """What an answer looks like on a wide terminal, with its words one space apart."""
    console = Console(file=StringIO(), width=160, color_system=None)
    console.print(answer.render(160))
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
