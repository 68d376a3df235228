"""How many requests run at once: the simulator says the same, and a slightly longer answer changes little."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.performance.memory.running_requests import mean_context_tokens, running_requests
from penstock.performance.prediction.measured_load import RequestedLoad
from penstock.performance.prediction.running_limit import RunningLimit
from penstock.performance.prediction.speculation import Speculation
from penstock.performance.similarity.own_measurements import OwnMeasurements
from penstock.performance.step.prompt_queue import PromptLoop, drawn_lengths
from penstock.performance.step.step_cost import StepCost
from penstock.simulation.replica import Replica, ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options
from penstock.workload import Requests

DENSE = StepCost(
    step_s=0.012, decode_s=5e-5, prefill_token_s=2e-5, prompt_step_s=0.004, context_s=(5e-9,), pair_s=(1e-9,)
)
PLAIN = Speculation(drafted_tokens=0, accepted_tokens=1.0)
_tokens = st.integers(16, 20_000)


def simulated_running(held_tokens: int, users: int, input_tokens: int, output_tokens: int) -> float:
    """Return the mean number of requests in the batch: real blocks, admission and preemption."""
    loop = PromptLoop(users=users, input_tokens=input_tokens, output_tokens=output_tokens)
    drawn = np.array(drawn_lengths(loop))
    requests = Requests(
        arrival_s=np.zeros(len(drawn)),
        input_tokens=drawn[:, 0].astype(np.int32),
        output_tokens=(drawn[:, 1] + 1).astype(np.int32),
        slo_class=np.zeros(len(drawn), np.uint8),
    )
    replica = Replica(
        cost=DENSE, kv_blocks=held_tokens // 16, max_sequences=4096, prefix_caching=False, asynchronous=True
    )
    outcome = simulate([ReplicaPool(name="one", replica=replica)], [requests], options=Options(users=users))
    return outcome.pools[0].mean_in_batches


@pytest.mark.parametrize(
    ("input_tokens", "output_tokens"), [(100, 4000), (512, 8192), (1024, 1024), (1024, 256), (8192, 1024), (256, 256)]
)
@pytest.mark.parametrize("expected", [12, 32, 128])
def test_a_full_cache_runs_as_many_requests_as_in_the_simulator(
    input_tokens: int, output_tokens: int, expected: int
) -> None:
    held = round(expected * mean_context_tokens(input_tokens, output_tokens))
    running = simulated_running(held, 3 * expected, input_tokens, output_tokens)
    assert running_requests(held, input_tokens, output_tokens) == pytest.approx(running, rel=0.1)


@given(
    held=st.integers(1000, 10**7),
    batch=st.integers(1, 4096),
    step=st.integers(512, 65_536),
    users=st.integers(1, 4096),
    inputs=_tokens,
    outputs=_tokens,
    measured=st.lists(st.tuples(st.integers(1, 4096), _tokens, _tokens), max_size=4),
    longer=st.floats(1.0, 1.05),
)
def test_five_percent_longer_answers_change_the_running_requests_by_at_most_a_tenth(
    held: int,
    batch: int,
    step: int,
    users: int,
    inputs: int,
    outputs: int,
    measured: list[tuple[int, int, int]],
    longer: float,
) -> None:
    limit = RunningLimit(cache_tokens=held, requests=batch, step_tokens=step, drafts=PLAIN)
    limit = limit.with_proof(own_measurements(measured), 1)
    before = limit.running(RequestedLoad(users, inputs, outputs))
    after = limit.running(RequestedLoad(users, inputs, outputs * longer))
    assert after == pytest.approx(before, rel=0.1)
    assert 1 <= before <= users


@given(measured=st.tuples(st.integers(1, 4096), _tokens, _tokens), users=st.floats(0.01, 1), shorter=st.floats(0.5, 1))
def test_a_measured_run_proves_room_for_its_users(measured: tuple[int, int, int], users: float, shorter: float) -> None:
    """Also for fewer users and for shorter requests of the same shape, whatever the engine's settings say."""
    limit = RunningLimit(cache_tokens=1000, requests=1, step_tokens=512, drafts=PLAIN)
    limit = limit.with_proof(own_measurements([measured]), 1)
    asked = RequestedLoad(max(1.0, users * measured[0]), shorter * measured[1], shorter * measured[2])
    assert limit.running(asked) == pytest.approx(asked.users)


def own_measurements(loads: list[tuple[int, int, int]]) -> OwnMeasurements:
    users, inputs, outputs = np.log2(np.array(loads, np.float64).reshape(-1, 3)).T
    zeros = np.zeros(len(loads))
    return OwnMeasurements(loads=(users, inputs, outputs), log_seconds=zeros, drift=zeros)
