"""The seam to the simulator: what it is asked, and what becomes of its answers."""

from dataclasses import replace

import pytest

from examples import deployment
from penstock.fleet.deployment import Parallelism
from penstock.planning.candidates.replica_capacity import Option, length_by_length, mixed_rate
from penstock.planning.optimizer.resize_fleet import nodes_needed, one_world
from penstock.planning.plan_result import Answer
from penstock.planning.spec.plan_types import Bucket
from penstock.planning.verification.serving_fleet import RequestStream, ServingFleet, ServingPool
from penstock.planning.verification.simulated_capacity import PoolLoad, simulated_capacity, verify_by
from penstock.planning.verification.verify_fleet import with_simulated_rates
from penstock.workload import parse_slo
from small_plans import PEOPLE, TWO_PARTS, capacities, plan_of, solved

SHORT, LONG = Bucket(input_tokens=1024, output_tokens=256), Bucket(input_tokens=8192, output_tokens=512)
SLO = parse_slo("ttft=1s,tpot=50ms,attain=95%")
OPTION = Option(
    id="chat mi300x tp1", weights="bf16", deployment=deployment("llama-3.1-8b", "mi300x"), measured_engine="vllm"
)
CHAT = plan_of(TWO_PARTS).workloads[0]


def test_replicas_are_asked_about_together_and_with_the_workloads_mix() -> None:
    asked: list[PoolLoad] = []
    predicted = length_by_length(capacities({"mi300x": 40.0}, spread=0.3))

    def sustained(load: PoolLoad) -> float:
        asked.append(load)
        return 0.8 * load.requests_per_s

    alone = predicted(OPTION, CHAT)
    found = simulated_capacity(sustained, predicted)(OPTION, CHAT)
    (load,) = asked
    each = mixed_rate((0.6, 0.4), tuple(entry.requests_per_s.value for entry in alone))
    assert [bucket for bucket, _ in load.mix] == [share.bucket for share in CHAT.shares]
    assert [fraction for _, fraction in load.mix] == pytest.approx([0.6, 0.4], rel=0.001)
    assert load.replicas == -(-CHAT.peak_requests_per_s // each)
    assert load.requests_per_s == pytest.approx(load.replicas * each)
    for one, before in zip(found, alone, strict=True):
        rate, was = one.requests_per_s, before.requests_per_s
        assert (rate.low, rate.value, rate.high) == pytest.approx((0.8 * was.low, 0.8 * was.value, 0.8 * was.high))
        assert one.grounds.startswith("simulated")
        assert one.prefill_fraction == 0.25


def test_what_the_prediction_rules_out_is_not_simulated_and_a_rate_of_zero_cannot() -> None:
    def never(_: PoolLoad) -> float:
        raise AssertionError

    unable, able = (length_by_length(capacities({accelerator: 1.0})) for accelerator in ("h100", "mi300x"))
    assert not any(entry.meets_slo for entry in simulated_capacity(never, unable)(OPTION, CHAT))
    assert not any(entry.meets_slo for entry in simulated_capacity(lambda _: 0.0, able)(OPTION, CHAT))


def fleet(first_share: float, replicas: int = 2) -> ServingFleet:
    pools = tuple(ServingPool(id=name, option=OPTION, replicas=replicas) for name in ("one", "two"))
    shares = {"one": first_share, "two": 1 - first_share}
    return ServingFleet(
        period=0,
        pools=pools,
        streams=(
            RequestStream(workload="chat", bucket=SHORT, slo=SLO, requests_per_s=30.0, shares=shares),
            RequestStream(workload="chat", bucket=LONG, slo=SLO, requests_per_s=10.0, shares={"two": 1.0}),
        ),
    )


def test_a_rare_length_keeps_its_share_of_the_work() -> None:
    """One request in two hundred is longer than the others together: left out, half of the work would be."""
    loads: list[PoolLoad] = []
    rare = Bucket(input_tokens=120_000, output_tokens=500)
    weights = {SHORT: 0.995, rare: 0.005}
    streams = tuple(
        RequestStream(workload="chat", bucket=bucket, slo=SLO, requests_per_s=100 * weight, shares={"one": 1.0})
        for bucket, weight in weights.items()
    )
    pools = (ServingPool(id="one", option=OPTION, replicas=1),)
    served = ServingFleet(period=0, pools=pools, streams=streams)

    def attained(load: PoolLoad) -> float:
        loads.append(load)
        return 0.99

    verify_by(lambda load: load.requests_per_s, attained)(served)
    assert loads
    assert {bucket: fraction for load in loads for bucket, fraction in load.mix} == pytest.approx(weights, rel=0.001)


def test_each_pool_is_asked_about_the_requests_it_is_given_and_judged_by_itself() -> None:
    loads: list[PoolLoad] = []

    def attained(load: PoolLoad) -> float:
        loads.append(load)
        return 0.5 if any(bucket == LONG for bucket, _ in load.mix) else 0.99

    first, second = verify_by(lambda load: 1.5 * load.requests_per_s, attained)(fleet(1 / 3))
    # The first pool holds, so it is asked again with what each of its two replicas would get if it were one.
    assert [load.requests_per_s for load in loads] == pytest.approx([30 / 3, 30 / 3 * 2, 30 * 2 / 3 + 10])
    assert loads[0].mix == ((SHORT, 1.0),)
    assert dict(loads[2].mix) == pytest.approx({SHORT: 20 / 30, LONG: 10 / 30}, abs=0.02)
    assert (first.pool, first.met, second.pool, second.met) == ("one", True, "two", False)
    assert first.sustained_share == pytest.approx(1.5)


def test_a_large_pool_is_simulated_as_a_smaller_one_with_its_share_of_the_load() -> None:
    loads: list[PoolLoad] = []

    def sustained(load: PoolLoad) -> float:
        loads.append(load)
        return load.requests_per_s

    checks = verify_by(sustained, lambda _: 1.0)(fleet(1.0, replicas=50))
    assert loads[0].replicas == 32
    assert loads[0].requests_per_s == pytest.approx(30 * 32 / 50)
    assert checks[0].sustained_share == pytest.approx(1.0)


@pytest.mark.parametrize(("dp", "replicas", "simulated"), [(8, 50, 4), (8, 3, 3), (4, 7, 7), (4, 50, 8), (64, 3, 1)])
def test_a_replica_of_many_ranks_counts_as_many_queues(dp: int, replicas: int, simulated: int) -> None:
    ranks = replace(OPTION.deployment, parallelism=Parallelism(dp=dp))
    wide = replace(
        fleet(1.0), pools=(ServingPool(id="one", option=replace(OPTION, deployment=ranks), replicas=replicas),)
    )
    loads: list[PoolLoad] = []

    def sustained(load: PoolLoad) -> float:
        loads.append(load)
        return load.requests_per_s

    verify_by(sustained, lambda _: 1.0)(wide)
    assert {load.replicas for load in loads} == {simulated}


def test_a_large_pool_is_searched_first_so_that_its_load_need_not_be_tried() -> None:
    asked: list[str] = []

    def sustained(load: PoolLoad) -> float:
        asked.append("sustained")
        return load.requests_per_s

    def attained(_: PoolLoad) -> float:
        asked.append("attained")
        return 1.0

    verify_by(sustained, attained)(replace(fleet(1.0, replicas=50), streams=fleet(1.0).streams[:1]))
    assert asked == ["sustained", "attained"]


def test_a_pool_that_holds_and_would_not_with_one_replica_less_is_just_right() -> None:
    def never(_: PoolLoad) -> float:
        raise AssertionError

    def attained(load: PoolLoad) -> float:
        return 0.96 if load.requests_per_s <= 30 else 0.1

    one, two = verify_by(never, attained, sizing=True)(fleet(2 / 3))
    assert one.just_right
    assert two.just_right
    assert (one.sustained_share, two.sustained_share) == (1.0, 1.0)
    # The fleet that is left is searched: other demands are judged by what its pools carry at most.
    one, two = verify_by(lambda _: 30.0, attained)(fleet(2 / 3))
    assert one.just_right
    assert one.sustained_share == pytest.approx(30 / 20)


def test_a_pool_that_gets_nothing_is_not_simulated() -> None:
    empty = replace(fleet(1.0), streams=fleet(1.0).streams[:1])
    assert [check.pool for check in verify_by(lambda _: 1.0, lambda _: 1.0)(empty)] == ["one"]


@pytest.mark.parametrize(("carries", "grows"), [(0.7, True), (1.4, False)])
def test_a_plan_is_grown_or_shrunk_to_what_its_pools_carry(carries: float, *, grows: bool) -> None:
    """Each replica carries `carries` times what it was planned with, whatever the length."""
    per_device = 6.0

    def sustained(load: PoolLoad) -> float:
        return carries * per_device * load.replicas * 1000 / sum(load.mean_lengths)

    def attained(load: PoolLoad) -> float:
        return 0.955 if load.requests_per_s <= sustained(load) * 1.0001 else 0.5

    planned = {"mi300x": per_device, "h200_sxm": per_device}
    text = TWO_PARTS.replace("requests_per_s: 40", "requests_per_s: 400")
    answer = solved(text, planned, verify_of=verify_by(sustained, attained)).answer
    assert isinstance(answer, Answer)
    first = answer.verified[0]
    assert first.met
    assert (first.added_usd > 0) == grows
    assert all(check.just_right or 1 <= (check.sustained_share or 0.0) < 1.1 for check in first.pools)


def test_a_verified_fleet_is_as_large_as_one_planned_with_the_true_capacity() -> None:
    def sustained(load: PoolLoad) -> float:
        return 9.0 * load.replicas * 1000 / sum(load.mean_lengths)

    def attained(load: PoolLoad) -> float:
        return 0.955 if load.requests_per_s <= sustained(load) * 1.0001 else 0.5

    text = TWO_PARTS.replace("requests_per_s: 40", "requests_per_s: 400")
    wrong = solved(text, {"mi300x": 6.0}, verify_of=verify_by(sustained, attained)).answer
    right = solved(text, {"mi300x": 9.0}).answer
    assert isinstance(wrong, Answer)
    assert isinstance(right, Answer)
    assert wrong.winner.cost.total_usd == pytest.approx(right.winner.cost.total_usd, rel=0.03)


@pytest.mark.parametrize("carries", [0.7, 1.0, 1.4])
@pytest.mark.parametrize("rate", [40, 150, 333, 400])
def test_a_fleet_carries_what_it_was_seen_to_and_has_the_nodes_it_needs_for_that(carries: float, rate: int) -> None:
    """What demand does to it is judged by that: a pool that is just right has room for less than one more node."""

    def sustained(load: PoolLoad) -> float:
        return carries * 6.0 * load.replicas * 1000 / sum(load.mean_lengths)

    def attained(load: PoolLoad) -> float:
        return 0.955 if load.requests_per_s <= sustained(load) * 1.0001 else 0.5

    text = TWO_PARTS.replace("requests_per_s: 40", f"requests_per_s: {rate}")
    verify, sizing = verify_by(sustained, attained), verify_by(sustained, attained, sizing=True)
    result = solved(text, {"mi300x": 6.0, "h200_sxm": 6.0}, verify_of=verify, sizing_of=sizing)
    answer = result.answer
    assert isinstance(answer, Answer)
    for entry in answer.verified:
        if entry.met:
            nodes, enough = nodes_needed(entry.mix, result.problem, one_world())
            assert enough.all()
            assert nodes[0] == sum(pool.nodes for pool in entry.mix.pools)
            for pool in entry.mix.pools:
                assert all(factor <= carries * 1.03 for factor in pool.carried.values())


@pytest.mark.parametrize("rate", [40, 47, 61])
def test_replicas_put_on_devices_left_over_are_not_said_to_be_needed(rate: int) -> None:
    """Two workloads on one accelerator: nodes are whole, and what exceeds the need goes when demand does."""

    def sustained(load: PoolLoad) -> float:
        return 6.0 * load.replicas * 1000 / sum(load.mean_lengths)

    def attained(load: PoolLoad) -> float:
        return 0.955 if load.requests_per_s <= sustained(load) * 1.0001 else 0.5

    text = TWO_PARTS.replace("requests_per_s: 40", f"requests_per_s: {rate}")
    (first,) = text[text.index("  - name: chat") : text.index("accelerators:")].split("\n\n")
    text = text.replace(first, first + first.replace("name: chat", "name: docs"))
    verify, sizing = verify_by(sustained, attained), verify_by(sustained, attained, sizing=True)
    result = solved(text, {"mi300x": 6.0, "h200_sxm": 6.0}, verify_of=verify, sizing_of=sizing)
    assert isinstance(result.answer, Answer)
    mixed = [
        pool for entry in result.answer.verified if entry.met for pool in entry.mix.pools if len(pool.replicas) > 1
    ]
    assert mixed
    for pool in mixed:
        assert all(0.97 < factor < 1.03 for factor in pool.carried.values()), pool.carried


@pytest.mark.parametrize(("carries", "serves"), [(1.06, True), (1.0, False)])
def test_no_fleet_is_said_only_where_simulation_finds_none_either(carries: float, *, serves: bool) -> None:
    """Eight replicas say what one carries; in a pool of sixty it carries more, and a limit on nodes may just hold."""

    def sustained(load: PoolLoad) -> float:
        return carries * 6.0 * load.replicas * 1000 / sum(load.mean_lengths)

    def attained(load: PoolLoad) -> float:
        return 0.955 if load.requests_per_s <= sustained(load) * 1.0001 else 0.5

    demand = TWO_PARTS.replace("requests_per_s: 40", "requests_per_s: 400")
    free = solved(demand, {"mi300x": 6.0, "h200_sxm": 6.0}).answer
    assert isinstance(free, Answer)
    (pool,) = free.by_label["amd"].mix.pools
    short = demand.replace("tp: [1]}", f"tp: [1], max_nodes: {pool.nodes - 1}}}", 1)
    short += "sites: [{name: main, deny: [nvidia]}]\n"
    answer = solved(short, {"mi300x": 6.0, "h200_sxm": 6.0}, verify_of=verify_by(sustained, attained)).answer
    assert isinstance(answer, Answer) == serves


def test_a_kind_of_fleet_that_just_holds_is_not_missed_where_another_is_dearer() -> None:
    """Pools of eight say a limit on nodes is too tight for one vendor; its own pool carries a little more."""

    def sustained(load: PoolLoad) -> float:
        return 1.06 * 6.0 * load.replicas * 1000 / sum(load.mean_lengths)

    def attained(load: PoolLoad) -> float:
        return 0.955 if load.requests_per_s <= sustained(load) * 1.0001 else 0.5

    demand = TWO_PARTS.replace("requests_per_s: 40", "requests_per_s: 400").replace(
        PEOPLE, "stacks: {amd: {engineers_per_1000_devices: 0}}\n"
    )
    free = solved(demand, {"mi300x": 6.0, "h200_sxm": 6.0}).answer
    assert isinstance(free, Answer)
    (pool,) = free.by_label["amd"].mix.pools
    tight = demand.replace("tp: [1]}", f"tp: [1], max_nodes: {pool.nodes - 1}}}", 1)
    for simulated in (None, verify_by(sustained, attained)):
        answer = solved(tight, {"mi300x": 6.0, "h200_sxm": 6.0}, verify_of=simulated).answer
        assert isinstance(answer, Answer)
        assert ("amd" in answer.by_label) == (simulated is not None)


def test_a_pool_that_serves_nothing_in_a_period_carries_as_planned() -> None:
    """A node that was bought for a later step stands there without a replica."""
    result = solved(TWO_PARTS)
    assert isinstance(result.answer, Answer)
    mix = result.answer.winner.mix
    idle = replace(mix, pools=tuple(replace(pool, replicas={}, load={}) for pool in mix.pools))
    assert all(not pool.carried for pool in with_simulated_rates(idle, {}, result.problem).pools)


def test_a_pool_with_room_takes_over_load_before_another_node_is_added() -> None:
    """One accelerator carries 3% less than estimated and the other 7% more: no node of the dearer one is needed."""
    true = {"mi300x": 5.8, "h200_sxm": 6.4}

    def sustained(load: PoolLoad) -> float:
        return true[load.option.deployment.accelerator.id] * load.replicas * 1000 / sum(load.mean_lengths)

    def attained(load: PoolLoad) -> float:
        return 0.955 if load.requests_per_s <= sustained(load) * 1.0001 else 0.5

    text = TWO_PARTS.replace("requests_per_s: 40", "requests_per_s: 61") + "constraints: {min_vendors: 2}\n"
    verify, sizing = verify_by(sustained, attained), verify_by(sustained, attained, sizing=True)
    answer = solved(text, dict.fromkeys(true, 6.0), verify_of=verify, sizing_of=sizing).answer
    assert isinstance(answer, Answer)
    assert {pool.offer.accelerator: pool.nodes for pool in answer.winner.mix.pools} == {"mi300x": 7, "h200_sxm": 2}
