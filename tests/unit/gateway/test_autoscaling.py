"""Desired replicas per pool, for low, high and unknown load."""

import numpy as np

from penstock.gateway.state.routed_fleet import RoutedClass, RoutedFleet, RoutedPool
from penstock.gateway.state.shared_tables import COUNTS, PICKER_STATE, REPORT
from penstock.gateway.telemetry.autoscaling import DECIDE_EVERY_S, DesiredReplicas
from penstock.routing.records import new_endpoints


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


class Gateway:
    """A scraper that looks every 15 s at a fleet whose endpoints all answer."""

    def __init__(self) -> None:
        self.routed = fleet()
        self.reports, self.counts = np.zeros(8, REPORT), np.zeros((1, 8), COUNTS)
        self.states, self.now_s = np.zeros(1, PICKER_STATE), 1000.0
        self.reports["healthy"] = 1
        self.desired = DesiredReplicas(self.routed)
        self.desired.begin(self.routed, self.counts, self.states, self.now_s)

    def decide(self, rate: float, *, times: int = 1) -> list[float]:
        for _ in range(times):
            self.now_s += DECIDE_EVERY_S
            self.counts["picked"][0] += np.int64(rate * DECIDE_EVERY_S / 8)
            self.desired.decide(self.reports, self.counts, self.states, self.now_s)
        return self.metrics("penstock_desired_replicas")

    def metrics(self, metric: str) -> list[float]:
        return list(self.desired.metrics(self.reports)[metric][1])


MINUTES = int(60 / DECIDE_EVERY_S)


def test_desired_replicas_after_start_are_those_up() -> None:
    gateway = Gateway()
    gateway.reports["healthy"][6:] = 0
    assert gateway.metrics("penstock_desired_replicas") == gateway.decide(0.0) == [4, 2]


def test_a_model_with_no_replica_up_gets_its_whole_pool() -> None:
    gateway = Gateway()
    gateway.reports["healthy"] = 0
    assert gateway.metrics("penstock_desired_replicas") == gateway.decide(0.0) == [4, 4]


def test_up_replicas_are_published_from_the_start() -> None:
    """Attack: it read 0 until the scaler was asked for the first time, after 15 s."""
    assert Gateway().metrics("penstock_up_replicas") == [4, 4]


def test_low_load_uses_the_cheap_pool_and_high_load_all() -> None:
    rates = Gateway().metrics("penstock_replica_sustained_requests_per_second")
    assert min(rates) > 1
    assert Gateway().decide(0.5 * rates[1], times=20 * MINUTES) == [0, 1]
    assert Gateway().decide(3.0 * rates[1], times=20 * MINUTES) == [0, 4]
    assert Gateway().decide(10 * sum(rates), times=20 * MINUTES) == [4, 4]


def test_no_replica_is_removed_early_and_the_last_one_never() -> None:
    """Attack: 41 s after a start, 20 s after its load ended, the only pool of a model was wanted 0 times."""
    gateway = Gateway()
    gateway.decide(80.0)
    assert gateway.decide(0.0, times=9 * MINUTES) == [4, 4]
    assert gateway.decide(0.0, times=60 * MINUTES) == [0, 1]


def test_a_reload_keeps_the_history_and_counts_shed_requests_once() -> None:
    gateway = Gateway()
    rate = gateway.metrics("penstock_replica_sustained_requests_per_second")[1]
    gateway.states["refused"] = 1_000_000
    gateway.desired.begin(gateway.routed, gateway.counts, gateway.states, gateway.now_s)
    assert gateway.decide(0.5 * rate, times=20 * MINUTES) == [0, 1]
    gateway.counts["picked"] = 0
    gateway.desired.begin(gateway.routed, gateway.counts, gateway.states, gateway.now_s + 14.0)
    gateway.now_s += 14.0
    assert gateway.decide(0.5 * rate, times=2 * MINUTES) == [0, 1]


def test_a_long_sleep_resets_the_history() -> None:
    gateway = Gateway()
    assert gateway.decide(10.0, times=20 * MINUTES) == [0, 1]
    gateway.now_s += 600.0
    assert gateway.decide(0.0, times=9 * MINUTES) == [4, 4]
