"""What an endpoint takes within the promise, in closed form, is what the simulator says; and it is monotone."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.performance.step.step_cost import StepCost
from penstock.routing.autoscaler.sustained import LoadKind, sustained_requests_per_s
from penstock.routing.records import Records, new_endpoints
from penstock.simulation.capacity import capacity
from penstock.simulation.loop.initial_visibility import describe_replica
from penstock.simulation.replica import Replica, ReplicaPool
from penstock.workload import Fixed, Poisson, Slo, SloClass, Workload

SLOW = StepCost(step_s=0.02, decode_s=2e-4, prefill_token_s=1e-4)
FAST = StepCost(step_s=0.005, decode_s=5e-5, prefill_token_s=2e-5)


def record(cost: StepCost, kv_blocks: int = 20_000) -> tuple[Records, Replica]:
    replica = Replica(cost=cost, kv_blocks=kv_blocks)
    made = new_endpoints(1)
    describe_replica(made, replica, cost, usd_per_hour=1.0)
    return made, replica


@pytest.mark.parametrize("cost", [SLOW, FAST])
@pytest.mark.parametrize(
    ("lengths", "promise"),
    [((1024, 200), (1.0, 0.05)), ((300, 60), (1.0, 0.04)), ((4000, 300), (3.0, 0.06)), ((1000, 1000), (2.0, 0.04))],
)
def test_it_is_what_the_simulator_says_within_a_third(
    cost: StepCost, lengths: tuple[int, int], promise: tuple[float, float]
) -> None:
    endpoint, replica = record(cost)
    asked = LoadKind(share=1, input_tokens=lengths[0], output_tokens=lengths[1], ttft_s=promise[0], tpot_s=promise[1])
    closed = sustained_requests_per_s(endpoint[0], [asked])
    load = Workload(name="load", arrivals=Poisson(), lengths=Fixed(input_tokens=lengths[0], output_tokens=lengths[1]))
    slo = SloClass(name="all", share_fraction=1.0, slo=Slo(ttft_s=promise[0], tpot_s=promise[1]))
    pool = ReplicaPool(name="pool", replica=replica, replicas=4)
    found = capacity([pool], load, classes=[slo], requests=3000).rate_per_s / 4
    assert found / 1.5 < closed < found * 1.2


@given(
    tokens=st.integers(10, 20_000),
    answer=st.integers(1, 2000),
    tpot_s=st.floats(0.025, 0.2),
    factor=st.floats(1.0, 3.0),
)
def test_more_to_do_or_less_time_never_raises_it(tokens: int, answer: int, tpot_s: float, factor: float) -> None:
    endpoint = record(SLOW)[0][0]

    def rate(longer: float = 1.0, slower: float = 1.0) -> float:
        kind = LoadKind(
            share=1.0, input_tokens=int(tokens * longer), output_tokens=answer, ttft_s=10.0, tpot_s=tpot_s * slower
        )
        return sustained_requests_per_s(endpoint, [kind])

    assert rate(longer=factor) <= rate() * 1.001
    assert rate(slower=factor) >= rate() * 0.999


def test_a_promise_nobody_keeps_is_zero_and_a_mix_lies_between_its_parts() -> None:
    endpoint = record(SLOW)[0][0]
    short = LoadKind(share=1.0, input_tokens=200, output_tokens=100, tpot_s=0.05)
    long = LoadKind(share=1.0, input_tokens=6000, output_tokens=400, tpot_s=0.05)
    assert (
        sustained_requests_per_s(endpoint, [LoadKind(share=1.0, input_tokens=9, output_tokens=9, tpot_s=1e-3)]) == 0.0
    )
    halves = [
        LoadKind(share=0.5, input_tokens=kind.input_tokens, output_tokens=kind.output_tokens, tpot_s=0.05)
        for kind in (short, long)
    ]
    rates = [sustained_requests_per_s(endpoint, kinds) for kinds in ([long], halves, [short])]
    assert rates == sorted(rates)
    assert math.isfinite(sum(rates))
    assert np.all(np.array(rates) > 0)
