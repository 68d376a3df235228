"""A policy sees what a gateway sees: old reports, its own requests, never the length of an answer."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.errors import DeploymentError
from penstock.routing.baselines.all_policies import POLICIES
from penstock.routing.policy_function import Pick
from penstock.routing.records import REQUEST, Records
from penstock.simulation.outcome import Outcome
from penstock.simulation.replica import Replica, ReplicaPool, Transfer
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Fault, Options, RouterVisibility, Routing
from penstock.workload import Fixed, Slo, SloClass, SystemPrompts, Workload
from penstock.workload.synthetic.arrivals import Poisson
from simulated import COST, conversation_lengths, pool, requests

PROMISED = (SloClass(name="all", share_fraction=1.0, slo=Slo(ttft_s=2.0, tpot_s=0.06)),)


def routed(
    pick: Pick | None = None, *, fleet: list[ReplicaPool] | None = None, count: int = 3_000, **more: object
) -> Outcome:
    routing = Routing(pick=pick, **more)  # type: ignore[arg-type]
    sent = conversation_lengths(count, 30.0)
    return simulate(
        fleet or [pool(replicas=4)], [sent], classes=PROMISED, options=Options(routing=routing, keep_requests=True)
    )


def always(index: int) -> Pick:
    def pick(_request: Records, _endpoints: Records, _hits: Records, _parameters: Records) -> int:
        return index

    return pick


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_serves_every_request_and_every_token(name: str) -> None:
    outcome = routed(POLICIES[name].pick)
    assert (outcome.requests, outcome.refused) == (3_000, 0)
    assert sum(replica.finished for replica in outcome.replicas) == 3_000
    assert outcome.output_tokens == sum(replica.output_tokens for replica in outcome.replicas)


def test_a_picker_learns_of_first_and_last_tokens_when_clients_see_them() -> None:
    seen: list[tuple[int, int]] = []

    def show(_request: Records, endpoints: Records, _hits: Records, _choice: int) -> None:
        seen.append((int(endpoints["prefilling"][0]), int(endpoints["in_flight"][0])))

    engine = pool()
    lagging = replace(engine, replica=replace(engine.replica, request_s=2.0))
    sent = requests([0.0, 1.9, 3.0, 9.0], [(100, 4)] * 4)
    simulate([lagging], [sent], options=Options(routing=Routing(sampled_every=1, show=show)))
    assert seen == [(0, 0), (1, 1), (1, 1), (0, 0)]


@pytest.mark.parametrize("name", POLICIES)
def test_decisions_replay_byte_for_byte(name: str) -> None:
    once, again = routed(POLICIES[name].pick), routed(POLICIES[name].pick)
    assert once.served is not None
    assert again.served is not None
    assert once.served.replica.tobytes() == again.served.replica.tobytes()
    assert once.served.e2e_s.tobytes() == again.served.e2e_s.tobytes()


def test_a_python_policy_decides_as_the_same_one_compiled() -> None:
    compiled = POLICIES["least-request"].pick
    source: Any = getattr(compiled, "py_func")  # noqa: B009 - not an attribute of every policy

    def interpreted(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:
        return int(source(request, endpoints, hits, parameters))

    once, again = routed(compiled, count=400), routed(interpreted, count=400)
    assert once.served is not None
    assert again.served is not None
    assert once.served.replica.tolist() == again.served.replica.tolist()


@pytest.mark.parametrize(
    ("index", "fix"), [(7, "endpoint 7, which is not in 0 to 3"), (10**12, "return"), (-(10**12), "return")]
)
def test_a_policy_that_chooses_no_endpoint_is_refused(index: int, fix: str) -> None:
    with pytest.raises(DeploymentError, match=fix) as caught:
        routed(always(index), count=10)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("answer", [-2, 1.7, "3", True, None, float("nan"), np.array([3]), np.zeros((40, 2))])
def test_an_answer_that_is_no_index_is_refused(answer: Any) -> None:  # noqa: ANN401 - whatever people return
    """Attack: -2 turned every request away, 1.7, "3" and True were cut to an index, None was a bare TypeError."""
    with pytest.raises(DeploymentError, match="return an endpoint's index as an int, or -1 to reject") as caught:
        routed(always(answer), count=10)
    assert len(str(caught.value).splitlines()) == 1


def test_a_numpy_integer_is_an_index() -> None:
    assert routed(always(np.int64(3)), count=10).requests == 10  # type: ignore[arg-type]


def test_a_rejection_is_counted_and_misses() -> None:
    outcome = routed(always(-1), count=10)
    assert (outcome.requests, outcome.refused) == (0, 10)
    assert outcome.classes[0].met_fraction == 0


def test_an_endpoint_too_small_for_a_request_turns_it_away() -> None:
    fleet = [pool(kv_blocks=4, name="small"), pool(name="large")]
    options = Options(routing=Routing(pick=always(0)))
    # 64 + 1 - 1 tokens fill the four blocks of 16; one more does not fit.
    assert simulate(fleet, [requests([0.0], [(64, 1)])], options=options).requests == 1
    outcome = simulate(fleet, [requests([0.0, 0.1], [(64, 2), (64, 1)])], options=options)
    assert (outcome.requests, outcome.refused) == (1, 1)


def test_a_route_to_a_decode_pool_is_refused() -> None:
    replica = Replica(cost=COST, kv_blocks=8000)
    fleet = [
        ReplicaPool(name="prefill", replica=replica, role="prefill", transfer=Transfer(token_s=0.0)),
        ReplicaPool(name="decode", replica=replica, role="decode"),
    ]
    with pytest.raises(DeploymentError, match="only decodes"):
        simulate(fleet, [requests([0.0], [(10, 2)])], options=Options(routing=Routing(pick=always(1))))


def test_no_policy_is_told_how_long_an_answer_will_be() -> None:
    expected: list[int] = []

    def spy(request: Records, _endpoints: Records, _hits: Records, _parameters: Records) -> int:
        expected.append(int(request[0]["expected_output_tokens"]))
        return 0

    sent = requests([float(number) for number in range(40)], [(100, 7 if number % 2 else 93) for number in range(40)])
    simulate([pool()], [sent], options=Options(routing=Routing(pick=spy, answer_tokens=300.0)))
    assert "output_tokens" not in (REQUEST.names or ())
    assert expected[0] == 300
    assert expected[-1] == pytest.approx((7 + 93) / 2, abs=3)


def test_reports_are_as_old_as_they_are_said_to_be() -> None:
    ages: list[float] = []

    def spy(request: Records, endpoints: Records, _hits: Records, _parameters: Records) -> int:
        ages.append(float(request[0]["now_s"] - endpoints[0]["reported_s"]))
        return 0

    sight = RouterVisibility(report_interval_s=0.5, report_delay_s=1.2)
    simulate(
        [pool(replicas=2)], [conversation_lengths(500, 10.0)], options=Options(routing=Routing(pick=spy, sight=sight))
    )
    settled = [age for age in ages if age < 1e9]
    assert len(settled) > 400
    assert min(settled) >= 1.2
    assert max(settled) <= 1.2 + 0.5 + 1e-9


def test_what_is_reported_is_true_when_it_is_asked_inside_a_leap() -> None:
    """64 requests of 16 tokens decode for 10 s; 8 s later each holds the blocks of 16 + 799 tokens."""
    seen: list[int] = []

    def spy(_request: Records, endpoints: Records, _hits: Records, _parameters: Records) -> int:
        seen.append(int(endpoints[0]["kv_used_tokens"]))
        return 0

    sent = requests([0.0] * 64 + [8.0], [(16, 1000)] * 64 + [(16, 10)])
    fleet = [pool(cost=COST)]
    simulate(fleet, [sent], options=Options(routing=Routing(pick=spy, sight=RouterVisibility(report_interval_s=0.001))))
    step_s = 8.0 / 600  # 12 ms and what 64 requests add: between 550 and 650 steps have ended
    assert 8.0 / 0.015 < 8.0 / step_s < 8.0 / 0.0125
    assert 64 * (16 + 8.0 / 0.015) < seen[-1] < 64 * (16 + 8.0 / 0.012 + 16)


SHARED = Workload(
    name="shared",
    arrivals=Poisson(),
    lengths=Fixed(input_tokens=100, output_tokens=10),
    sharing=SystemPrompts(prompts=1, tokens=1600),
)


def test_a_prefix_is_known_only_after_its_delay() -> None:
    hits: list[int] = []

    def spy(_request: Records, _endpoints: Records, found: Records, _parameters: Records) -> int:
        hits.append(int(found[0]))
        return 0

    for delay_s, first in ((0.0, 1), (5.0, 5)):
        hits.clear()
        blocks = SHARED.blocks(seed=0, requests=200, rate_per_s=1.0)
        simulate(
            [pool()], blocks, options=Options(routing=Routing(pick=spy, sight=RouterVisibility(cache_delay_s=delay_s)))
        )
        known = next(number for number, found in enumerate(hits) if found >= 1600)
        assert known >= first - 2
        assert (known <= 2) == (delay_s == 0.0)


def test_a_dead_endpoint_loses_only_what_it_had_begun() -> None:
    fault = Fault(kind="dies", replica=1, at_s=20.0, for_s=30.0)
    outcome = routed(faults=(fault,))
    assert (outcome.requests + outcome.lost, outcome.refused) == (3_000, 0)
    assert 0 < outcome.lost < 60
    assert outcome.served is not None
    down = (outcome.served.arrival_s > 20.0) & (outcome.served.arrival_s < 50.0)
    assert not (outcome.served.replica[down] == 1).any()
    back = outcome.served.arrival_s > 50.0
    assert (outcome.served.replica[back] == 1).any()


def test_a_slow_endpoint_is_given_less() -> None:
    outcome = routed(faults=(Fault(kind="slow", replica=2, at_s=10.0, factor=3.0),), count=6_000)
    assert outcome.requests == 6_000
    finished = [replica.finished for replica in outcome.replicas]
    assert finished[2] < 0.6 * np.mean(finished)


@pytest.mark.parametrize("pickers", [2, 8])
def test_pickers_that_share_nothing_serve_everything(pickers: int) -> None:
    outcome = routed(pickers=pickers)
    assert (outcome.requests, outcome.refused) == (3_000, 0)


@pytest.mark.parametrize("expert_s", [0.0, 0.004])
def test_a_policy_picks_replicas_and_their_engines_pick_ranks(expert_s: float) -> None:
    """One replica of four ranks and one of one: two addresses, and round robin halves the requests."""
    ranked = replace(COST, ranks=4, expert_s=expert_s, expert_miss=0.97)
    fleet = [
        ReplicaPool(name="ranks", replica=Replica(cost=ranked, kv_blocks=8000)),
        pool(name="plain"),
    ]
    outcome = routed(POLICIES["round-robin"].pick, fleet=fleet)
    assert (outcome.requests, outcome.refused) == (3_000, 0)
    assert [replica.finished for replica in outcome.replicas] == [1_500, 1_500]
    assert outcome.served is not None
    assert set(outcome.served.picked.tolist()) == {0, 1}
    by_rank = np.bincount(outcome.served.replica, minlength=5)
    assert by_rank[4] == 1_500
    assert by_rank[:4].min() > 300


def test_ranks_are_reported_together_and_one_of_them_must_hold_a_request() -> None:
    seen: list[Records] = []

    def spy(_request: Records, endpoints: Records, _hits: Records, _parameters: Records) -> int:
        seen.append(endpoints.copy())
        return 0

    ranked = Replica(cost=replace(COST, ranks=4), kv_blocks=100)
    sent = requests([0.0] * 8 + [1.0], [(160, 400)] * 9)
    fleet = [ReplicaPool(name="ranks", replica=ranked)]
    simulate(fleet, [sent], options=Options(routing=Routing(pick=spy, sight=RouterVisibility(report_interval_s=0.01))))
    assert {len(endpoints) for endpoints in seen} == {1}
    (last,) = seen[-1]
    assert (last["running"] + last["waiting"], last["kv_tokens"]) == (8, 4 * 1600)
    assert last["max_context_tokens"] == 1600
    assert last["kv_used_tokens"] > 8 * 160


def test_a_prefix_on_any_rank_is_known_of_the_replica() -> None:
    hits: list[int] = []

    def spy(_request: Records, _endpoints: Records, found: Records, _parameters: Records) -> int:
        hits.append(int(found[0]))
        return 0

    fleet = [ReplicaPool(name="ranks", replica=Replica(cost=replace(COST, ranks=4), kv_blocks=8000))]
    blocks = SHARED.blocks(seed=0, requests=20, rate_per_s=1.0)
    simulate(fleet, blocks, options=Options(routing=Routing(pick=spy)))
    assert hits[-1] >= 1600


def test_a_death_counts_every_request_once_where_seats_are_freed_a_step_late() -> None:
    ahead = Replica(cost=COST, kv_blocks=8000, asynchronous=True)
    fleet = [ReplicaPool(name="ahead", replica=ahead, replicas=4)]
    outcome = routed(fleet=fleet, faults=(Fault(kind="dies", replica=1, at_s=20.0, for_s=30.0),))
    assert (outcome.requests + outcome.lost, outcome.refused) == (3_000, 0)
    assert outcome.served is not None
    assert sorted(outcome.served.number.tolist()) == list(range(3_000))
    assert outcome.output_tokens == int(outcome.served.output_tokens[outcome.served.replica >= 0].sum())


def test_a_picker_sees_one_first_token_where_prompts_are_computed_apart() -> None:
    seen: list[Records] = []

    def spy(_request: Records, endpoints: Records, _hits: Records, _parameters: Records) -> int:
        seen.append(endpoints.copy())
        return int(np.argmin(np.where(endpoints["accepts"] != 0, endpoints["in_flight"], 10**9)))

    replica = Replica(cost=COST, kv_blocks=8000)
    fleet = [
        ReplicaPool(name="prefill", replica=replica, replicas=2, role="prefill", transfer=Transfer(token_s=0.0)),
        ReplicaPool(name="decode", replica=replica, replicas=6, role="decode"),
    ]
    outcome = routed(spy, fleet=fleet, count=600)
    assert outcome.requests == 600
    for name in ("in_flight", "prefilling", "outstanding_prompt_tokens"):
        assert min(int(endpoints[name].min()) for endpoints in seen) == 0
    # Prompts take a tenth of a second, answers many: who decodes elsewhere is not counted where its prompt was.
    assert max(int(endpoints["in_flight"].max()) for endpoints in seen) < 60
    alike = routed(fleet=fleet, count=600)
    assert alike.classes[0].met_fraction == pytest.approx(outcome.classes[0].met_fraction or 0.0, abs=0.02)


@pytest.mark.parametrize("pickers", [2, 4])
def test_pickers_that_share_nothing_do_as_well_as_one(pickers: int) -> None:
    """Each sends to its own endpoints first, of which it knows all."""
    fleet = [pool(replicas=8)]
    one, several = (
        simulate(fleet, [conversation_lengths(6_000, 40.0)], classes=PROMISED, options=Options(routing=routing))
        for routing in (Routing(), Routing(pickers=pickers))
    )
    assert (several.requests, several.refused) == (6_000, 0)
    late_s, first_s = (outcome.classes[0].ttft.quantile_s(0.99) or 0.0 for outcome in (several, one))
    assert late_s < 1.15 * first_s


def test_what_a_python_policy_raises_is_raised() -> None:
    def broken(_request: Records, _endpoints: Records, _hits: Records, _parameters: Records) -> int:
        raise ZeroDivisionError("of its own")

    with pytest.raises(ZeroDivisionError, match="of its own"):
        routed(broken, count=10)


def test_each_picker_of_a_python_policy_sees_its_own_endpoints() -> None:
    seen: list[int] = []

    def spy(request: Records, endpoints: Records, _hits: Records, _parameters: Records) -> int:
        seen.append(int(endpoints["sent"].sum()) - int(request[0]["number"]))
        return int(request[0]["number"]) % len(endpoints)

    assert routed(spy, pickers=3, count=300).requests == 300
    assert set(seen) == {0}


def test_a_dead_replicas_requests_go_where_the_context_is_long_enough() -> None:
    long, short = (Replica(cost=COST, kv_blocks=8000, context_tokens=tokens) for tokens in (8_000, 400))
    fleet = [
        ReplicaPool(name="long", replica=long, replicas=2),
        ReplicaPool(name="short", replica=short, replicas=2),
    ]
    sent = requests([0.0] * 20, [(1_000, 500)] * 20)
    fault = Fault(kind="dies", replica=0, at_s=0.01)
    outcome = simulate(fleet, [sent], options=Options(routing=Routing(faults=(fault,)), keep_requests=True))
    assert (outcome.requests, outcome.refused) == (20, 0)
    assert outcome.served is not None
    assert set(outcome.served.replica.tolist()) == {1}
