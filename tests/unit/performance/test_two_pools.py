"""Laws of two pools in the long run, and that the simulator says the same."""

from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.performance.disaggregated.steady_state import PoolsDemand, Steady, TwoPools, steady
from penstock.performance.step.step_cost import StepCost
from penstock.simulation.replica import Replica, ReplicaPool, Transfer
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options
from penstock.workload import Requests

PREFILL = StepCost(
    step_s=0.02,
    decode_s=1e-4,
    prefill_token_s=2e-5,
    expert_s=0.01,
    expert_miss=0.97,
    context_s=(1e-8,),
    pair_s=(1e-9,),
)
DECODE = StepCost(
    step_s=0.006, decode_s=5e-5, prefill_token_s=2e-5, expert_s=0.006, expert_miss=0.97, context_s=(5e-9,)
)
POOLS = TwoPools(
    prefill=PREFILL,
    decode=DECODE,
    prefill_workers=2,
    decode_workers=3,
    batched_tokens=8192,
    seats=256,
    transfer_token_s=1e-6,
)


def solved(pools: TwoPools, users: float, inputs: float = 1024, outputs: float = 512) -> Steady:
    (answer,) = steady([(pools, PoolsDemand(users=users, input_tokens=inputs, output_tokens=outputs))])
    return answer


@given(
    users=st.floats(1, 1e4), more=st.floats(1.0, 10.0), inputs=st.integers(16, 40_000), outputs=st.integers(2, 4_000)
)
def test_more_users_never_get_less_together(users: float, more: float, inputs: int, outputs: int) -> None:
    few, many = solved(POOLS, users, inputs, outputs), solved(POOLS, users * more, inputs, outputs)
    assert many.requests_per_s >= few.requests_per_s * (1 - 1e-6)
    assert many.tpot_s >= few.tpot_s * (1 - 1e-6)


@given(users=st.floats(1, 1e4), inputs=st.integers(16, 40_000), outputs=st.integers(2, 4_000))
def test_users_either_wait_for_a_first_token_or_are_answered(users: float, inputs: int, outputs: int) -> None:
    answer = solved(POOLS, users, inputs, outputs)
    inside = answer.requests_per_s * (answer.ttft_s + (outputs - 1) * answer.tpot_s)
    assert inside == pytest.approx(users, rel=1e-6)
    assert answer.requests_per_s * outputs * answer.tpot_s == pytest.approx(3 * answer.decoding, rel=1e-6)


@given(users=st.floats(1, 1e4), slower=st.floats(1.0, 10.0))
def test_a_slower_prefill_never_makes_decode_steps_longer(users: float, slower: float) -> None:
    before, after = solved(POOLS, users), solved(replace(POOLS, prefill=PREFILL.scaled(slower)), users)
    assert after.requests_per_s <= before.requests_per_s * (1 + 1e-6)
    assert after.tpot_s <= before.tpot_s * (1 + 1e-6)


def test_a_full_prefill_pool_gives_what_its_steps_do() -> None:
    """Eight prompts of 1,024 tokens in a step of 8,192, on two workers."""
    step_s = 0.02 + 8192 * 2e-5 + 0.01 + 8 * 1e-9 * 1024**2 / 2
    answer = solved(POOLS, users=5_000, outputs=16)
    assert answer.bound_by == "prefill"
    assert answer.requests_per_s == pytest.approx(2 * 8 / step_s, rel=1e-3)


def test_full_decode_seats_give_what_their_steps_do() -> None:
    step_s = 0.006 + 256 * (5e-5 + 5e-9 * (1024 + 1024)) + 0.006 * (1 - 0.97**256)
    answer = solved(POOLS, users=5_000, outputs=2048)
    assert answer.bound_by == "decode"
    assert answer.requests_per_s == pytest.approx(3 * 256 / (2048 * step_s), rel=1e-6)


def test_a_rate_beyond_what_they_can_do_has_no_first_token() -> None:
    within, beyond = (
        steady([(POOLS, PoolsDemand(requests_per_s=rate, input_tokens=1024, output_tokens=512))])[0]
        for rate in (10.0, 1e4)
    )
    assert within.requests_per_s == 10.0
    assert within.ttft_s < 1.0
    assert beyond.ttft_s == inf
    assert beyond.requests_per_s < 100


def test_users_at_the_rate_they_make_see_the_same_times() -> None:
    loop = solved(POOLS, users=200)
    demand = PoolsDemand(requests_per_s=loop.requests_per_s, input_tokens=1024, output_tokens=512)
    (rate,) = steady([(POOLS, demand)])
    assert rate.tpot_s == pytest.approx(loop.tpot_s, rel=1e-6)
    assert rate.ttft_s == pytest.approx(loop.ttft_s, rel=1e-4)


def test_a_demand_is_users_or_a_rate() -> None:
    with pytest.raises(ValueError, match="give either `users` or `requests_per_s`"):
        PoolsDemand(input_tokens=1, output_tokens=1)


@pytest.mark.parametrize(("prefills", "decodes"), [(1, 1), (1, 4), (3, 1)])
def test_the_simulator_agrees(prefills: int, decodes: int) -> None:
    """Rate within 6% and time per token within 3%, from a few users to many more than either pool serves."""
    pools = replace(POOLS, prefill_workers=prefills, decode_workers=decodes)
    off = []
    for (inputs, outputs), users in product(((1024, 1024), (8192, 1024), (8192, 256), (1024, 256)), (4, 32, 128, 512)):
        answer = solved(pools, users, inputs, outputs)
        rate, tpot_s = simulated(pools, users, inputs, outputs)
        off.append((answer.requests_per_s / rate - 1, answer.tpot_s / tpot_s - 1))
    rates, times = np.abs(np.array(off)).max(axis=0)
    assert rates < 0.06
    assert times < 0.03


def simulated(pools: TwoPools, users: int, inputs: int, outputs: int) -> tuple[float, float]:
    """Requests a second in the middle of a run of thirty for each user, and the median time per token."""
    random, count = np.random.default_rng(1), 30 * users
    requests = Requests(
        arrival_s=np.zeros(count),
        input_tokens=_drawn(random, inputs, count),
        output_tokens=_drawn(random, outputs, count),
        slo_class=np.zeros(count, np.uint8),
    )
    ahead, after = (
        Replica(cost=cost, kv_blocks=10_000_000, max_sequences=most, max_batched_tokens=8192, prefix_caching=False)
        for cost, most in ((pools.prefill, 4096), (pools.decode, pools.seats))
    )
    transfer = Transfer(token_s=pools.transfer_token_s, start_s=pools.transfer_start_s)
    fleet = [
        ReplicaPool(name="p", replica=ahead, replicas=pools.prefill_workers, role="prefill", transfer=transfer),
        ReplicaPool(name="d", replica=after, replicas=pools.decode_workers, role="decode"),
    ]
    outcome = simulate(fleet, [requests], options=Options(users=users, keep_requests=True))
    assert outcome.served is not None
    ends = np.sort(outcome.served.arrival_s + outcome.served.e2e_s)
    first, last = round(0.3 * count), round(0.7 * count)
    return (last - first) / float(ends[last] - ends[first]), outcome.classes[0].tpot.quantile_s(0.5) or 0.0


def _drawn(random: np.random.Generator, mean: float, count: int) -> NDArray[np.int32]:
    return np.rint(random.uniform(mean * 8 / 9, mean * 10 / 9, count)).astype(np.int32)


def test_handing_over_does_not_keep_the_link_from_others() -> None:
    """A second to hand over and 32 prompts that need no time on the wire: all are there a second later."""
    requests = Requests(
        arrival_s=np.zeros(32),
        input_tokens=np.full(32, 16, np.int32),
        output_tokens=np.full(32, 2, np.int32),
        slo_class=np.zeros(32, np.uint8),
    )
    replica = Replica(cost=DECODE, kv_blocks=1000)
    outcome = simulate(
        [
            ReplicaPool(name="p", replica=replica, role="prefill", transfer=Transfer(token_s=0.0, start_s=1.0)),
            ReplicaPool(name="d", replica=replica, role="decode"),
        ],
        [requests],
    )
    assert 1.0 < outcome.makespan_s < 1.2


def test_what_makes_steps_longer_to_a_client_does_not_make_the_link_slower() -> None:
    """A thousand tokens at 1 ms each and half a second to hand over are 1.5 s later, whatever the ratio of steps."""
    one = Requests(
        arrival_s=np.zeros(1),
        input_tokens=np.full(1, 1000, np.int32),
        output_tokens=np.full(1, 2, np.int32),
        slo_class=np.zeros(1, np.uint8),
    )
    replica = Replica(cost=DECODE, kv_blocks=1000, first_ratio=2.5)

    def first_s(transfer: Transfer) -> float:
        ahead = ReplicaPool(name="p", replica=replica, role="prefill", transfer=transfer)
        return simulate([ahead, ReplicaPool(name="d", replica=replica, role="decode")], [one]).classes[0].ttft.max_s

    assert first_s(Transfer(token_s=1e-3, start_s=0.5)) - first_s(Transfer(token_s=0.0)) == pytest.approx(1.5, abs=1e-9)
