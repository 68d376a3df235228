"""What a run reports is what happened: nothing lost, nothing averaged away, the same every time."""

import hashlib

import numpy as np
import pytest

from penstock.errors import DeploymentError
from penstock.simulation.outcome import Outcome
from penstock.simulation.replica import Replica, ReplicaPool, Transfer
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options, Routing
from penstock.workload import Fixed, Requests, Slo, SloClass, SystemPrompts, Workload
from penstock.workload.synthetic.arrivals import Poisson
from simulated import COST, conversation_lengths, pool, requests

KEEP = Options(keep_requests=True)


def digest(outcome: Outcome) -> str:
    assert outcome.served is not None
    parts = (outcome.served.ttft_s, outcome.served.e2e_s, outcome.served.hit_tokens, outcome.pools[0].itl.counts)
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def test_one_request_takes_its_prefill_and_its_decodes() -> None:
    outcome = simulate([pool()], [requests([0.0], [(100, 3)])], options=KEEP)
    prefill_s = 0.012 + 100 * 3e-5 + 1e-9 * 100**2 / 2
    decodes_s = (0.012 + 2e-5 + 3e-8 * 100) + (0.012 + 2e-5 + 3e-8 * 101)
    assert outcome.served is not None
    assert outcome.served.ttft_s[0] == pytest.approx(prefill_s, rel=1e-12)
    assert outcome.served.e2e_s[0] == pytest.approx(prefill_s + decodes_s, rel=1e-12)


def test_every_request_and_every_token_comes_out() -> None:
    sent = conversation_lengths(20_000, 12.0)
    outcome = simulate([pool(kv_blocks=3000)], [sent])
    assert outcome.preemptions > 100
    assert outcome.requests == len(sent)
    assert outcome.output_tokens == int(sent.output_tokens.sum()) == outcome.pools[0].output_tokens


def test_the_same_input_gives_the_same_bytes_however_it_is_cut() -> None:
    sent = conversation_lengths(5_000, 11.0)
    once = simulate([pool(kv_blocks=3000)], [sent], options=KEEP)
    again = simulate(
        [pool(kv_blocks=3000)], [sent.rows(start, start + 500) for start in range(0, 5_000, 500)], options=KEEP
    )
    assert digest(once) == digest(again)


def test_a_request_longer_than_the_cache_is_refused_and_counted() -> None:
    outcome = simulate([pool(kv_blocks=10)], [requests([0.0, 0.1], [(1000, 10), (100, 10)])])
    assert (outcome.oversized, outcome.requests) == (1, 1)
    assert not outcome.met


def test_an_overloaded_fleet_is_called_saturated() -> None:
    assert simulate([pool()], [conversation_lengths(20_000, 8.0)]).saturation is None
    flooded = simulate([pool()], [conversation_lengths(20_000, 20.0)]).saturation
    assert flooded is not None
    assert flooded.growth_per_s == pytest.approx(20 - 14.4, abs=1.0)


def test_a_hopeless_queue_stops_the_run() -> None:
    outcome = simulate([pool()], [conversation_lengths(50_000, 200.0)], options=Options(stop_waiting=1_000))
    assert outcome.saturation is not None
    assert outcome.saturation.stopped
    assert outcome.requests < 5_000


def test_goodput_counts_the_tokens_of_requests_that_met_their_slo() -> None:
    sent = conversation_lengths(5_000, 8.0)
    strict = SloClass(name="all", share_fraction=1.0, slo=Slo(ttft_s=0.05))
    outcome = simulate([pool()], [sent], classes=[strict], options=KEEP)
    assert outcome.served is not None
    good = int(sent.output_tokens[outcome.served.ttft_s <= 0.05].sum())
    assert outcome.goodput_tokens_per_s * outcome.makespan_s == pytest.approx(good)
    assert not outcome.met


def test_classes_are_told_apart() -> None:
    rows = requests([0.0, 0.0, 1.0], [(10, 5), (5000, 5), (10, 5)], classes=[0, 1, 0])
    classes = [
        SloClass(name="chat", share_fraction=0.5, slo=Slo(ttft_s=0.5)),
        SloClass(name="batch", share_fraction=0.5),
    ]
    outcome = simulate([pool()], [rows], classes=classes)
    assert [(item.name, item.requests) for item in outcome.classes] == [("chat", 2), ("batch", 1)]


def test_users_of_a_closed_loop_wait_for_their_answers() -> None:
    rows = requests([0.0] * 40, [(100, 10)] * 40)
    alone = simulate([pool()], [rows], options=Options(users=1))
    together = simulate([pool()], [rows], options=Options(users=40))
    assert alone.pools[0].mean_batch == pytest.approx(1.0)
    assert alone.makespan_s > 5 * together.makespan_s


def test_think_time_leaves_the_engine_idle() -> None:
    rows = requests([0.0] * 4_000, [(100, 10)] * 4_000)
    outcome = simulate([pool()], [rows], options=Options(users=1, think_s=1.0))
    assert outcome.pools[0].idle_fraction * outcome.makespan_s == pytest.approx(3_999 * 1.0, rel=0.05)


def test_shared_prompts_are_hit() -> None:
    workload = Workload(
        name="shared",
        arrivals=Poisson(),
        lengths=Fixed(input_tokens=160, output_tokens=20),
        sharing=SystemPrompts(prompts=4, tokens=1600),
    )
    blocks = list(workload.blocks(seed=1, requests=2_000, rate_per_s=5.0))
    cached = simulate([pool()], blocks)
    apart = simulate(
        [ReplicaPool(name="one", replica=Replica(cost=COST, kv_blocks=8000, prefix_caching=False))], blocks
    )
    assert cached.pools[0].hit_fraction == pytest.approx(1600 / 1760, abs=0.01)
    assert apart.pools[0].hit_fraction == 0.0
    assert apart.pools[0].prefill_tokens == pytest.approx(2_000 * 1760)
    assert cached.pools[0].prefill_tokens < 0.15 * apart.pools[0].prefill_tokens


def test_two_replicas_share_the_load() -> None:
    outcome = simulate([pool(replicas=2)], [conversation_lengths(10_000, 16.0)], options=KEEP)
    assert outcome.served is not None
    share = float((outcome.served.replica == 0).mean())
    assert share == pytest.approx(0.5, abs=0.02)
    assert outcome.saturation is None


def test_round_robin_takes_turns() -> None:
    outcome = simulate(
        [pool(replicas=3)], [conversation_lengths(300, 5.0)], options=Options(route="round-robin", keep_requests=True)
    )
    assert outcome.served is not None
    assert outcome.served.replica.tolist() == [number % 3 for number in range(300)]


def test_requests_go_to_the_pool_they_are_assigned() -> None:
    sent = conversation_lengths(2_000, 8.0)

    def by_length(block: Requests) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
        return (block.input_tokens > 1000).astype(np.int16)

    pools = [pool(name="short"), pool(name="long")]
    outcome = simulate(pools, [sent], options=Options(pool_of=by_length))
    assert outcome.pools[1].finished == int((sent.input_tokens > 1000).sum())


def test_disaggregated_prefill_keeps_decodes_undisturbed() -> None:
    sent = conversation_lengths(3_000, 6.0)
    together = simulate([pool(replicas=2)], [sent])
    replica = Replica(cost=COST, kv_blocks=8000)
    apart = simulate(
        [
            ReplicaPool(name="prefill", replica=replica, role="prefill", transfer=Transfer(token_s=1e-6)),
            ReplicaPool(name="decode", replica=replica, role="decode"),
        ],
        [sent],
    )
    assert apart.requests == together.requests == 3_000
    assert apart.output_tokens == together.output_tokens
    one, other = apart.classes[0].tpot.quantile_s(0.99), together.classes[0].tpot.quantile_s(0.99)
    assert one is not None and other is not None and one < other  # noqa: PT018 - both exist, then the claim
    assert apart.pools[1].prefill_tokens == 3_000  # the last prompt token, which gives the first answer token


def test_a_slow_link_delays_first_tokens() -> None:
    replica = Replica(cost=COST, kv_blocks=8000)

    def ttft(token_s: float) -> float:
        pools = [
            ReplicaPool(name="prefill", replica=replica, role="prefill", transfer=Transfer(token_s=token_s)),
            ReplicaPool(name="decode", replica=replica, role="decode"),
        ]
        return simulate(pools, [requests([0.0], [(1000, 2)])]).classes[0].ttft.sum_s

    assert ttft(1e-4) - ttft(0.0) == pytest.approx(1000 * 1e-4)


def test_a_fleet_without_a_decode_pool_is_refused() -> None:
    lonely = ReplicaPool(
        name="p", replica=Replica(cost=COST, kv_blocks=10), role="prefill", transfer=Transfer(token_s=0.0)
    )
    with pytest.raises(DeploymentError, match="a prefill pool and a decode pool"):
        simulate([lonely], [requests([0.0], [(10, 2)])])


def test_seconds_outside_the_engine_are_added_to_what_a_client_sees() -> None:
    outside = ReplicaPool(name="one", replica=Replica(cost=COST, kv_blocks=100, request_s=0.25))
    plain = simulate([pool()], [requests([0.0], [(10, 2)])])
    late = simulate([outside], [requests([0.0], [(10, 2)])])
    assert late.classes[0].ttft.sum_s - plain.classes[0].ttft.sum_s == pytest.approx(0.25)


def test_the_time_between_tokens_covers_every_token_but_the_first() -> None:
    sent = conversation_lengths(3_000, 12.0)
    outcome = simulate([pool(kv_blocks=2500)], [sent])
    assert outcome.preemptions > 0
    assert outcome.pools[0].itl.count == int(sent.output_tokens.sum()) - len(sent)


def test_the_timeline_adds_up() -> None:
    outcome = simulate([pool()], [conversation_lengths(3_000, 8.0)])
    line = outcome.timelines["one"]
    busy_s = float(line.busy_fraction.sum() * line.width_s)
    assert busy_s == pytest.approx(outcome.pools[0].busy_fraction * outcome.makespan_s, rel=0.01)
    assert float(line.kv_used_fraction.max()) <= 1.0
    assert float(line.prefill_tokens_per_s.sum() * line.width_s) == pytest.approx(outcome.pools[0].prefill_tokens)


def test_the_log_holds_every_step() -> None:
    outcome = simulate([pool()], [conversation_lengths(500, 8.0)], options=Options(log_steps=100_000))
    assert int(outcome.log["steps"].sum()) == outcome.pools[0].engine_steps
    assert int(outcome.log["prefill_tokens"].sum()) == outcome.pools[0].prefill_tokens


def split(prefill_blocks: int, decode_blocks: int) -> list[ReplicaPool]:
    return [
        ReplicaPool(
            name="prefill",
            replica=Replica(cost=COST, kv_blocks=prefill_blocks),
            role="prefill",
            transfer=Transfer(token_s=0.0),
        ),
        ReplicaPool(name="decode", replica=Replica(cost=COST, kv_blocks=decode_blocks), role="decode"),
    ]


@pytest.mark.parametrize("routing", [None, Routing()])
def test_a_prefill_cache_need_not_hold_the_answer(routing: Routing | None) -> None:
    outcome = simulate(split(4, 8000), [requests([0.0], [(64, 500)])], options=Options(routing=routing))
    assert (outcome.requests, outcome.oversized) == (1, 0)
    prefilled, decoded = outcome.pools
    assert (prefilled.finished, prefilled.prefill_tokens) == (1, 64)
    assert decoded.prefill_tokens == 1  # the last prompt token, which gives the first answer token


def test_a_request_too_long_for_the_pool_it_is_assigned_is_refused_and_counted() -> None:
    def to_the_small_one(block: Requests) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
        return np.zeros(len(block), np.int16)

    fleet = [pool(kv_blocks=4, name="small"), pool(name="large")]
    sent = requests([0.0, 0.0], [(64, 1), (65, 1)])
    outcome = simulate(fleet, [sent], options=Options(pool_of=to_the_small_one))
    assert (outcome.requests, outcome.oversized) == (1, 1)
    assert outcome.pools[1].finished == 0


@pytest.mark.parametrize(("number", "message"), [(2, "a pool from 0 to 1"), (-2, "a pool from 0 to 1"), (1, "decodes")])
def test_a_pool_that_cannot_begin_a_request_is_refused(number: int, message: str) -> None:
    def elsewhere(block: Requests) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
        return np.full(len(block), number, np.int16)

    with pytest.raises(DeploymentError, match=message):
        simulate(split(100, 100), [requests([0.0], [(10, 2)])], options=Options(pool_of=elsewhere))


def test_a_request_longer_than_the_context_is_refused_and_counted_whatever_the_mean_is() -> None:
    limited = ReplicaPool(name="one", replica=Replica(cost=COST, kv_blocks=8000, context_tokens=1000))
    sent = requests([0.0, 0.0, 1.0, 2.0], [(500, 500), (500, 501), (1, 1), (1001, 1)])
    outcome = simulate([limited], [sent])
    assert (outcome.requests, outcome.oversized, outcome.beyond_context) == (2, 2, 2)
    assert not outcome.met


def test_a_request_goes_to_the_pool_whose_context_it_fits() -> None:
    short, long = (
        ReplicaPool(name=f"{limit}", replica=Replica(cost=COST, kv_blocks=8000, context_tokens=limit))
        for limit in (1000, 2000)
    )
    outcome = simulate([short, long], [requests([0.0, 0.0, 0.0], [(900, 200), (900, 200), (1900, 101)])])
    assert [item.finished for item in outcome.pools] == [0, 2]
    assert (outcome.oversized, outcome.beyond_context) == (1, 1)


def test_a_run_that_is_stopped_says_how_many_waited() -> None:
    sent = requests([0.001 * row for row in range(5000)], [(1000, 1000)] * 5000)
    outcome = simulate([pool()], [sent], options=Options(stop_waiting=1000))
    assert outcome.saturation is not None
    assert outcome.saturation.stopped
    assert outcome.saturation.waiting == 1001
    # All that came and are not served: the queue grew at nearly the rate of the arrivals.
    assert outcome.saturation.growth_per_s == pytest.approx(1001 / outcome.arrival_span_s)
