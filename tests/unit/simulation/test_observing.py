"""What a run reports of queues and caches is their mean over time, whatever leaps the simulator takes."""

import numpy as np
import pytest

from penstock.performance.step.step_cost import StepCost
from penstock.simulation.replica import Replica, ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options
from reference.engine import simulate as execute
from reference.scenarios import random_scenario
from simulated import conversation_lengths, pool, requests, scenario_pool, scenario_requests


def test_mean_kv_is_that_of_every_step_and_not_of_a_leap_s_first() -> None:
    """64 users, 16 tokens in and 1,000 out: at step k each holds the blocks of 16 + k tokens, 20.9% on average."""
    fixed = StepCost(step_s=0.01, decode_s=0.0, prefill_token_s=0.0)
    fleet = [ReplicaPool(name="one", replica=Replica(cost=fixed, kv_blocks=10_000, prefix_caching=False))]
    sent = requests([0.0] * 640, [(16, 1000)] * 640)
    outcome = simulate(fleet, [sent], options=Options(users=64))
    expected = sum(64 * -(-(16 + step) // 16) for step in range(1000)) / 1000 / 10_000
    assert outcome.pools[0].kv_mean_fraction == pytest.approx(expected, rel=1e-12)
    timeline = outcome.timelines["one"].kv_used_fraction
    peak = 64 * -(-1015 // 16) / 10_000
    assert 0.95 * peak < timeline.max() <= peak  # a column is a mean over its width
    assert timeline[:-1].mean() == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_mean_kv_agrees_with_the_reference_step_by_step(seed: int) -> None:
    scenario = random_scenario(seed)
    slow = execute(scenario.requests, scenario.settings, scenario.cost, users=scenario.users)
    fast = simulate([scenario_pool(scenario)], [scenario_requests(scenario)], options=Options(users=scenario.users))
    seconds = sum(step.end_s - step.start_s for step in slow.steps)
    used = sum(step.used_blocks * (step.end_s - step.start_s) for step in slow.steps) / seconds
    assert fast.pools[0].kv_mean_fraction == pytest.approx(used / scenario.settings.num_blocks, rel=0.02)


def test_little_s_law_holds_of_the_queue() -> None:
    """Requests in the queue on average are their rate times their wait."""
    sent = conversation_lengths(20_000, 4.0)
    outcome = simulate([pool(kv_blocks=20_000)], [sent], options=Options(keep_requests=True))
    served = outcome.served
    assert served is not None
    assert outcome.preemptions == 0
    waits_s = served.waited_s.sum()
    assert outcome.pools[0].mean_waiting == pytest.approx(waits_s / outcome.makespan_s, rel=1e-9)
    drawn = outcome.timelines["one"].waiting.sum() * outcome.timelines["one"].width_s
    assert drawn == pytest.approx(waits_s, rel=1e-9)
    assert outcome.pools[0].mean_waiting < len(sent) / outcome.makespan_s * served.ttft_s.mean()


def test_nearly_idle_replicas_share_the_work() -> None:
    sent = conversation_lengths(4_000, 4.0)
    outcome = simulate([pool(replicas=8)], [sent])
    finished = [replica.finished for replica in outcome.replicas]
    assert sum(finished) == 4_000
    assert min(finished) > 0.8 * 4_000 / 8


def test_outcomes_by_replica_add_up_to_their_pool_s() -> None:
    outcome = simulate([pool(replicas=3), pool(replicas=2, name="two")], [conversation_lengths(3_000, 30.0)])
    for one in outcome.pools:
        mine = [replica for replica in outcome.replicas if replica.pool == one.name]
        assert len(mine) == one.replicas
        assert sum(replica.finished for replica in mine) == one.finished
        assert sum(replica.output_tokens for replica in mine) == one.output_tokens
        assert np.mean([replica.busy_fraction for replica in mine]) == pytest.approx(one.busy_fraction)


def test_a_run_that_is_stopped_says_how_long_the_queue_was() -> None:
    sent = conversation_lengths(6_000, 400.0)
    outcome = simulate([pool()], [sent], options=Options(stop_waiting=2_000))
    assert outcome.saturation is not None
    assert outcome.saturation.stopped
    assert outcome.saturation.waiting > 2_000
    assert outcome.saturation.growth_per_s > 100
