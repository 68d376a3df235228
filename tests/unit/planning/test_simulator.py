"""The real simulator behind the seam: one replica's rate, and a pool that keeps up or does not."""

from math import inf

import numpy as np
import pytest

from examples import deployment
from penstock.benchmark.shipped_rows import shipped_efficiencies
from penstock.planning.asked.plan import Bucket
from penstock.planning.candidates.screen import QueuelessScreen
from penstock.planning.proof.simulated import bucket_workload, simulated_capacity, verify_by
from penstock.planning.proof.simulator import Simulator
from penstock.planning.proof.verify import RequestStream, ServingFleet, ServingPool
from penstock.workload import Requests, parse_slo

SLO = parse_slo("ttft=1s,tpot=50ms,attain=95%")
BUCKET = Bucket(input_tokens=1024, output_tokens=256)
PLACED = deployment("llama-3.1-8b", "mi300x")


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    efficiencies = shipped_efficiencies()
    return Simulator(efficiencies, QueuelessScreen(efficiencies))


def test_a_queue_never_lets_a_replica_carry_more_than_the_closed_loop_says(simulator: Simulator) -> None:
    without = simulator.loop(PLACED, BUCKET, SLO).requests_per_s.value
    found = simulated_capacity(simulator.rate, simulator.loop)(PLACED, BUCKET, SLO)
    # Prompts that come together share a step outside captured graphs; the closed form gives each its own.
    assert 0.3 * without < found.requests_per_s.value <= 1.1 * without
    assert found.requests_per_s.low < found.requests_per_s.value < found.requests_per_s.high


def fleet(share_of_capacity: float, simulator: Simulator) -> ServingFleet:
    rate = 4 * share_of_capacity * simulator.rate(PLACED, bucket_workload(BUCKET, SLO), SLO)
    return ServingFleet(
        period=0,
        pools=(ServingPool(id="pool", deployment=PLACED, replicas=4),),
        streams=(RequestStream(workload="chat", bucket=BUCKET, slo=SLO, requests_per_s=rate, shares={"pool": 1.0}),),
    )


def test_a_pool_at_nine_tenths_of_its_capacity_keeps_the_slo_and_at_twice_it_does_not(simulator: Simulator) -> None:
    verify = verify_by(simulator.serve)
    assert verify(fleet(0.9, simulator))[0].met
    assert not verify(fleet(2.0, simulator))[0].met


def test_what_does_not_fit_is_never_served(simulator: Simulator) -> None:
    large = deployment("llama-3.1-405b", "h100")
    requests = Requests(
        arrival_s=np.arange(3.0),
        input_tokens=np.full(3, 100, np.int32),
        output_tokens=np.full(3, 10, np.int32),
        slo_class=np.zeros(3, np.uint8),
    )
    assert (simulator.serve(large, 1, requests).ttft_s == inf).all()


def test_requests_that_come_at_once_are_each_served_and_one_too_long_is_not(simulator: Simulator) -> None:
    inputs, outputs = np.full(40, 100, np.int32), np.full(40, 10, np.int32)
    too_long, one_token, longest = 7, 8, 9
    inputs[too_long], outputs[one_token], outputs[longest] = 3_000_000, 1, 200
    requests = Requests(
        arrival_s=np.repeat([0.0, 1.0], 20),
        input_tokens=inputs,
        output_tokens=outputs,
        slo_class=np.zeros(40, np.uint8),
    )
    times = simulator.serve(PLACED, 1, requests)
    assert np.flatnonzero(np.isinf(times.e2e_s)).tolist() == [too_long]
    assert np.flatnonzero(np.isnan(times.tpot_s)).tolist() == [one_token]
    assert np.argmax(np.where(np.isinf(times.e2e_s), 0.0, times.e2e_s)) == longest
    met = SLO.met(ttft_s=times.ttft_s, tpot_s=times.tpot_s, e2e_s=times.e2e_s)
    assert np.flatnonzero(~met).tolist() == [too_long]
