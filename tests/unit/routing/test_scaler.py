"""The cheapest set of replicas serves the load; it grows ahead of it and shrinks after it."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from routing.rival_autoscalers import EvenScaling, HorizontalPodAutoscaler, VariantAutoscaler

from penstock.errors import UsageError
from penstock.routing.autoscaler import scaler
from penstock.routing.autoscaler.scaler import CheapestSet, LoadReport, PoolReport, ScaledPool, cheapest

Answers = list[tuple[int, ...]]
EVERY_S = 15.0
FAST = ScaledPool(name="fast", requests_per_s=6.0, usd_per_hour=6.0, max_replicas=8, floor=1)
CHEAP = ScaledPool(name="cheap", requests_per_s=2.5, usd_per_hour=2.0, max_replicas=8, floor=0)
FAST_OF_10 = ScaledPool(name="fast", requests_per_s=9.0, usd_per_hour=5.0, max_replicas=10)
CHEAP_OF_10 = ScaledPool(name="cheap", requests_per_s=3.0, usd_per_hour=2.0, max_replicas=10)

scaled = st.builds(
    ScaledPool,
    name=st.just("pool"),
    requests_per_s=st.floats(0.5, 10.0),
    usd_per_hour=st.floats(0.5, 10.0),
    max_replicas=st.integers(1, 5),
    floor=st.integers(0, 1),
)


def report(now_s: float, rate: float, counts: tuple[int, ...], **more: float) -> LoadReport:
    state = {"waiting": 0.0, "running": 5.0, "kv_used_fraction": 0.5} | more
    pools = tuple(PoolReport(up=count, coming=0, **state) for count in counts)
    return LoadReport(now_s=now_s, requests_per_s=rate, pools=pools)


@given(pools=st.lists(scaled, min_size=1, max_size=3), rate=st.floats(0.0, 100.0))
def test_no_set_that_serves_the_load_is_cheaper(pools: list[ScaledPool], rate: float) -> None:
    def usd(counts: tuple[int, ...]) -> float:
        return sum(count * pool.usd_per_hour for count, pool in zip(counts, pools, strict=True))

    chosen = cheapest(pools, rate)
    every = product(*(range(pool.floor, pool.max_replicas + 1) for pool in pools))
    good = [counts for counts in every if takes(pools, counts) >= rate]
    if good:
        assert takes(pools, chosen) >= rate - 1e-6
        assert usd(chosen) <= min(usd(counts) for counts in good) + 1e-6
    else:
        assert chosen == tuple(pool.max_replicas for pool in pools) or takes(pools, chosen) >= rate - 1e-6


def asked(scaler: CheapestSet, rates: Sequence[float], counts: tuple[int, ...], begin_s: float = 0.0) -> Answers:
    """Ask every 15 s, as the gateway does, of a fleet that stays as it is."""
    times = (begin_s + EVERY_S * place for place in range(len(rates)))
    return [scaler.desired_replicas(report(now_s, rate, counts)) for now_s, rate in zip(times, rates, strict=True)]


def takes(pools: Sequence[ScaledPool], counts: tuple[int, ...]) -> float:
    return sum(count * pool.requests_per_s for count, pool in zip(counts, pools, strict=True))


def test_it_grows_ahead_of_a_rising_load() -> None:
    scaler = CheapestSet([FAST, CHEAP])
    scaler.desired_replicas(report(0.0, 10.0, (2, 0)))
    # It rose by 10 in the five minutes a replica loads, so 30 are expected when one asked for now is up.
    assert takes(scaler.pools, scaler.desired_replicas(report(300.0, 20.0, (2, 0)))) >= 1.1 * 30.0


@pytest.mark.parametrize("seed", range(5))
def test_a_rise_is_seen_through_the_chance_of_short_counts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rates = [rng.poisson(EVERY_S * max(10.0, 10.0 + (place - 40) / 2)) / EVERY_S for place in range(61)]
    # From the tenth minute on by 10 in five minutes: 20 come, 30 are expected five minutes on.
    last = asked(CheapestSet([FAST, CHEAP]), rates, (2, 0))[-1]
    assert 27.0 <= takes([FAST, CHEAP], last) <= 45.0


def test_it_holds_what_is_up_until_less_was_enough_for_a_while() -> None:
    scaler = CheapestSet([FAST, CHEAP], hold_s=600.0)
    busy = cheapest([FAST, CHEAP], 1.1 * 40.0)
    rates = [40.0] * 60 + [5.0] * 60
    answers = asked(scaler, rates, (busy[0], busy[1]))
    assert set(answers[:100]) == {busy}
    assert answers[-1] == cheapest([FAST, CHEAP], 1.1 * 5.0)


def test_nothing_goes_before_what_replaces_it_is_up() -> None:
    dear = ScaledPool(name="dear", requests_per_s=6.0, usd_per_hour=60.0, max_replicas=8)
    scaler = CheapestSet([dear, CHEAP])
    assert asked(scaler, [6.0] * 60, (2, 0))[-1] == (2, 3)
    assert asked(scaler, [6.0], (2, 3), begin_s=60 * EVERY_S) == [(0, 3)]


@pytest.mark.parametrize("rate", [0.0, 1.0, 10.0])
def test_one_that_has_just_begun_takes_nothing_away_and_asks_for_nothing_after_one_report(rate: float) -> None:
    """Attack: of 5 + 3 replicas up a first report of 0 requests/s left none, and 40/s after it asked for all."""
    scaler = CheapestSet([FAST_OF_10, CHEAP_OF_10])
    assert asked(scaler, [rate, 40.0], (5, 3)) == [(5, 3), (5, 3)]
    # 44 requests/s with what is to spare are less than 5 * 9 + 3 * 3.
    assert set(asked(scaler, [40.0] * 38, (5, 3), begin_s=2 * EVERY_S)) == {(5, 3)}


def test_half_an_interval_at_the_start_is_no_slope() -> None:
    """Attack: 10 and then 20 requests/s, the first interval half full, asked for 27 of 30 replicas."""
    pools = [replace(FAST_OF_10, max_replicas=30), replace(CHEAP_OF_10, max_replicas=30)]
    assert max(takes(pools, one) for one in asked(CheapestSet(pools), [10.0] + [20.0] * 80, (2, 2))) <= 24.0


def test_after_a_gap_in_the_reports_what_was_wanted_stays() -> None:
    scaler = CheapestSet([FAST_OF_10, CHEAP_OF_10])
    asked(scaler, [40.0] * 100, (5, 0))
    begin_s = 100 * EVERY_S + 660.0
    assert set(asked(scaler, [2.0] * 39, (5, 0), begin_s=begin_s)) == {(5, 0)}
    assert asked(scaler, [2.0] * 3, (5, 1), begin_s=begin_s + 39 * EVERY_S)[-1] == (0, 1)
    assert scaler.desired_replicas(report(begin_s + 2000.0, 0.0, (0, 0))) == (0, 1)


@pytest.mark.parametrize(("rate", "most"), [(20.0, 1.35), (5.0, 1.6), (100.0, 1.2)])
def test_a_steady_load_asks_for_little_more_than_a_tenth_to_spare(rate: float, most: float) -> None:
    """Attack: Poisson counts of 15 s asked for 1.5 (20/s) and 2.0 times (5/s) the load, at the start up to 7.8."""
    small = ScaledPool(name="small", requests_per_s=0.5, usd_per_hour=1.0, max_replicas=1000)
    for seed in range(20):
        counts = np.random.default_rng(seed).poisson(rate * EVERY_S, 240) / EVERY_S
        answers = asked(CheapestSet([small]), list(counts), (1,))
        assert max(takes([small], answer) for answer in answers) <= most * rate


def test_what_lasts_for_one_interval_is_not_asked_for_and_what_lasts_for_three_is() -> None:
    """Attack: one interval at ten times the load asked for all replicas, for ten minutes."""
    pools = [replace(FAST_OF_10, max_replicas=30), replace(CHEAP_OF_10, max_replicas=30)]
    for spikes, least, most in ((1, 20.0, 25.0), (3, 200.0, 250.0)):
        answers = asked(CheapestSet(pools), [20.0] * 100 + [200.0] * spikes + [20.0] * 50, (2, 2))
        assert least <= max(takes(pools, answer) for answer in answers) <= most


def test_a_load_that_doubles_at_once_is_not_taken_for_a_slope() -> None:
    pools = [replace(FAST_OF_10, max_replicas=30), replace(CHEAP_OF_10, max_replicas=30)]
    answers = asked(CheapestSet(pools), [20.0] * 60 + [40.0] * 60, (5, 1))
    assert takes(pools, answers[64]) >= 44.0
    assert max(takes(pools, answer) for answer in answers) <= 55.0


def test_the_last_replica_stays_unless_it_may_go() -> None:
    quiet = [0.0] * 100
    assert asked(CheapestSet([FAST_OF_10, CHEAP_OF_10]), quiet, (5, 3))[-1] == (0, 1)
    assert asked(CheapestSet([FAST_OF_10]), quiet, (5,))[-1] == (1,)
    assert asked(CheapestSet([FAST_OF_10, CHEAP_OF_10], to_zero=True), quiet, (5, 3))[-1] == (0, 0)


def test_a_fleet_that_is_starting_is_asked_for_whole() -> None:
    scaler = CheapestSet([FAST_OF_10, CHEAP_OF_10])
    assert asked(scaler, [0.0], (0, 0)) == [(10, 10)]
    assert asked(scaler, [0.0] * 30, (1, 0), begin_s=EVERY_S)[-1] == (10, 10)


@pytest.mark.parametrize("rate", [math.nan, math.inf, -math.inf])
def test_a_rate_that_is_no_number_is_refused(rate: float) -> None:
    with pytest.raises(UsageError, match="write a finite rate") as caught:
        cheapest([FAST, CHEAP], rate)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("load_s", [-1.0, math.nan, math.inf])
def test_a_pool_that_loads_in_no_time_there_is_is_refused(load_s: float) -> None:
    with pytest.raises(UsageError, match="write 0 or more seconds"):
        ScaledPool(name="a", requests_per_s=1.0, usd_per_hour=1.0, max_replicas=4, load_s=load_s)


def test_even_scaling_takes_the_same_share_of_every_pool() -> None:
    # Half of 8 * 6 + 8 * 2.5 = 68 requests/s.
    assert EvenScaling([FAST, CHEAP], spare_fraction=0.0).desired_replicas(report(0.0, 34.0, (8, 8))) == (4, 4)


def test_the_hpa_scales_by_the_ratio_of_metric_and_target_and_waits_before_it_shrinks() -> None:
    scaler = HorizontalPodAutoscaler([FAST, CHEAP], target=5.0)
    assert scaler.desired_replicas(report(0.0, 0.0, (2, 2), running=10.0)) == (4, 4)
    assert scaler.desired_replicas(report(60.0, 0.0, (4, 4), running=5.2)) == (4, 4)
    assert scaler.desired_replicas(report(120.0, 0.0, (4, 4), running=2.5)) == (4, 4)
    assert scaler.desired_replicas(report(500.0, 0.0, (4, 4), running=2.5)) == (2, 2)


def test_the_variant_autoscaler_adds_the_cheapest_and_removes_the_dearest() -> None:
    scaler = VariantAutoscaler([FAST, CHEAP])
    # The published example: 75% and 76% of the KV leave 4.5% of 80% to spare, less than 10%.
    assert scaler.desired_replicas(report(0.0, 0.0, (2, 2), kv_used_fraction=0.755)) == (2, 3)
    assert scaler.desired_replicas(report(0.0, 0.0, (2, 2), kv_used_fraction=0.2)) == (1, 2)


@given(pools=st.lists(scaled, min_size=1, max_size=3), rate=st.floats(0.0, 100.0))
def test_of_too_many_sets_one_is_found_that_serves_and_costs_at_most_a_replica_more(
    pools: list[ScaledPool], rate: float
) -> None:
    def usd(counts: tuple[int, ...]) -> float:
        return sum(count * pool.usd_per_hour for count, pool in zip(counts, pools, strict=True))

    best, filled = cheapest(pools, rate), scaler._fill_by_price(pools, rate)  # noqa: SLF001 - what many pools get
    served = [sum(c * p.requests_per_s for c, p in zip(counts, pools, strict=True)) for counts in (best, filled)]
    assert served[1] >= min(rate, served[0]) - 1e-6
    dearest = max(pool.usd_per_hour for pool in pools)
    assert usd(filled) <= usd(best) + dearest + sum(p.floor * p.usd_per_hour for p in pools) + 1e-6
    assert all(pool.floor <= count <= pool.max_replicas for count, pool in zip(filled, pools, strict=True))
