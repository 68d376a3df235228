"""Models on shared devices: memory is never exceeded, no request is lost, and one model is simulated as before."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import DeploymentError, UsageError
from penstock.fleet.pools import Eviction
from penstock.simulation.loop.world import SWAP_WAKE
from penstock.simulation.model_swapping import SwappedModel, SwappingDevice
from penstock.simulation.outcome import Outcome
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Fault, Options, Routing
from penstock.workload import Requests, SloClass
from penstock.workload.slo import parse_slo
from simulated import conversation_lengths, pool, requests, result_bytes

EVICTIONS: tuple[Eviction, ...] = ("least-recently-used", "least-harm")


def model(name: str, size: int = 10, **stated: object) -> SwappedModel:
    return SwappedModel(pool=name, awake_bytes=size, **stated)  # type: ignore[arg-type] # whatever a test states


def run(
    pools: list[ReplicaPool], devices: list[SwappingDevice], asked: Requests, owner: list[int], slo: str = "ttft=2s"
) -> Outcome:
    """Simulate requests, each for the pool that `owner` names by number."""
    left = iter(owner)
    options = Options(
        devices=tuple(devices),
        pool_of=lambda block: np.array([next(left) for _ in range(len(block))], np.int16),
        keep_requests=True,
        log_swaps=100_000,
    )
    classes = (SloClass(name="all", share_fraction=1.0, slo=parse_slo(slo)),)
    return simulate(pools, [asked], classes=classes, options=options)


def mixed(count: int, rate_per_s: float, models: int, seed: int) -> tuple[Requests, list[int]]:
    owner = np.random.default_rng(seed).integers(0, models, count)
    return conversation_lengths(count, rate_per_s, seed), [int(one) for one in owner]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("kv_blocks", [8000, 700])
def test_one_model_on_a_shared_device_is_simulated_as_before(kv_blocks: int, *, asynchronous: bool) -> None:
    """Also if blocks run out and requests are preempted, and in a closed loop."""
    one = pool(kv_blocks)
    one = replace(one, replica=replace(one.replica, asynchronous=asynchronous, request_s=0.01, first_ratio=1.1))
    shared = (SwappingDevice(name="gpu", capacity_bytes=10, models=(model("one", awake=True),)),)
    asked = conversation_lengths(800, 12.0)
    for options in (Options(keep_requests=True), Options(keep_requests=True, users=20)):
        before = simulate([one], [asked], options=options)
        after = simulate([one], [asked], options=replace(options, devices=shared))
        assert result_bytes(after) == result_bytes(before)
        assert after.makespan_s == before.makespan_s
        assert after.devices[0].cold_starts == 0


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 8), min_size=2, max_size=6),
    room=st.integers(0, 10),
    rate_per_s=st.floats(0.2, 20.0),
    eviction=st.sampled_from(EVICTIONS),
    asynchronous=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_memory_is_never_exceeded_and_no_request_is_lost(
    sizes: list[int], room: int, rate_per_s: float, eviction: Eviction, seed: int, *, asynchronous: bool
) -> None:
    capacity = max(sizes) + room + len(sizes)
    names = [f"m{index}" for index in range(len(sizes))]
    pools = [pool(700, name=name) for name in names]
    pools = [replace(one, replica=replace(one.replica, asynchronous=asynchronous)) for one in pools]
    models = tuple(
        model(name, size + 1, asleep_bytes=1, wake_s=0.3 * size, sleep_s=0.1 * size, patience_s=2.0)
        for name, size in zip(names, sizes, strict=True)
    )
    device = SwappingDevice(name="gpu", capacity_bytes=capacity, models=models, eviction=eviction)
    asked, owner = mixed(120, rate_per_s, len(sizes), seed)
    outcome = run(pools, [device], asked, owner)
    assert outcome.requests == 120
    assert outcome.served is not None
    assert np.isfinite(outcome.served.e2e_s).all()
    assert outcome.devices[0].peak_bytes <= capacity
    assert outcome.devices[0].busy_fraction <= 1 + 1e-9
    # The log alone, added up without the simulator's own account.
    assert outcome.swaps is not None
    taken, awake = len(sizes), set()
    for swap in outcome.swaps:
        replica = int(swap["replica"])
        if swap["kind"] == SWAP_WAKE:
            assert replica not in awake
            awake.add(replica)
            taken += sizes[replica]
        else:
            awake.remove(replica)
            taken -= sizes[replica]
        assert taken <= capacity
    assert sum(one.cold_starts for one in outcome.pools) == (outcome.swaps["kind"] == SWAP_WAKE).sum()


def test_the_first_request_of_a_sleeping_model_waits_for_its_wake() -> None:
    asked = requests([0.0, 100.0], [(100, 10), (100, 10)])
    names = ["a"]
    warm = run(
        [pool(name="a")],
        [SwappingDevice(name="gpu", capacity_bytes=10, models=(model("a", awake=True, wake_s=3.0),))],
        asked,
        [0, 0],
    )
    cold = run(
        [pool(name=name) for name in names],
        [SwappingDevice(name="gpu", capacity_bytes=10, models=(model("a", wake_s=3.0),))],
        asked,
        [0, 0],
    )
    assert warm.served is not None
    assert cold.served is not None
    assert cold.served.ttft_s[0] == pytest.approx(warm.served.ttft_s[0] + 3.0)
    assert cold.served.ttft_s[1] == warm.served.ttft_s[1]
    assert (cold.classes[0].cold, cold.classes[0].cold_missed) == (1, 1)
    assert cold.cold_missed_fraction == 1.0
    assert warm.cold_missed_fraction is None


def test_models_awake_together_take_turns_and_finish_later_than_alone() -> None:
    asked = requests([0.0, 0.0], [(200, 200), (200, 200)])
    pools = [pool(name="a"), pool(name="b")]
    alone = run(pools, [], asked, [0, 1])
    device = SwappingDevice(name="gpu", capacity_bytes=20, models=(model("a", awake=True), model("b", awake=True)))
    shared = run(pools, [device], asked, [0, 1])
    assert alone.served is not None
    assert shared.served is not None
    # One step each in turn: twice the time, for both.
    assert shared.served.e2e_s == pytest.approx(2 * alone.served.e2e_s, rel=0.02)
    assert shared.devices[0].busy_fraction == pytest.approx(1.0)


def two_of_three(eviction: Eviction) -> SwappingDevice:
    models = tuple(model(name, awake=name != "c", wake_s=1.0, patience_s=2.0) for name in "abc")
    return SwappingDevice(name="gpu", capacity_bytes=20, models=models, eviction=eviction)


def test_least_recently_used_and_least_harm_evict_different_models() -> None:
    """Model a is asked often and then not for a while; model b once, later. Then c needs memory."""
    arrivals = [*np.arange(0.0, 300.0, 10.0), 320.0, 340.0, 360.0]
    owner = [0] * 30 + [1, 2, 0]
    asked = requests(arrivals, [(50, 5)] * len(arrivals))
    pools = [pool(name=name) for name in "abc"]
    by_use = run(pools, [two_of_three("least-recently-used")], asked, owner)
    by_harm = run(pools, [two_of_three("least-harm")], asked, owner)
    assert [one.evictions for one in by_use.pools] == [1, 1, 0]
    assert [one.evictions for one in by_harm.pools] == [0, 1, 0]


def test_a_model_with_work_drains_for_a_model_that_waits() -> None:
    """Requests of a keep coming, so it is never idle; b waits until the running requests of a are done."""
    arrivals = [*np.arange(0.0, 20.0, 0.2)]
    owner = [0] * 100
    owner[50] = 1
    asked = requests(arrivals, [(50, 100)] * 100)
    device = SwappingDevice(name="gpu", capacity_bytes=10, models=(model("a", awake=True), model("b")))
    outcome = run([pool(name="a"), pool(name="b")], [device], asked, owner)
    assert outcome.requests == 100
    assert outcome.served is not None
    assert outcome.served.ttft_s[50] < 5.0
    assert [one.evictions for one in outcome.pools] == [1, 1]


def test_a_model_that_is_kept_awake_never_sleeps() -> None:
    device = SwappingDevice(
        name="gpu",
        capacity_bytes=20,
        models=(model("a", kept_awake=True), model("b", wake_s=0.1), model("c", wake_s=0.1)),
    )
    asked, owner = mixed(200, 2.0, 3, seed=5)
    outcome = run([pool(name=name) for name in "abc"], [device], asked, owner)
    assert outcome.pools[0].evictions == 0
    assert outcome.pools[1].evictions > 0


def test_a_request_goes_to_the_device_where_its_model_is_awake() -> None:
    devices = [
        SwappingDevice(name="first", capacity_bytes=10, models=(model("a", wake_s=5.0),)),
        SwappingDevice(name="second", capacity_bytes=10, models=(model("a", awake=True, wake_s=5.0),)),
    ]
    asked = conversation_lengths(50, 1.0)
    outcome = run([pool(name="a", replicas=2)], devices, asked, [0] * 50)
    assert [one.cold_starts for one in outcome.devices] == [0, 0]
    assert [one.finished for one in outcome.replicas] == [0, 50]


def test_what_cannot_be_shared_is_refused() -> None:
    with pytest.raises(DeploymentError, match="never fits"):
        SwappingDevice(name="gpu", capacity_bytes=15, models=(model("a", kept_awake=True), model("b")))
    with pytest.raises(DeploymentError, match="exceed its memory"):
        SwappingDevice(name="gpu", capacity_bytes=15, models=(model("a", awake=True), model("b", awake=True)))
    device = SwappingDevice(name="gpu", capacity_bytes=15, models=(model("a"),))
    with pytest.raises(DeploymentError, match="does not exist"):
        run([pool(name="b")], [device], requests([0.0], [(10, 10)]), [0])
    with pytest.raises(DeploymentError, match="2 replicas, but 1 places"):
        run([pool(name="a", replicas=2)], [device], requests([0.0], [(10, 10)]), [0])
    with pytest.raises(UsageError, match="without faults"):
        Options(devices=(device,), routing=Routing(faults=(Fault(kind="dies", replica=0, at_s=1.0),)))
