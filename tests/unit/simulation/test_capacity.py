"""The capacity is the rate at which the promise still holds, found in a moment."""

from time import process_time

import pytest

from penstock.errors import UsageError
from penstock.simulation.capacity import capacity
from penstock.simulation.run import simulate
from penstock.workload import ClosedLoop, LogNormal, Poisson, Slo, SloClass, Workload
from simulated import COST, pool

SHAPE = LogNormal(
    input_median_tokens=600,
    input_sigma=1.0,
    output_median_tokens=130,
    output_sigma=0.9,
    max_input_tokens=8000,
    max_output_tokens=2000,
)
CHAT = Workload(name="chat", arrivals=Poisson(), lengths=SHAPE)


def promised(**limits: float) -> list[SloClass]:
    return [SloClass(name="all", share_fraction=1.0, slo=Slo(**limits))]


def test_the_promise_holds_at_the_capacity_and_not_much_above_it() -> None:
    classes = promised(ttft_s=1.0, tpot_s=0.03)
    found = capacity([pool()], CHAT, classes=classes)
    assert found.outcome.met
    above = CHAT.blocks(seed=0, requests=found.requests, rate_per_s=1.02 * found.rate_per_s)
    assert not simulate([pool()], above, classes=classes).met


def test_a_stricter_promise_has_less_capacity() -> None:
    easy = capacity([pool()], CHAT, classes=promised(ttft_s=2.0, tpot_s=0.05)).rate_per_s
    hard = capacity([pool()], CHAT, classes=promised(ttft_s=2.0, tpot_s=0.02)).rate_per_s
    assert 0 < hard < easy


def test_twice_the_replicas_have_about_twice_the_capacity() -> None:
    classes = promised(ttft_s=1.0, tpot_s=0.03)
    one = capacity([pool()], CHAT, classes=classes).rate_per_s
    two = capacity([pool(replicas=2)], CHAT, classes=classes).rate_per_s
    assert 1.9 < two / one < 2.4


def test_what_no_rate_can_meet_is_zero() -> None:
    found = capacity([pool()], CHAT, classes=promised(tpot_s=COST.step_s / 2))
    assert found.rate_per_s == 0.0
    assert found.saturated_rate_per_s > 1.0


def test_a_capacity_takes_less_than_two_seconds() -> None:
    classes = promised(ttft_s=1.0, tpot_s=0.03)
    capacity([pool()], CHAT, classes=classes, requests=1_000)  # compiled and loaded
    start_s = process_time()
    capacity([pool()], CHAT, classes=classes)
    assert process_time() - start_s < 2.0


def test_a_closed_loop_or_no_promise_has_no_capacity() -> None:
    closed = Workload(name="closed", arrivals=ClosedLoop(users=4), lengths=SHAPE)
    with pytest.raises(UsageError, match="users of a closed loop"):
        capacity([pool()], closed, classes=promised(ttft_s=1.0))
    with pytest.raises(UsageError, match="SLO"):
        capacity([pool()], CHAT, classes=[])
