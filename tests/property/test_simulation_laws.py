"""Laws of the simulator: nothing is lost, and only ratios of times matter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.performance.step.step_cost import StepCost
from penstock.simulation.replica import Replica, ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options
from penstock.workload import Requests

COST = StepCost(
    step_s=0.01,
    decode_s=1e-4,
    prefill_token_s=2e-5,
    expert_s=0.005,
    expert_miss=0.97,
    limits=(40, 2**62),
    context_s=(1e-7, 1e-7),
    pair_s=(1e-9, 1e-9),
)


@st.composite
def traffic(draw: st.DrawFn) -> Requests:
    count = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return Requests(
        arrival_s=np.cumsum(rng.exponential(draw(st.floats(0.001, 1.0)), count)),
        input_tokens=rng.integers(1, 200, count).astype(np.int32),
        output_tokens=rng.integers(1, 60, count).astype(np.int32),
        slo_class=np.zeros(count, np.uint8),
    )


@st.composite
def engines(draw: st.DrawFn) -> Replica:
    block = draw(st.sampled_from((1, 4, 16)))
    batched = draw(st.integers(8, 300))
    return Replica(
        cost=COST,
        kv_blocks=draw(st.integers(-(-260 // block), -(-2000 // block))),
        block_tokens=block,
        max_batched_tokens=batched,
        max_sequences=draw(st.integers(1, min(32, batched))),
        prefix_caching=draw(st.booleans()),
    )


@settings(max_examples=150, deadline=None)
@given(sent=traffic(), replica=engines(), replicas=st.integers(1, 3), users=st.none() | st.integers(1, 20))
def test_every_request_finishes_with_all_its_tokens(
    sent: Requests, replica: Replica, replicas: int, users: int | None
) -> None:
    outcome = simulate(
        [ReplicaPool(name="a", replica=replica, replicas=replicas)],
        [sent],
        options=Options(users=users, keep_requests=True),
    )
    pool, served = outcome.pools[0], outcome.served
    assert served is not None
    assert outcome.requests == len(sent) == pool.finished
    assert pool.output_tokens == int(sent.output_tokens.sum())
    assert 0 <= pool.kv_peak_fraction <= 1
    assert (served.ttft_s > 0).all()
    assert (served.e2e_s >= served.ttft_s).all()
    computed = int(sent.input_tokens.sum()) - pool.hit_tokens
    assert pool.prefill_tokens >= computed
    if not pool.preemptions:
        assert pool.prefill_tokens == computed


@settings(max_examples=60, deadline=None)
@given(sent=traffic(), replica=engines(), factor=st.sampled_from((0.25, 0.5, 2.0, 8.0)))
def test_a_clock_that_runs_faster_changes_nothing_else(sent: Requests, replica: Replica, factor: float) -> None:
    stretched = Requests(
        arrival_s=sent.arrival_s * factor,
        input_tokens=sent.input_tokens,
        output_tokens=sent.output_tokens,
        slo_class=sent.slo_class,
    )
    slower = Replica(
        cost=replica.cost.scaled(factor),
        kv_blocks=replica.kv_blocks,
        block_tokens=replica.block_tokens,
        max_batched_tokens=replica.max_batched_tokens,
        max_sequences=replica.max_sequences,
        prefix_caching=replica.prefix_caching,
    )
    keep = Options(keep_requests=True)
    first = simulate([ReplicaPool(name="a", replica=replica)], [sent], options=keep)
    second = simulate([ReplicaPool(name="a", replica=slower)], [stretched], options=keep)
    assert first.served is not None
    assert second.served is not None
    assert second.served.e2e_s == pytest.approx(first.served.e2e_s * factor, rel=1e-9)
    assert second.preemptions == first.preemptions


CLIENTS = st.tuples(st.floats(1.0, 4.0), st.floats(0.0, 0.5))
"""First tokens as clients see them over the engine's, and seconds of a request outside of it."""


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    users=st.integers(1, 200),
    think_s=st.floats(0.2, 20.0),
    replicas=st.integers(1, 4),
    tokens=st.tuples(st.integers(1, 2000), st.integers(1, 100)),
    seed=st.integers(0, 2**32),
    beyond=CLIENTS,
)
def test_users_are_as_many_as_think_and_wait(
    users: int, think_s: float, replicas: int, tokens: tuple[int, int], seed: int, beyond: tuple[float, float]
) -> None:
    """Little's law of a closed loop: N = X (R + Z), whatever the load, with answers as clients see them."""
    count = 40_000  # of 12,000 exponential pauses the mean may be off by 3% itself
    sent = Requests(
        arrival_s=np.zeros(count),
        input_tokens=np.full(count, tokens[0], np.int32),
        output_tokens=np.full(count, tokens[1], np.int32),
        slo_class=np.zeros(count, np.uint8),
    )
    replica = Replica(cost=COST, kv_blocks=3000, first_ratio=beyond[0], request_s=beyond[1])
    fleet = ReplicaPool(name="a", replica=replica, replicas=replicas)
    options = Options(users=users, think_s=think_s, spread_s=think_s, seed=seed, keep_requests=True)
    served = simulate([fleet], [sent], options=options).served
    assert served is not None
    inside = slice(2 * users, count - 2 * users)
    answer_s = served.e2e_s[inside].mean()
    rate = len(served.e2e_s[inside]) / (served.arrival_s[inside.stop] - served.arrival_s[inside.start])
    assert rate * (answer_s + think_s) == pytest.approx(users, rel=0.03)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    users=st.integers(1, 60),
    pools=st.lists(st.tuples(CLIENTS, st.integers(1, 2)), min_size=1, max_size=3),
    ahead=st.booleans(),
    prompts=st.integers(1, 4000),
    answers=st.integers(1, 60),
    seed=st.integers(0, 2**32),
)
def test_whoever_does_not_think_always_waits_for_an_answer(
    users: int, pools: list[tuple[tuple[float, float], int]], *, ahead: bool, prompts: int, answers: int, seed: int
) -> None:
    """N = X R without pauses, with lengths of every kind, in fleets whose clients see tokens more or less late."""
    count, rng = 60 * users + 600, np.random.default_rng(seed)
    sent = Requests(
        arrival_s=np.zeros(count),
        input_tokens=rng.integers(1, prompts, count, endpoint=True).astype(np.int32),
        output_tokens=rng.integers(1, answers, count, endpoint=True).astype(np.int32),
        slo_class=np.zeros(count, np.uint8),
    )
    fleet = [
        ReplicaPool(
            name=str(index),
            replica=Replica(cost=COST, kv_blocks=3000, asynchronous=ahead, first_ratio=ratio, request_s=request_s),
            replicas=replicas,
        )
        for index, ((ratio, request_s), replicas) in enumerate(pools)
    ]
    served = simulate(fleet, [sent], options=Options(users=users, seed=seed, keep_requests=True)).served
    assert served is not None
    assert (np.diff(served.arrival_s) >= 0).all()
    ends_s = np.sort(served.arrival_s + served.e2e_s)
    assert served.arrival_s[users:] == pytest.approx(ends_s[: count - users], rel=1e-9)
    inside = slice(2 * users, count - 2 * users)
    rate = len(served.e2e_s[inside]) / (served.arrival_s[inside.stop] - served.arrival_s[inside.start])
    assert rate * served.e2e_s[inside].mean() == pytest.approx(users, rel=0.03)
