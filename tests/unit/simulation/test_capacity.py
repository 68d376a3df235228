"""The capacity is the rate at which the promise still holds, found in a moment."""

from dataclasses import replace
from time import process_time

import numpy as np
import pytest

from penstock.errors import UsageError
from penstock.simulation.capacity import RateSearch, capacity, highest_rate, requests_at, trial
from penstock.workload import ClosedLoop, Conversations, LogNormal, Poisson, Slo, SloClass, Workload
from penstock.workload.randomness import NATIVE_BLOCK
from penstock.workload.requests import concatenate
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
    asked = RateSearch(workload=CHAT, classes=classes)
    found = capacity([pool()], CHAT, classes=classes)
    below, above = (trial([pool()], asked, share * found.rate_per_s, requests=found.requests) for share in (0.99, 1.02))
    assert below.met
    assert not above.met
    assert found.rate_per_s < found.saturated_rate_per_s


def test_what_fits_nowhere_is_a_miss_at_every_rate_and_not_the_end_of_them() -> None:
    """A cache of 400 blocks of 16 holds 6,400 tokens: some 1% of the requests are longer, whatever the rate."""
    small = [pool(kv_blocks=400)]
    found = capacity(small, CHAT, classes=promised(ttft_s=5.0, attainment_fraction=0.9), requests=4_000)
    refused = found.outcome.oversized / found.outcome.asked
    assert 0.002 < refused < 0.05
    assert found.rate_per_s > 0
    assert (found.outcome.classes[0].met_fraction or 1.0) <= 1 - refused
    strict = capacity(small, CHAT, classes=promised(ttft_s=5.0, attainment_fraction=0.9999), requests=4_000)
    assert strict.rate_per_s == 0


def test_another_seed_gives_the_same_capacity_within_three_percent() -> None:
    classes = promised(ttft_s=1.0, tpot_s=0.03)
    rates = [capacity([pool(replicas=8)], CHAT, classes=classes, seed=seed).rate_per_s for seed in range(4)]
    assert max(rates) / min(rates) < 1.03


def test_replicas_behind_one_router_carry_more_each_than_one_alone() -> None:
    classes = promised(ttft_s=1.0, tpot_s=0.03)
    alone = capacity([pool()], CHAT, classes=classes).rate_per_s
    eight = capacity([pool(replicas=8)], CHAT, classes=classes).rate_per_s
    assert 1.02 < eight / (8 * alone) < 1.3


def test_a_search_that_begins_elsewhere_ends_at_the_same_rate() -> None:
    asked = RateSearch(workload=CHAT, classes=promised(ttft_s=1.0, tpot_s=0.03))
    found = [highest_rate([pool()], replace(asked, requests=20_000), begin_per_s=rate)[0] for rate in (3.0, 11.0, 40.0)]
    rates = [entry.rate_per_s for entry in found if entry is not None]
    assert len(rates) == 3
    assert max(rates) / min(rates) < 1.01


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


@pytest.mark.parametrize("sharing", [None, Conversations(mean_turns=3.0, turn_gap_s=2.0, max_history_tokens=4000)])
@pytest.mark.parametrize("requests", [1_000, NATIVE_BLOCK, NATIVE_BLOCK + 1])
def test_the_requests_of_a_trial_are_those_of_the_workload_at_its_rate(
    requests: int, sharing: Conversations | None
) -> None:
    """Trials of one search share the drawn requests, which changes no bit of them."""
    workload = replace(CHAT, sharing=sharing)
    asked = RateSearch(workload=workload, classes=promised(ttft_s=1.0))
    for rate in (3.7, 0.1):
        served = concatenate(requests_at(asked, requests, rate))
        drawn = concatenate(list(workload.blocks(seed=0, requests=requests, rate_per_s=rate)))
        for column in ("arrival_s", "input_tokens", "output_tokens", "slo_class"):
            assert np.array_equal(getattr(served, column), getattr(drawn, column))
