"""The seam to the simulator: what it is asked, and what becomes of its answers."""

import numpy as np
import pytest

from examples import deployment
from penstock.fleet import Deployment
from penstock.planning.asked.plan import Bucket
from penstock.planning.make import Answer
from penstock.planning.proof.simulated import Times, bucket_workload, simulated_capacity, verify_by
from penstock.planning.proof.verify import RequestStream, ServingFleet, ServingPool
from penstock.workload import Requests, Slo, Workload, parse_slo
from small_plans import TWO_PARTS, capacities, solved

SHORT, LONG = Bucket(input_tokens=1024, output_tokens=256), Bucket(input_tokens=8192, output_tokens=512)
SLO = parse_slo("ttft=1s,tpot=50ms,attain=95%")
PLACED = deployment("llama-3.1-8b", "mi300x")


def test_a_bucket_is_asked_as_poisson_arrivals_of_its_length() -> None:
    (block,) = bucket_workload(SHORT, SLO).blocks(seed=0, requests=500, rate_per_s=10.0)
    assert set(block.input_tokens) == {1024}
    assert set(block.output_tokens) == {256}
    assert np.diff(block.arrival_s).mean() == pytest.approx(0.1, rel=0.15)


def test_the_rate_is_the_simulators_and_the_interval_the_predictions() -> None:
    predicted = capacities({"mi300x": 4.0}, spread=0.3)

    def rate_of(placed: Deployment, workload: Workload, slo: Slo) -> float:
        assert placed is PLACED
        assert workload.classes[0].slo == slo
        return 2.0

    found = simulated_capacity(rate_of, predicted)(PLACED, SHORT, SLO)
    assert (found.requests_per_s.low, found.requests_per_s.value, found.requests_per_s.high) == pytest.approx(
        (1.4, 2, 2.6)
    )
    assert found.grounds.startswith("simulated")
    assert found.prefill_fraction == 0.25


def test_what_the_prediction_rules_out_is_not_simulated_and_a_rate_of_zero_cannot() -> None:
    def never(*_: object) -> float:
        raise AssertionError

    assert not simulated_capacity(never, capacities({"h100": 1.0}))(PLACED, SHORT, SLO).meets_slo
    assert not simulated_capacity(lambda *_: 0.0, capacities({"mi300x": 1.0}))(PLACED, SHORT, SLO).meets_slo


def fleet(first_share: float) -> ServingFleet:
    pools = tuple(ServingPool(id=name, deployment=PLACED, replicas=2) for name in ("one", "two"))
    shares = {"one": first_share, "two": 1 - first_share}
    return ServingFleet(
        period=0,
        pools=pools,
        streams=(
            RequestStream(workload="chat", bucket=SHORT, slo=SLO, requests_per_s=30.0, shares=shares),
            RequestStream(
                workload="batch", bucket=LONG, slo=parse_slo("e2e=60s"), requests_per_s=3.0, shares={"two": 1.0}
            ),
        ),
    )


def took(requests: Requests, seconds: float) -> Times:
    every = np.full(len(requests.arrival_s), seconds)
    return Times(ttft_s=every, tpot_s=every / 100, e2e_s=every)


def test_requests_are_divided_by_the_shares_and_each_pool_sees_only_its_own() -> None:
    seen: list[Requests] = []

    def simulate(placed: Deployment, replicas: int, requests: Requests) -> Times:
        assert (placed, replicas) == (PLACED, 2)
        assert (np.diff(requests.arrival_s) >= 0).all()
        seen.append(requests)
        return took(requests, 0.5)

    chat, batch = verify_by(simulate)(fleet(0.25))
    assert chat.met
    assert batch.met
    short = [int((requests.input_tokens == 1024).sum()) for requests in seen]
    assert short[0] / sum(short) == pytest.approx(0.25, abs=0.03)
    assert (seen[0].input_tokens == 1024).all()
    assert (seen[1].input_tokens == 8192).any()


def test_a_slow_pool_fails_only_the_share_it_was_given() -> None:
    def simulate(_: Deployment, __: int, requests: Requests) -> Times:
        slow = bool((requests.input_tokens == 8192).any())
        return took(requests, 2.0 if slow else 0.5)

    chat, batch = verify_by(simulate)(fleet(0.5))
    assert chat.attainment_fraction == pytest.approx(0.5, abs=0.03)
    assert not chat.met
    assert batch.met


def test_the_beginning_of_a_run_is_served_but_not_judged() -> None:
    def simulate(_: Deployment, __: int, requests: Requests) -> Times:
        begins = requests.arrival_s < 0.2 * requests.arrival_s[-1] - 5
        times = np.where(begins, 99.0, 0.5)
        return Times(ttft_s=times, tpot_s=times / 100, e2e_s=times)

    assert all(check.attainment_fraction == 1 for check in verify_by(simulate)(fleet(1.0)))


def test_one_token_answers_have_no_time_per_token_and_do_not_miss_it() -> None:
    def simulate(_: Deployment, __: int, requests: Requests) -> Times:
        count = len(requests.arrival_s)
        return Times(ttft_s=np.full(count, 0.1), tpot_s=np.full(count, np.nan), e2e_s=np.full(count, 0.1))

    assert all(check.met for check in verify_by(simulate)(fleet(0.5)))


def test_a_plan_verified_pool_by_pool_grows_until_each_replica_has_few_enough_requests() -> None:
    def simulate(_: Deployment, replicas: int, requests: Requests) -> Times:
        rate = len(requests.arrival_s) / requests.arrival_s[-1] / replicas
        return took(requests, 0.5 if rate < 1.5 else 5.0)

    answer = solved(TWO_PARTS, {"mi300x": 14.0, "h200_sxm": 14.0}, verify_of=verify_by(simulate)).answer
    assert isinstance(answer, Answer)
    assert answer.verified[0].met
    assert answer.verified[0].added_usd > 0
