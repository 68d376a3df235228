"""The fast simulator agrees with a plain one that executes every step and keeps every block."""

import numpy as np
import pytest
from reference.engine import ReferenceResult, simulate as execute
from reference.scenarios import KINDS, Scenario, random_scenario

from penstock.performance.step_cost import EVERYTHING, StepCost
from penstock.simulation.outcome import Outcome
from penstock.simulation.replica import Pool, Replica
from penstock.simulation.run import Options, simulate
from penstock.workload import Prefixes, Requests

SCENARIOS = 270
WITHIN = 0.01


def as_requests(scenario: Scenario) -> Requests:
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


def as_pool(scenario: Scenario) -> Pool:
    settings, cost = scenario.settings, scenario.cost
    limits = tuple(EVERYTHING if np.isinf(limit) else int(limit) for limit in cost.limits)
    return Pool(
        name="one",
        replica=Replica(
            cost=StepCost(
                step_s=cost.step_s,
                decode_s=cost.decode_s,
                prefill_token_s=cost.prefill_token_s,
                expert_s=cost.expert_s,
                expert_miss=cost.expert_miss,
                limits=limits or (EVERYTHING,),
                context_s=cost.context_s or (0.0,),
                pair_s=cost.pair_s or (0.0,),
            ),
            kv_blocks=settings.num_blocks,
            block_tokens=settings.block_tokens,
            max_batched_tokens=settings.max_num_batched_tokens,
            max_sequences=settings.max_num_seqs,
            prefix_caching=settings.prefix_caching,
        ),
    )


def run_both(seed: int) -> tuple[Scenario, ReferenceResult, Outcome]:
    scenario = random_scenario(seed)
    slow = execute(scenario.requests, scenario.settings, scenario.cost, users=scenario.users)
    fast = simulate(
        [as_pool(scenario)], [as_requests(scenario)], options=Options(users=scenario.users, keep_requests=True)
    )
    return scenario, slow, fast
