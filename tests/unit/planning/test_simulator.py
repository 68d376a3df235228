"""The real simulator behind the seam: what pools sustain, and what a load does to them."""

from dataclasses import replace

import numpy as np
import pytest

from examples import deployment
from penstock.performance.shipped.shipped_drafts import own_drafts
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.planning.candidates.queueless_screen import QueuelessScreen
from penstock.planning.candidates.replica_capacity import Option
from penstock.planning.spec.plan_types import Bucket
from penstock.planning.spec.trace_lengths import trace_lengths
from penstock.planning.verification.pool_simulator import Simulator
from penstock.planning.verification.simulated_capacity import PoolLoad
from penstock.simulation.capacity import capacity
from penstock.simulation.placement import place
from penstock.simulation.replica import ReplicaPool
from penstock.workload import Empirical, Fixed, Poisson, SloClass, Workload, parse_slo
from penstock.workload.requests import Requests

SLO = parse_slo("ttft=1s,tpot=50ms,attain=95%")
SHORT, LONG = Bucket(input_tokens=1024, output_tokens=256), Bucket(input_tokens=8192, output_tokens=512)
LENGTHS = SHORT.input_tokens, SHORT.output_tokens
EFFICIENCIES = shipped_efficiencies()


def option(name: str = "llama-3.1-8b", accelerator: str = "mi300x") -> Option:
    return Option(
        id=f"{name} {accelerator}", weights="bf16", deployment=deployment(name, accelerator), measured_engine="vllm"
    )


PLACED = option()


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    return Simulator(QueuelessScreen(EFFICIENCIES))


def load(replicas: int, rate: float = 1.0, mix: tuple[tuple[Bucket, float], ...] = ((SHORT, 1.0),)) -> PoolLoad:
    return PoolLoad(option=PLACED, replicas=replicas, mix=mix, requests_per_s=rate * replicas, slo=SLO)


def test_a_queue_never_lets_replicas_carry_much_more_than_the_closed_loop_says(simulator: Simulator) -> None:
    without = simulator.loop.alone(PLACED, SHORT, SLO).requests_per_s.value
    one, eight = (simulator.sustained(load(count, without)) / count for count in (1, 8))
    assert 0.3 * without < one < eight <= 1.1 * without


def test_a_sketch_is_within_six_percent(simulator: Simulator) -> None:
    assert simulator.sketched(load(8, 34.0)) == pytest.approx(simulator.sustained(load(8, 34.0)), rel=0.06)


def test_one_simulation_agrees_with_the_search_and_does_not_change_it() -> None:
    asked, plain = load(8, 34.0), Simulator(QueuelessScreen(EFFICIENCIES)).sketched(load(8, 34.0))
    probed = Simulator(QueuelessScreen(EFFICIENCIES))
    share = plain / asked.requests_per_s
    assert probed.sketch_carries(asked, 0.99 * share)
    assert not probed.sketch_carries(asked, 1.03 * share)
    assert probed.sketched(asked) == plain


def test_a_pool_at_its_capacity_keeps_the_slo_and_above_it_does_not(simulator: Simulator) -> None:
    rate = simulator.sustained(load(4, 34.0)) / 4
    assert simulator.attained(load(4, 0.99 * rate)) >= 0.95
    assert simulator.attained(load(4, 1.03 * rate)) < 0.95
    assert simulator.attained(load(4, 3 * rate)) < 0.1


def test_a_search_that_begins_where_others_of_its_kind_ended_ends_where_its_own_would(simulator: Simulator) -> None:
    alone, beside = Simulator(simulator.loop), Simulator(simulator.loop)
    beside.sustained(load(4, 34.0))
    assert beside.sustained(load(6, 34.0)) == pytest.approx(alone.sustained(load(6, 34.0)), rel=0.005)


def test_another_seed_gives_the_same_capacity_within_two_percent(simulator: Simulator) -> None:
    rates = [Simulator(simulator.loop, seed=seed).sustained(load(8, 34.0)) for seed in range(4)]
    assert max(rates) / min(rates) < 1.02


def test_a_mix_carries_less_than_the_short_and_more_than_the_long(simulator: Simulator) -> None:
    both = ((SHORT, 0.5), (LONG, 0.5))
    short, mixed, long = (simulator.sustained(load(4, 2.0, mix)) for mix in (((SHORT, 1.0),), both, ((LONG, 1.0),)))
    assert long < mixed < short


def test_what_does_not_fit_is_never_served(simulator: Simulator) -> None:
    large = replace(load(1), option=option("llama-3.1-405b", "h100"))
    assert simulator.sustained(large) == 0
    assert simulator.attained(large) == 0


def test_a_replica_carries_here_what_the_simulate_command_says_of_it(simulator: Simulator) -> None:
    classes = (SloClass(name="all", share_fraction=1.0, slo=SLO),)
    placed = place(PLACED.deployment, "vllm", EFFICIENCIES, typical_lengths=LENGTHS).replica
    assert placed is not None
    lengths = Fixed(input_tokens=SHORT.input_tokens, output_tokens=SHORT.output_tokens)
    workload = Workload(name="chat", arrivals=Poisson(), lengths=lengths, classes=classes)
    said = capacity([ReplicaPool(name="one", replica=placed)], workload, classes=classes).rate_per_s
    assert simulator.sustained(load(1, 30.0)) == pytest.approx(said, rel=0.01)


def test_a_trace_is_judged_by_its_rows_as_the_simulate_command_does(simulator: Simulator) -> None:
    """Answers far apart keep less than their mean says; what a plan sees is what `simulate --trace` shows."""
    generator = np.random.default_rng(3)
    inputs, outputs = generator.lognormal(7, 1, 4000) + 1, generator.lognormal(5, 1.2, 4000) + 1
    lengths = Empirical(input_tokens=inputs.astype(np.int32), output_tokens=outputs.astype(np.int32))
    seen = trace_lengths(
        [
            Requests(
                arrival_s=np.arange(4000.0),
                input_tokens=lengths.input_tokens,
                output_tokens=lengths.output_tokens,
                slo_class=np.zeros(4000, np.uint8),
            )
        ]
    )
    by_rows = load(2, 20.0, tuple((share.bucket, share.fraction) for share in seen.shares))
    by_means = replace(by_rows, mix=tuple((bucket.at_its_mean(), fraction) for bucket, fraction in by_rows.mix))
    classes = (SloClass(name="all", share_fraction=1.0, slo=SLO),)
    placed = place(PLACED.deployment, "vllm", EFFICIENCIES, typical_lengths=by_rows.mean_lengths).replica
    assert placed is not None
    workload = Workload(name="trace", arrivals=Poisson(), lengths=lengths, classes=classes)
    said = capacity([ReplicaPool(name="two", replica=placed, replicas=2)], workload, classes=classes).rate_per_s
    assert simulator.sustained(by_rows) == pytest.approx(said, rel=0.015)
    assert simulator.sustained(by_means) > 1.05 * said


def test_a_pool_that_drafts_is_the_one_simulate_lays_out() -> None:
    placed = replace(deployment("deepseek-r1", "h200", tp=8), speculative=True)
    drafts = own_drafts(placed.model, "vllm", "nvidia")
    drafting = Option(id="drafting", weights="fp8", deployment=placed, measured_engine="vllm", speculation=drafts)
    simulator = Simulator(QueuelessScreen(EFFICIENCIES))
    laid = place(placed, "vllm", EFFICIENCIES, typical_lengths=LENGTHS, speculation=drafts)
    assert simulator.place(drafting, LENGTHS).replica == laid.replica
