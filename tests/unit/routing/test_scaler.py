"""The cheapest set of replicas serves the load; it grows ahead of it and shrinks after it."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from penstock.routing.scaling import scaler
from penstock.routing.scaling.scaler import (
    CheapestSet,
    EvenScaling,
    HorizontalPodAutoscaler,
    LoadReport,
    PoolReport,
    ScaledPool,
    VariantAutoscaler,
    cheapest,
)

FAST = ScaledPool(name="fast", requests_per_s=6.0, usd_per_hour=6.0, most=8, floor=1)
CHEAP = ScaledPool(name="cheap", requests_per_s=2.5, usd_per_hour=2.0, most=8, floor=0)

scaled = st.builds(
    ScaledPool,
    name=st.just("pool"),
    requests_per_s=st.floats(0.5, 10.0),
    usd_per_hour=st.floats(0.5, 10.0),
    most=st.integers(1, 5),
    floor=st.integers(0, 1),
)


def report(now_s: float, rate: float, counts: tuple[int, int], **more: float) -> LoadReport:
    state = {"waiting": 0.0, "running": 5.0, "kv_used_fraction": 0.5} | more
    pools = tuple(PoolReport(up=count, coming=0, **state) for count in counts)
    return LoadReport(now_s=now_s, requests_per_s=rate, pools=pools)


@given(pools=st.lists(scaled, min_size=1, max_size=3), rate=st.floats(0.0, 100.0))
def test_no_set_that_serves_the_load_is_cheaper(pools: list[ScaledPool], rate: float) -> None:
    def usd(counts: tuple[int, ...]) -> float:
        return sum(count * pool.usd_per_hour for count, pool in zip(counts, pools, strict=True))

    def serves(counts: tuple[int, ...]) -> bool:
        return sum(count * pool.requests_per_s for count, pool in zip(counts, pools, strict=True)) >= rate - 1e-6

    chosen = cheapest(pools, rate)
    every = product(*(range(pool.floor, pool.most + 1) for pool in pools))
    good = [counts for counts in every if serves(counts)]
    if good:
        assert serves(chosen)
        assert usd(chosen) <= min(usd(counts) for counts in good) + 1e-6
    else:
        assert chosen == tuple(pool.most for pool in pools)


def test_it_grows_ahead_of_a_rising_load() -> None:
    scaler = CheapestSet([FAST, CHEAP])
    scaler.wanted(report(0.0, 10.0, (2, 0)))
    # It rose by 10 in the five minutes a replica loads, so 30 are expected when one asked for now is up.
    wanted = scaler.wanted(report(300.0, 20.0, (2, 0)))
    assert wanted[0] * 6.0 + wanted[1] * 2.5 >= 1.1 * 30.0


def test_it_holds_what_is_up_until_less_was_enough_for_a_while() -> None:
    scaler = CheapestSet([FAST, CHEAP], hold_s=600.0)
    busy = cheapest([FAST, CHEAP], 1.1 * 40.0)
    assert scaler.wanted(report(0.0, 40.0, (busy[0], busy[1]))) == busy
    assert scaler.wanted(report(300.0, 5.0, (busy[0], busy[1]))) == busy
    assert scaler.wanted(report(1000.0, 5.0, (busy[0], busy[1]))) == cheapest([FAST, CHEAP], 1.1 * 5.0)


def test_nothing_goes_before_what_replaces_it_is_up() -> None:
    dear = ScaledPool(name="dear", requests_per_s=6.0, usd_per_hour=60.0, most=8)
    scaler = CheapestSet([dear, CHEAP])
    assert scaler.wanted(report(0.0, 6.0, (2, 0))) == (2, 3)
    assert scaler.wanted(report(60.0, 6.0, (2, 3))) == (0, 3)


def test_even_scaling_takes_the_same_share_of_every_pool() -> None:
    # Half of 8 * 6 + 8 * 2.5 = 68 requests/s.
    assert EvenScaling([FAST, CHEAP], spare_fraction=0.0).wanted(report(0.0, 34.0, (8, 8))) == (4, 4)


def test_the_hpa_scales_by_the_ratio_of_metric_and_target_and_waits_before_it_shrinks() -> None:
    scaler = HorizontalPodAutoscaler([FAST, CHEAP], target=5.0)
    assert scaler.wanted(report(0.0, 0.0, (2, 2), running=10.0)) == (4, 4)
    assert scaler.wanted(report(60.0, 0.0, (4, 4), running=5.2)) == (4, 4)
    assert scaler.wanted(report(120.0, 0.0, (4, 4), running=2.5)) == (4, 4)
    assert scaler.wanted(report(500.0, 0.0, (4, 4), running=2.5)) == (2, 2)


def test_the_variant_autoscaler_adds_the_cheapest_and_removes_the_dearest() -> None:
    scaler = VariantAutoscaler([FAST, CHEAP])
    # The published example: 75% and 76% of the KV leave 4.5% of 80% to spare, less than 10%.
    assert scaler.wanted(report(0.0, 0.0, (2, 2), kv_used_fraction=0.755)) == (2, 3)
    assert scaler.wanted(report(0.0, 0.0, (2, 2), kv_used_fraction=0.2)) == (1, 2)


@given(pools=st.lists(scaled, min_size=1, max_size=3), rate=st.floats(0.0, 100.0))
def test_of_too_many_sets_one_is_found_that_serves_and_costs_at_most_a_replica_more(
    pools: list[ScaledPool], rate: float
) -> None:
    def usd(counts: tuple[int, ...]) -> float:
        return sum(count * pool.usd_per_hour for count, pool in zip(counts, pools, strict=True))

    best, filled = cheapest(pools, rate), scaler._filled(pools, rate)  # noqa: SLF001 - what many pools get
    served = [sum(c * p.requests_per_s for c, p in zip(counts, pools, strict=True)) for counts in (best, filled)]
    assert served[1] >= min(rate, served[0]) - 1e-6
    dearest = max(pool.usd_per_hour for pool in pools)
    assert usd(filled) <= usd(best) + dearest + sum(p.floor * p.usd_per_hour for p in pools) + 1e-6
    assert all(pool.floor <= count <= pool.most for count, pool in zip(filled, pools, strict=True))
