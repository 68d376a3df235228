"""Data-parallel ranks have queues and caches of their own; those that share experts step together."""

from dataclasses import replace

import numpy as np
import pytest

import penstock
from penstock.performance.step.step_cost import StepCost
from penstock.simulation.outcome import Outcome
from penstock.simulation.replica import Replica, ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options
from penstock.workload import Requests
from reference.engine import ReferenceCost, ReferenceRequest, ReferenceSettings
from reference.ranks import RankCost, simulate_together
from simulated import COST, conversation_lengths, pool, requests

RANKS = 4
DENSE = replace(
    COST,
    decode_s=COST.decode_s / RANKS,
    prefill_token_s=COST.prefill_token_s / RANKS,
    context_s=(COST.context_s[0] / RANKS,),
    pair_s=(COST.pair_s[0] / RANKS,),
    ranks=RANKS,
)
"""`COST` on each of four ranks that share nothing."""
SHARED = replace(
    DENSE, expert_s=0.004, expert_miss=0.97, experts_decode_s=1e-6, experts_prefill_token_s=2e-6, prompt_step_s=0.001
)


def ranked(cost: StepCost, *, kv_blocks: int = 8000, replicas: int = 1) -> ReplicaPool:
    return ReplicaPool(
        name="ranks", replica=Replica(cost=cost, kv_blocks=kv_blocks, prefix_caching=False), replicas=replicas
    )


def kept(fleet: ReplicaPool, sent: Requests, users: int | None = None) -> Outcome:
    return simulate([fleet], [sent], options=Options(users=users, keep_requests=True))


def test_a_prompt_runs_on_one_rank_however_many_there_are() -> None:
    one_user = requests([0.0], [(8000, 2)])
    alone, among_four = (simulate([one], [one_user]) for one in (pool(), ranked(DENSE)))
    assert among_four.classes[0].ttft.max_s == alone.classes[0].ttft.max_s
    # 12 ms and 8,000 tokens at 30 us, with 8,000² / 2 pairs at 1 ns: whole, on one rank.
    assert among_four.classes[0].ttft.max_s == pytest.approx(0.012 + 8000 * 3e-5 + 8000**2 / 2 * 1e-9)


def test_ranks_that_share_nothing_are_replicas_behind_the_engines_own_balancer() -> None:
    sent = conversation_lengths(3000, rate_per_s=30.0)
    apart = simulate([pool(replicas=RANKS)], [sent], options=Options(keep_requests=True))
    ranks = kept(replace(ranked(DENSE), replica=replace(pool().replica, cost=DENSE)), sent)
    assert apart.served is not None
    assert ranks.served is not None
    assert ranks.pools[0].output_tokens == apart.pools[0].output_tokens
    assert np.quantile(ranks.served.e2e_s, 0.5) == pytest.approx(np.quantile(apart.served.e2e_s, 0.5), rel=0.03)
    shares = np.bincount(ranks.served.replica, minlength=RANKS) / len(sent)
    assert shares.max() - shares.min() < 0.05


@pytest.mark.parametrize("users", [None, 24])
def test_ranks_in_lock_step_do_what_a_plain_model_of_them_does(users: int | None) -> None:
    rng = np.random.default_rng(5)
    arrivals = np.zeros(400) if users else np.cumsum(rng.exponential(1 / 12, 400))
    tokens = [(int(i), int(o)) for i, o in zip(rng.integers(1, 3000, 400), rng.integers(1, 200, 400), strict=True)]
    fast = kept(ranked(SHARED), requests(list(arrivals), tokens), users)
    own = SHARED.of_rank
    slow, placed, steps = simulate_together(
        [
            ReferenceRequest(arrival_s=float(at), input_tokens=ins, output_tokens=outs)
            for at, (ins, outs) in zip(arrivals, tokens, strict=True)
        ],
        ReferenceSettings(
            max_num_batched_tokens=8192, max_num_seqs=256, block_tokens=16, num_blocks=8000, prefix_caching=False
        ),
        RankCost(
            together=ReferenceCost(
                step_s=SHARED.step_s,
                decode_s=SHARED.experts_decode_s,
                prefill_token_s=SHARED.experts_prefill_token_s,
                prompt_step_s=SHARED.prompt_step_s,
                expert_s=SHARED.expert_s,
                expert_miss=SHARED.expert_miss,
            ),
            own=ReferenceCost(
                step_s=0.0,
                decode_s=own.decode_s,
                prefill_token_s=own.prefill_token_s,
                limits=own.limits,
                context_s=own.context_s,
                pair_s=own.pair_s,
            ),
        ),
        ranks=RANKS,
        users=users,
    )
    assert fast.served is not None
    assert fast.served.replica.tolist() == placed
    assert fast.served.ttft_s == pytest.approx([one.ttft_s for one in slow], abs=1e-7)
    assert fast.served.e2e_s == pytest.approx([one.e2e_s for one in slow], abs=1e-7)
    assert fast.pools[0].engine_steps == RANKS * steps


def test_a_rank_without_work_goes_along_and_a_newcomer_is_seen_at_the_next_step() -> None:
    outcome = kept(ranked(SHARED), requests([0.0, 0.5], [(100, 200), (100, 2)]))
    assert outcome.served is not None
    assert outcome.served.replica.tolist() == [0, 1]
    step_s = 0.012 + 2e-5 + 1e-6 + 0.004 + 300 * 3e-8
    assert outcome.served.ttft_s[1] <= 2 * step_s + 0.001 + 101 * 3e-5 + 0.004
    assert outcome.pools[0].busy_fraction == pytest.approx(1.0)


def test_an_even_load_takes_as_long_on_ranks_as_the_average_step_says() -> None:
    users = 8 * RANKS
    outcome = kept(ranked(SHARED), requests([0.0] * users, [(1, 400)] * users), users)
    contexts = tuple([200] * users)
    assert outcome.classes[0].tpot.mean_s == pytest.approx(SHARED.seconds(contexts), rel=0.01)


def test_a_request_must_fit_the_cache_of_one_rank() -> None:
    small = ranked(DENSE, kv_blocks=10)
    outcome = simulate([small], [requests([0.0, 0.0], [(100, 60), (100, 62)])])
    assert (outcome.requests, outcome.oversized) == (1, 1)


def test_engines_are_chosen_by_all_their_ranks_have() -> None:
    outcome = kept(ranked(SHARED, replicas=2), requests([0.0] * 8, [(100, 50)] * 8))
    assert outcome.served is not None
    assert sorted(outcome.served.replica.tolist()) == list(range(8))


def test_prompts_of_ranks_that_wait_for_each_other_are_computed_together() -> None:
    rng = np.random.default_rng(3)
    sent = requests([0.0] * 600, [(3000, int(tokens)) for tokens in rng.integers(100, 300, 600)])
    alone = ranked(SHARED)
    waiting = replace(alone, replica=replace(alone.replica, prompts_wait_steps=60))
    in_parallel, together = (simulate([one], [sent], options=Options(users=64)) for one in (alone, waiting))
    assert together.pools[0].prefill_tokens == in_parallel.pools[0].prefill_tokens
    # A step that carries one rank's prompt is as long as one that carries a prompt of each.
    assert together.makespan_s < 0.8 * in_parallel.makespan_s
    assert (together.classes[0].tpot.mean_s or 0.0) < 0.8 * (in_parallel.classes[0].tpot.mean_s or 0.0)


def test_a_prompt_does_not_wait_where_a_rank_has_nothing_else_to_do() -> None:
    alone = ranked(SHARED)
    waiting = replace(alone, replica=replace(alone.replica, prompts_wait_steps=60))
    sent = requests([0.0, 0.5], [(100, 200), (100, 2)])
    both = [kept(one, sent).served for one in (alone, waiting)]
    assert both[0] is not None
    assert both[1] is not None
    assert both[0].ttft_s.tolist() == both[1].ttft_s.tolist()


def simulated(
    model: str, accelerator: str, *, users: int, tokens: tuple[int, int], dp: int, ep: bool
) -> penstock.SimulateAnswer:
    return penstock.simulate(
        model,
        f"{accelerator}:8",
        users=users,
        requests=max(8, 4 * users),
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        dp=dp,
        ep=ep,
        engine="sglang",
    )


@pytest.mark.parametrize(
    ("model", "accelerator", "ep"),
    [("deepseek-r1", "h200_sxm", True), ("deepseek-r1", "mi355x", False), ("llama-3.1-70b", "mi300x", False)],
)
def test_ranks_decode_at_the_pace_that_is_predicted(model: str, accelerator: str, *, ep: bool) -> None:
    """Long answers, so that nearly every step is the even one of the closed form."""
    predicted = penstock.predict(
        model, f"{accelerator}:8", concurrency=64, input_tokens=16, output_tokens=4096, dp=8, ep=ep, engine="sglang"
    ).rows()[0]
    found = simulated(model, accelerator, users=64, tokens=(16, 4096), dp=8, ep=ep).rows()[0]
    assert found["tpot_s_p50"] == pytest.approx(predicted["tpot_s"], rel=0.03)


def test_more_ranks_do_not_make_one_users_prompt_faster() -> None:
    """A prompt of 8,192 tokens on one of eight ranks takes longer than on eight slices of every matrix."""
    ranks, slices = (
        simulated("deepseek-r1", "h200_sxm", users=1, tokens=(8192, 16), dp=dp, ep=dp > 1).scenarios[0].outcome
        for dp in (8, 1)
    )
    assert ranks is not None
    assert slices is not None
    assert ranks.classes[0].ttft.max_s > slices.classes[0].ttft.max_s
