"""A user of a closed loop asks again with the last answer in hand, and not when the engine is done with it."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.api.simulate import simulate as asked
from penstock.simulation.outcome import Served
from penstock.simulation.replica import ReplicaPool, Transfer
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options
from penstock.workload import Requests
from simulated import pool, requests


def late(ratio: float, request_s: float, *, ahead: bool = False, name: str = "one") -> ReplicaPool:
    """Whose clients see first tokens so much later than the engine has them."""
    one = pool(name=name)
    return replace(one, replica=replace(one.replica, first_ratio=ratio, request_s=request_s, asynchronous=ahead))


def apart() -> list[ReplicaPool]:
    prefill, decode = late(1.5, 0.02, name="prefill"), late(2.26, 0.03, name="decode")
    return [
        replace(prefill, role="prefill", transfer=Transfer(token_s=1e-5, start_s=0.04)),
        replace(decode, role="decode"),
    ]


def to_the_first(rows: Requests) -> NDArray[np.int16]:
    return np.zeros(len(rows), np.int16)


def served(fleet: list[ReplicaPool], users: int, *, count: int = 200, arrival_s: float = 0.0) -> Served:
    rng = np.random.default_rng(0)
    lengths = list(zip(rng.integers(1, 6000, count), rng.integers(1, 30, count), strict=True))
    sent = requests([arrival_s * number for number in range(count)], lengths)
    found = simulate(fleet, [sent], options=Options(users=users, keep_requests=True)).served
    assert found is not None
    return found


FLEETS = {
    "as the engine": [late(1.0, 0.0)],
    "ratio": [late(2.26, 0.0)],
    "seconds": [late(1.0, 0.2)],
    "both": [late(2.26, 0.2)],
    "ahead": [late(2.26, 0.2, ahead=True)],
    "mixed": [late(1.0, 0.0, name="one"), late(2.26, 0.2, name="two")],
    "apart": apart(),
}


@pytest.mark.parametrize("fleet", FLEETS.values(), ids=FLEETS)
def test_one_user_s_requests_are_an_answer_apart(fleet: list[ReplicaPool]) -> None:
    alone = served(fleet, 1)
    assert np.diff(alone.arrival_s) == pytest.approx(alone.e2e_s[:-1], rel=1e-9)


@pytest.mark.parametrize("fleet", FLEETS.values(), ids=FLEETS)
def test_every_request_is_sent_at_the_end_of_an_answer(fleet: list[ReplicaPool]) -> None:
    found = served(fleet, 7)
    ends_s = np.sort(found.arrival_s + found.e2e_s)
    assert (found.arrival_s[:7] == 0).all()
    assert found.arrival_s[7:] == pytest.approx(ends_s[:-7], rel=1e-9)


def test_times_that_were_recorded_do_not_count_in_a_closed_loop() -> None:
    for fleet in FLEETS.values():
        assert (served(fleet, 3).e2e_s == served(fleet, 3, arrival_s=2.5).e2e_s).all()


def test_an_engine_s_own_loop_is_not_slowed_by_clients_of_another() -> None:
    """Who has the answer with its last step is in the queue before the next one, whatever others do."""
    quick, slow = late(1.0, 0.0, name="quick"), late(2.26, 0.2, name="slow")
    sent = requests([0.0] * 40, [(100, 10)] * 40)
    together, alone = (
        simulate(fleet, [sent], options=Options(users=8, keep_requests=True, pool_of=to_the_first))
        for fleet in ([quick, slow], [quick])
    )
    assert together.served is not None
    assert alone.served is not None
    assert (together.served.e2e_s == alone.served.e2e_s).all()


def test_throughput_of_long_prompts_and_short_answers_is_one_answer_at_a_time() -> None:
    """One user of a 70B model was answered every 2.97 s although an answer took 6.70 s."""
    answer = asked(
        "llama-3.1-70b", "h100:2", precision="fp8", kv="fp8", engine="vllm",
        input_tokens=32_768, output_tokens=2, users=1, requests=100,
    )  # fmt: skip
    outcome = answer.scenarios[0].outcome
    assert outcome is not None
    e2e_s = outcome.classes[0].e2e.mean_s
    assert e2e_s is not None
    assert outcome.requests_per_s * e2e_s == pytest.approx(1.0, rel=1e-6)
