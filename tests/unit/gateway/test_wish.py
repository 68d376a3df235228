"""The gateway says how many replicas should be up: few at night, all at the peak, each model by itself."""

import numpy as np

from penstock.gateway.state.fleet import RoutedClass, RoutedFleet, RoutedPool
from penstock.gateway.state.tables import COUNTS, PICKER_STATE, REPORT
from penstock.gateway.watching.wish import WISH_EVERY_S, ReplicaWish
from penstock.routing.endpoint import new_endpoints


def fleet() -> RoutedFleet:
    kinds = new_endpoints(2)
    kinds["step_s"], kinds["prompt_token_s"], kinds["usd_per_s"] = 0.01, [1e-5, 2e-5], [4 / 3600, 1 / 3600]
    kinds["kv_tokens"], kinds["max_running"], kinds["step_tokens"] = 500_000, 64, 8192
    kinds["first_token_ratio"] = kinds["prefill_correction"] = kinds["decode_correction"] = 1.0
    names = ["dear"] * 4 + ["cheap"] * 4
    return RoutedFleet(
        name="two",
        addresses=tuple(f"127.0.0.1:{port}" for port in range(8)),
        pools=tuple(names),
        engines=("vllm",) * 8,
        models=("llama",),
        served=("llama",) * 8,
        classes=(
            RoutedClass(name="chat", model="llama", input_tokens=1000, output_tokens=200, ttft_s=1.0, tpot_s=0.05),
        ),
        endpoints=np.repeat(kinds, 4),
        kinds=(RoutedPool(name="dear", model="llama", most=4), RoutedPool(name="cheap", model="llama", most=4)),
        kind_records=kinds,
    )


def wanted_at(rate: float, minutes: float = 20.0) -> list[float]:
    routed = fleet()
    reports, counts, states = np.zeros(8, REPORT), np.zeros((1, 8), COUNTS), np.zeros(1, PICKER_STATE)
    reports["healthy"] = 1
    wish = ReplicaWish(routed)
    wish.begin(routed, counts, states)
    for turn in range(int(minutes * 60 / WISH_EVERY_S)):
        counts["picked"][0] += np.int64(rate * WISH_EVERY_S / 8)
        wish.look(reports, counts, states, 1000.0 + turn * WISH_EVERY_S)
    return list(wish.shown()["penstock_wanted_replicas"][1])


def test_all_are_wanted_until_a_load_was_seen() -> None:
    assert ReplicaWish(fleet()).shown()["penstock_wanted_replicas"][1] == [4, 4]


def test_a_small_load_wants_the_cheap_ones_and_a_large_one_all() -> None:
    rates = ReplicaWish(fleet()).shown()["penstock_replica_sustained_requests_per_second"][1]
    assert min(rates) > 1
    assert wanted_at(0.5 * rates[1]) == [0, 1]
    assert wanted_at(3.0 * rates[1]) == [0, 4]
    assert wanted_at(10 * sum(rates)) == [4, 4]
