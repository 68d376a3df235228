"""An engine that schedules one step ahead of its tokens, against a plain one that executes every step.

The plain one, in turn, schedules exactly what vLLM 0.32.0's own AsyncScheduler does (tests/reference/against_vllm.py).
"""

from dataclasses import replace

import numpy as np
import pytest

from penstock.catalog import load_accelerator
from penstock.fleet.engines import engine_defaults
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options
from reference.asynchronous import simulate_ahead
from reference.engine import ReferenceCost, ReferenceRequest, ReferenceSettings
from reference.scenarios import random_scenario
from simulated import pool, requests, scenario_pool, scenario_requests

SEEDS = range(9, 117)
"""Not the first nine: where a block is one token, what is known of an answer is one block behind."""


def worst(seed: int) -> tuple[float, int, int]:
    """Largest difference of any request's times, and the preemptions of both."""
    scenario = random_scenario(seed)
    slow = simulate_ahead(scenario.requests, scenario.settings, scenario.cost, users=scenario.users)
    one = scenario_pool(scenario)
    fast = simulate(
        [replace(one, replica=replace(one.replica, asynchronous=True))],
        [scenario_requests(scenario)],
        options=Options(users=scenario.users, keep_requests=True),
    )
    assert fast.served is not None
    first = np.abs(fast.served.ttft_s - [item.ttft_s for item in slow.outcomes])
    last = np.abs(fast.served.e2e_s / [item.e2e_s for item in slow.outcomes] - 1)
    return float(max(first.max(), last.max())), slow.preemptions, fast.preemptions


def test_every_request_has_the_times_of_the_plain_model() -> None:
    found = [worst(seed) for seed in SEEDS if random_scenario(seed).settings.block_tokens > 1]
    assert len(found) > 70
    assert sum(preempted for _, preempted, _ in found) > 500
    # The rest are conversations in which a turn finds, or does not, the block its predecessor is about to fill.
    assert sum(difference < 1e-9 for difference, _, _ in found) >= 0.95 * len(found)
    assert sum(a for _, a, _ in found) == pytest.approx(sum(b for _, _, b in found), rel=0.01)


def test_who_comes_during_a_step_waits_for_the_one_after_it_too() -> None:
    cost = replace(pool().replica.cost, context_s=(0.0,), pair_s=(0.0,), decode_s=0.0, prefill_token_s=0.0, step_s=0.01)
    sent = requests([0.0, 0.105], [(10, 100), (10, 2)])
    for asynchronous, first_s in ((False, 0.005 + 0.01), (True, 0.005 + 0.01 + 0.01)):
        one = pool(cost=cost)
        outcome = simulate(
            [replace(one, replica=replace(one.replica, asynchronous=asynchronous))],
            [sent],
            options=Options(keep_requests=True),
        )
        assert outcome.served is not None
        assert outcome.served.ttft_s[1] == pytest.approx(first_s)
        assert outcome.served.ttft_s[0] == pytest.approx(0.01)


def test_an_engine_without_work_begins_at_once() -> None:
    one = pool()
    ahead = replace(one, replica=replace(one.replica, asynchronous=True))
    sent = requests([0.0, 50.0], [(100, 3), (100, 3)])
    both = [simulate([item], [sent], options=Options(keep_requests=True)).served for item in (one, ahead)]
    assert both[0] is not None
    assert both[1] is not None
    assert both[0].ttft_s.tolist() == both[1].ttft_s.tolist()


def test_blocks_of_who_ended_are_free_one_step_later() -> None:
    cost = ReferenceCost(step_s=0.01)
    sent = (
        ReferenceRequest(arrival_s=0.0, input_tokens=16, output_tokens=5),
        ReferenceRequest(arrival_s=0.0, input_tokens=16, output_tokens=50),
        ReferenceRequest(arrival_s=0.0, input_tokens=16, output_tokens=5),
    )
    settings = ReferenceSettings(
        max_num_batched_tokens=64, max_num_seqs=2, block_tokens=16, num_blocks=100, prefix_caching=False
    )
    slow = simulate_ahead(sent, settings, cost)
    # The first ends after five steps, the sixth is scheduled already: the third has its first token with the seventh.
    assert slow.outcomes[2].ttft_s == pytest.approx(0.07)


@pytest.mark.parametrize(("version", "ahead"), [("0.13.0", False), ("0.14.0", True), ("0.32.0", True)])
def test_it_is_on_where_the_release_has_it_on(version: str, *, ahead: bool) -> None:
    assert engine_defaults("vllm", load_accelerator("h100_sxm"), version=version).schedules_ahead is ahead
    assert not engine_defaults("sglang", load_accelerator("h100_sxm")).schedules_ahead
