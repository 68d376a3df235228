"""Laws of the queue of prompts in a closed loop, and that the simulator says the same."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.performance.step.prompt_queue import LoopTimes, PromptLoop, drawn_lengths, run_prompt_loop
from penstock.performance.step.step_cost import StepCost
from penstock.simulation.replica import Replica, ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options
from penstock.workload import Requests

DENSE = StepCost(
    step_s=0.012, decode_s=5e-5, prefill_token_s=2e-5, prompt_step_s=0.004, context_s=(5e-9,), pair_s=(1e-9,)
)
MIXTURE = StepCost(
    step_s=0.006,
    decode_s=2e-5,
    prefill_token_s=8e-6,
    prompt_step_s=0.002,
    expert_s=0.008,
    expert_miss=0.97,
    limits=(128, 2**40),
    context_s=(5e-9, 1e-9),
    pair_s=(1e-9, 4e-10),
)
LOOP = PromptLoop(users=32, input_tokens=1024, output_tokens=256)
_users = st.integers(1, 96)
_tokens = st.integers(16, 20_000)


def run(**changed: float) -> LoopTimes:
    return run_prompt_loop(DENSE, replace(LOOP, **changed))  # type: ignore[arg-type]


@pytest.mark.parametrize("cost", [DENSE, MIXTURE])
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("spread", [0.0, 1 / 9])
def test_the_simulator_agrees(cost: StepCost, *, ahead: bool, spread: float) -> None:
    """From one user to a queue of prompts that never ends, with short and long prompts and answers."""
    off = []
    for (inputs, outputs), users in product(((1024, 1024), (8192, 256), (16_384, 64), (300, 30)), (1, 8, 64, 200)):
        loop = PromptLoop(
            users=users, input_tokens=inputs, output_tokens=outputs, length_spread=spread, schedules_ahead=ahead
        )
        here, there = run_prompt_loop(cost, loop), simulated(cost, loop)
        off.append([mine / its - 1 for mine, its in zip(means(here), there, strict=True)])
    ttft, tpot, rate = np.abs(np.array(off)).max(axis=0)
    assert ttft < 0.02
    assert tpot < 0.01
    assert rate < 0.01


def means(times: LoopTimes) -> tuple[float, float, float]:
    return float(times.ttft_s.mean()), float(times.tpot_s.mean()), times.output_tokens / times.makespan_s


def simulated(cost: StepCost, loop: PromptLoop) -> tuple[float, float, float]:
    drawn, count = np.array(drawn_lengths(loop)), loop.users * loop.requests_per_user
    outputs = drawn[:, 1] + 1
    requests = Requests(
        arrival_s=np.zeros(count),
        input_tokens=drawn[:, 0].astype(np.int32),
        output_tokens=outputs.astype(np.int32),
        slo_class=np.zeros(count, np.uint8),
    )
    replica = Replica(
        cost=cost,
        kv_blocks=10**7,
        max_batched_tokens=round(loop.batched_tokens),
        max_sequences=4096,
        prefix_caching=False,
        asynchronous=loop.schedules_ahead,
    )
    outcome = simulate([ReplicaPool(name="one", replica=replica)], [requests], options=Options(users=loop.users))
    served = outcome.classes[0]
    return served.ttft.mean_s or 0.0, served.tpot.mean_s or 0.0, float(outputs.sum()) / outcome.makespan_s


def test_one_user_never_waits() -> None:
    assert run(users=1, length_spread=0.0).ttft_s == pytest.approx(DENSE.seconds((), ((0, 1024),)))


def test_users_of_equal_lengths_stay_together_in_an_engine_that_takes_prompts_first() -> None:
    """Nobody decodes before all prompts are in, so all end together and every wave of prompts waits like the first."""
    times = run(users=64, length_spread=0.0, prompts_first=True)
    step_s = DENSE.seconds((), ((0, 1024),) * 8)
    waves = times.ttft_s.reshape(-1, 64)
    assert waves == pytest.approx(np.tile(np.repeat(np.arange(1, 9), 8) * step_s, (10, 1)))


def test_users_of_equal_lengths_drift_apart_in_an_engine_that_mixes() -> None:
    """Each step of the first wave takes eight prompts, and these eight end one step before the next eight."""
    waves = run(users=64, length_spread=0.0).ttft_s.reshape(-1, 64).mean(axis=1)
    assert waves[0] == pytest.approx(4.5 * waves[1], rel=0.1)
    assert waves[2:] == pytest.approx(waves[1], rel=0.2)


def test_a_prompt_longer_than_the_budget_takes_several_steps() -> None:
    times = run(users=1, input_tokens=20_000, length_spread=0.0)
    steps = ((0, 8192), (8192, 16_384), (16_384, 20_000))
    assert times.ttft_s == pytest.approx(sum(DENSE.seconds((), (step,)) for step in steps))


def test_requests_beyond_the_seats_wait_for_admission() -> None:
    """Half of the users run. The others wait for about as long as a request runs."""
    few, many = run(users=16, output_tokens=512), run(users=32, output_tokens=512, seats=16)
    assert many.makespan_s == pytest.approx(2 * few.makespan_s, rel=0.05)
    assert many.ttft_s.mean() - few.ttft_s.mean() == pytest.approx(512 * few.tpot_s.mean(), rel=0.15)


@given(users=_users, inputs=_tokens, outputs=st.integers(1, 400), first=st.booleans(), ahead=st.booleans())
@settings(max_examples=60, deadline=None)
def test_users_either_wait_or_are_answered(users: int, inputs: int, outputs: int, *, first: bool, ahead: bool) -> None:
    """Little's law: requests times the seconds of a request are at most the users times the seconds of the run."""
    loop = PromptLoop(
        users=users, input_tokens=inputs, output_tokens=outputs, prompts_first=first, schedules_ahead=ahead
    )
    times = run_prompt_loop(DENSE, loop)
    assert len(times.ttft_s) == len(times.tpot_s) == users * loop.requests_per_user
    steady = run_prompt_loop(DENSE, replace(loop, length_spread=0.0))
    inside_s = float(steady.ttft_s.sum() + steady.tpot_s.sum() * (outputs - 1))
    assert inside_s <= users * steady.makespan_s * (1 + 1e-9)
    assert inside_s >= 0.7 * users * steady.makespan_s


@given(users=_users, more=st.integers(1, 64), inputs=_tokens, outputs=st.integers(16, 400), first=st.booleans())
@settings(max_examples=60, deadline=None)
def test_more_users_wait_no_less_and_get_no_less_together(
    users: int, more: int, inputs: int, outputs: int, *, first: bool
) -> None:
    """Times may fall by a few percent where one more user changes which prompts share a step."""
    few, many = (
        run(users=number, input_tokens=inputs, output_tokens=outputs, prompts_first=first)
        for number in (users, users + more)
    )
    assert many.ttft_s.mean() >= few.ttft_s.mean() * 0.97
    assert many.output_tokens / many.makespan_s >= few.output_tokens / few.makespan_s * 0.97


@given(users=_users, inputs=st.integers(16, 8000), longer=st.floats(1.0, 3.0), first=st.booleans())
@settings(max_examples=60, deadline=None)
def test_longer_prompts_wait_no_less(users: int, inputs: int, longer: float, *, first: bool) -> None:
    short, long = (run(users=users, input_tokens=each, prompts_first=first) for each in (inputs, inputs * longer))
    assert long.ttft_s.mean() >= short.ttft_s.mean() * 0.97
