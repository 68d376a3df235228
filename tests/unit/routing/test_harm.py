"""The policy never sends a request where it cannot be served, never passes over what is cheaper and better, and is
the same in every form it comes in."""

from math import inf

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.compiled.marks import interpreted
from penstock.routing.baselines.all_policies import POLICIES
from penstock.routing.class_balance import count_arrival
from penstock.routing.endpoint_updates import begin_report, divide, finished, first_token, lost, refresh, reported, sent
from penstock.routing.harm import harm_of, holds, pick, rank, terms_of
from penstock.routing.latency import share_of_chance, times_of
from penstock.routing.miss_probability import chance, squarings
from penstock.routing.records import (
    EVERYBODYS,
    FLIGHT,
    OWN,
    REJECTED,
    REPORT,
    Records,
    default_parameters,
    new_endpoints,
    new_request,
)

COEFFICIENTS = ("step_s", "sequence_s", "context_token_s", "prompt_step_s", "prompt_token_s", "prompt_pair_s")


def fleet(count: int, seed: int = 0) -> Records:
    """Endpoints of two vendors in the middle of serving."""
    rng = np.random.default_rng(seed)
    e, p = new_endpoints(count), default_parameters()
    p["class_tpot_s"] = 0.06
    slow = rng.uniform(1.0, 2.0, count)
    e["vendor"] = np.arange(count) % 2
    e["step_s"], e["sequence_s"], e["prompt_token_s"] = 0.015 * slow, 5e-5 * slow, 5e-5 * slow
    e["context_token_s"], e["prompt_pair_s"], e["prompt_step_s"] = 6e-8 * slow, 2e-9 * slow, 0.008
    e["kv_tokens"], e["max_context_tokens"] = rng.integers(50_000, 400_000, count), 131_072
    e["max_running"], e["step_tokens"], e["usd_per_s"] = 256, 8192, rng.uniform(5e-4, 2e-3, count)
    e["saved_usd_per_s"] = e["usd_per_s"] * (np.arange(count) % 3 > 0)
    flights = np.zeros(1, FLIGHT)
    for index in range(count):
        refresh(e, index, 0.0, p)
        for number in range(int(rng.integers(0, 60))):
            request = asking(int(rng.integers(10, 6000)), now_s=0.01 * number, answer=int(rng.integers(1, 800)))
            sent(e, index, request, 0, flights, 0, p)
            if rng.random() < 0.9:
                first_token(e, flights, 0, 0.01 * number + rng.uniform(0.05, 0.5), p)
    return e


def asking(tokens: int, *, now_s: float = 1.0, answer: int = 200, turn: int = 0) -> Records:
    request = new_request()
    request["now_s"], request["input_tokens"], request["expected_output_tokens"] = now_s, tokens, answer
    request["ttft_s"], request["tpot_s"], request["turn"] = 2.0, 0.06, turn
    return request


def parameters() -> Records:
    p = default_parameters()
    p["class_tpot_s"] = 0.06
    return p


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 30), tokens=st.integers(1, 140_000), answer=st.integers(1, 4000), turn=st.integers(0, 999))
def test_the_compiled_policy_picks_as_its_source_does(seed: int, tokens: int, answer: int, turn: int) -> None:
    e, p, q = fleet(9, seed), parameters(), asking(tokens, answer=answer, turn=turn)
    rng = np.random.default_rng(seed)
    hits = rng.integers(0, tokens, len(e)).astype(np.int64)
    p["pickers"], e["whose"] = 1 + seed % 2, rng.integers(0, 3, len(e)) * (seed % 2)
    e["decodes"] = rng.random(len(e)) < 0.8
    e["accepts"] = rng.random(len(e)) < 0.9
    for index in range(len(e)):
        refresh(e, index, 1.0, p)
    for sheddable in (0, 1):
        q["sheddable"] = sheddable
        assert interpreted(pick)(q, e, hits, p) == pick(q, e, hits, p)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 30), tokens=st.integers(1, 200_000))
@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_picks_an_endpoint_that_cannot_hold_the_request(name: str, seed: int, tokens: int) -> None:
    e, q = fleet(6, seed), asking(tokens)
    e["accepts"][seed % 6] = 0
    chosen = POLICIES[name].pick(q, e, np.zeros(6, np.int64), parameters())
    able = [index for index in range(6) if holds(q[0], e[index])]
    assert chosen in able if able else chosen == REJECTED
    assert chosen != seed % 6


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 50),
    tokens=st.integers(1, 40_000),
    which=st.sampled_from([*COEFFICIENTS, "saved_usd_per_s", "request_s", "kv_tokens"]),
    better=st.floats(0.3, 0.95),
)
def test_cheaper_and_better_is_never_passed_over(seed: int, tokens: int, which: str, better: float) -> None:
    """An endpoint with the same requests that is better in one respect and worse in none is at least as good a pick.

    The law holds while the worse endpoint's requests can be saved. An endpoint beyond saving has nothing left to lose,
    and where a queue makes the first token late, nothing is lost in a longer one.
    """
    e, p, q = fleet(2, seed), parameters(), asking(tokens)
    e[1] = e[0]
    e[1]["kv_tokens" if which == "kv_tokens" else which] *= 1 / better if which == "kv_tokens" else better
    for index in range(2):
        refresh(e, index, 1.0, p)
    assume(holds(q[0], e[0]))
    terms = terms_of(q[0], p[0], e, np.zeros(2, np.int64))
    worse, improved = (harm_of(q[0], e[index], 0, p[0], terms, inf) for index in range(2))
    first_s, _, _ = times_of(q[0], e[0], 0, share_of_chance(q[0]))
    given_up = worse > p[0]["given_up_misses"] or first_s > q[0]["ttft_s"]
    assert improved <= worse * (1 + 1e-12) or given_up


@settings(max_examples=60, deadline=None)
@given(limit_s=st.floats(0.1, 10.0), waiting=st.integers(0, 400), tokens=st.integers(1, 20_000))
def test_a_queue_for_kv_blocks_costs_what_it_takes_from_those_behind(limit_s: float, waiting: int, tokens: int) -> None:
    """The price is bounded, and beyond the limit lower in a longer queue. A full KV cache itself costs nothing here."""
    e, p, q = fleet(2), parameters(), asking(tokens)
    e[1] = e[0]
    e["saved_usd_per_s"], e["residents"], q["ttft_s"], p["full_tokens_fraction"] = 0.0, 0, limit_s, -1e6
    e["reported_s"], e["running"], e["waiting"], e["kv_used_tokens"] = 1.0, 100, [waiting, waiting + 50], e["kv_tokens"]
    for index in range(2):
        refresh(e, index, 1.0, p)
    terms = terms_of(q[0], p[0], e, np.zeros(2, np.int64))
    shorter, longer = (harm_of(q[0], e[index], 0, p[0], terms, inf) for index in range(2))
    steep = 1 << squarings(float(p["doubt_fraction"][0]))
    assert max(shorter, longer) <= 2.0 + steep / 4
    own_s, _, _ = times_of(q[0], e[0], 0, share_of_chance(q[0]))
    if own_s > 1.2 * limit_s:
        assert longer <= shorter * (1 + 1e-9)
    elif own_s < 0.8 * limit_s:
        assert longer >= shorter * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 50),
    tokens=st.integers(1, 40_000),
    load=st.integers(0, 400),
    given_up=st.floats(0.0, 30.0),
    factor=st.floats(0.1, 10.0),
    capacity=st.floats(1.0, 10.0),
)
def test_a_request_that_is_lost_is_not_lost_again(
    seed: int, tokens: int, load: int, given_up: float, factor: float, capacity: float
) -> None:
    """The harm is at most the request's own miss, the bound, and all requests that can still be lost there.

    A full KV cache counts separately; it is empty here, and dollars count nothing.
    """
    e, p, q = fleet(1, seed), parameters(), asking(tokens)
    e["saved_usd_per_s"], e["kv_tokens"], e["max_running"] = 0.0, 2**40, 2**40
    e["relative_capacity"] = capacity
    e["in_flight"] += load
    e["residents"][0, 0] += load
    p["given_up_misses"], p["class_factor"][0, 0] = given_up, factor
    refresh(e, 0, 1.0, p)
    terms = terms_of(q[0], p[0], e, np.zeros(1, np.int64))
    harm = harm_of(q[0], e[0], 0, p[0], terms, inf)
    chance_kept = 1.0 - chance(float(e["tpot_now_s"][0]) / 0.06, squarings(float(p["doubt_fraction"][0])))
    to_lose = factor * float(e["residents"][0].sum()) * chance_kept
    assert harm <= (factor * (1.0 + capacity * given_up) + to_lose) * (1 + 1e-9)
    p["given_up_misses"] = inf
    terms = terms_of(q[0], p[0], e, np.zeros(1, np.int64))
    assert harm <= harm_of(q[0], e[0], 0, p[0], terms, inf) * (1 + 1e-12)


def test_an_overloaded_fleet_gives_up_one_endpoint_and_keeps_the_other() -> None:
    """More requests than two endpoints can serve in time go to the one whose requests are lost already."""
    e, p, flights = new_endpoints(2), parameters(), np.zeros(1, FLIGHT)
    e["step_s"], e["sequence_s"] = 0.02, 1e-3
    for index, count in enumerate((60, 30)):
        for _ in range(count):
            sent(e, index, asking(1), 0, flights, 0, p)
            first_token(e, flights, 0, 1.0, p)
    chosen = []
    for turn in range(40):
        chosen.append(pick(asking(1, turn=turn), e, np.zeros(2, np.int64), p))
        sent(e, chosen[-1], asking(1), 0, flights, 0, p)
        first_token(e, flights, 0, 1.0, p)
    assert e["tpot_now_s"][0] > 0.06 > e["tpot_now_s"][1]
    p["given_up_misses"] = inf  # levels the load until both are lost
    for turn in range(40):
        index = pick(asking(1, turn=turn), e, np.zeros(2, np.int64), p)
        sent(e, index, asking(1), 0, flights, 0, p)
        first_token(e, flights, 0, 1.0, p)
    assert e["tpot_now_s"].min() > 0.06


@settings(max_examples=20, deadline=None)
@given(shares=st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_every_class_counts_alike_however_many_requests_it_has(shares: list[int]) -> None:
    p, q = default_parameters(), new_request()
    rng = np.random.default_rng(0)
    kinds = rng.permutation(np.repeat(np.arange(len(shares)), np.array(shares) * 500 // sum(shares) + 1))
    for kind in kinds:
        q["slo_class"] = kind
        count_arrival(q, p)
    counted = p["class_factor"][0] * (p["class_requests"][0] + 10.0)
    bounded = p["class_factor"][0] >= 16.0
    alike = counted[: len(shares)][~bounded[: len(shares)]]
    assert alike == pytest.approx(np.full(len(alike), alike.max()))
    assert p["class_factor"][0, len(shares) :].tolist() == [1.0] * (4 - len(shares))
    if len(shares) == 1:
        assert p["class_factor"][0, 0] == 1.0


def test_ties_are_shared() -> None:
    e, p = new_endpoints(8), parameters()
    e["step_s"] = 0.01
    chosen = [pick(asking(100, turn=turn), e, np.zeros(8, np.int64), p) for turn in range(800)]
    assert np.bincount(chosen, minlength=8).tolist() == [100] * 8


def test_a_cached_prefix_counts_as_the_seconds_it_saves() -> None:
    e, p = new_endpoints(2), parameters()
    e["step_s"], e["prompt_token_s"] = 0.02, 1e-4
    q, hits = asking(15_000), np.array([0, 14_000], np.int64)
    flights = np.zeros(1, FLIGHT)
    for index in range(2):
        refresh(e, index, 1.0, p)
    assert pick(q, e, hits, p) == 1
    # 14,000 tokens are 1.4 s; with 30,000 tokens of prompts ahead, 3 s, it is better computed again elsewhere.
    sent(e, 1, asking(30_000), 0, flights, 0, p)
    assert pick(q, e, hits, p) == 0


def test_long_prompts_go_to_the_larger_cache_and_back_when_it_is_slow() -> None:
    e, p = new_endpoints(2), parameters()
    e["step_s"], e["prompt_token_s"], e["context_token_s"] = 0.02, 5e-5, 5e-8
    e["kv_tokens"] = 60_000, 400_000
    flights = np.zeros(5, FLIGHT)
    for index in range(2):
        for place in range(5):
            sent(e, index, asking(4_000), 0, flights, place, p)
            first_token(e, flights, place, 1.3, p)
    e["prefill_correction"] = e["decode_correction"] = 1.0
    q = asking(50_000)
    q["ttft_s"] = 20.0
    # 20,500 tokens are taken of either: the smaller has no room before others end.
    assert pick(q, e, np.zeros(2, np.int64), p) == 1
    e["prefill_correction"][1] = 5.0  # measured: five times slower than thought, 12.5 s instead of 2.5
    e["decode_correction"][1] = 2.5
    refresh(e, 1, 1.0, p)
    assert pick(q, e, np.zeros(2, np.int64), p) == 0


def test_who_may_be_shed_is_when_nobody_can_keep_the_promise() -> None:
    e, p = new_endpoints(3), parameters()
    e["step_s"] = 1.0  # a token a second
    for index in range(3):
        refresh(e, index, 1.0, p)
    q, hits = asking(100), np.zeros(3, np.int64)
    assert pick(q, e, hits, p) != REJECTED
    q["sheddable"] = 1
    assert pick(q, e, hits, p) == REJECTED


def test_the_second_choice_is_of_another_vendor() -> None:
    e, p, order, room = fleet(8), parameters(), np.zeros(4, np.int64), np.zeros(8)
    q, hits = asking(500), np.zeros(8, np.int64)
    assert rank(q, e, hits, p, order, room) == 4
    assert order[0] == pick(q, e, hits, p)
    assert e["vendor"][order[1]] != e["vendor"][order[0]]
    assert len(set(order.tolist())) == 4


def test_what_was_sent_and_ended_leaves_nothing_behind() -> None:
    e, p, flights = new_endpoints(1), parameters(), np.zeros(3, FLIGHT)
    e["step_s"], e["prompt_token_s"] = 0.01, 1e-5
    own = [name for name in e.dtype.names or () if name in {"in_flight", "prefilling", "resident_tokens"}]
    for place, tokens in enumerate((10, 3000, 77)):
        sent(e, 0, asking(tokens), 5, flights, place, p)
    assert e[0]["in_flight"] == 3
    first_token(e, flights, 0, 1.2, p)
    finished(e, flights, 0, 50, 2.0, p)
    lost(e, flights, 1, 2.1, p)
    finished(e, flights, 2, 1, 2.2, p)
    assert [int(e[0][name]) for name in own] == [0] * len(own)
    assert e[0]["outstanding_prompt_tokens"] == e[0]["outstanding_prompt_s"] == 0
    assert e[0]["residents"].sum() == e[0]["resident_output_tokens"] == 0


def test_a_report_shows_what_others_sent() -> None:
    e, p, flights, reports = new_endpoints(1), parameters(), np.zeros(1, FLIGHT), np.zeros(1, REPORT)
    e["step_s"], e["sequence_s"] = 0.01, 1e-4
    sent(e, 0, asking(100), 0, flights, 0, p)
    begin_report(e, 0, reports, 0, 1.0)
    reports[0]["running"], reports[0]["kv_used_tokens"] = 11, 5000
    reported(e, 0, reports, 0, 1.1, p)
    # Ten of eleven are others'; own and theirs are in the time of a token.
    assert e[0]["tpot_now_s"] == pytest.approx((0.01 + 11 * 1e-4) * e[0]["stretch"])
    # A report nobody has heard again of for long says nothing about others any more.
    refresh(e, 0, 100.0, p)
    assert e[0]["tpot_now_s"] == pytest.approx((0.01 + 1 * 1e-4) * e[0]["stretch"])


@pytest.mark.parametrize("truth", [0.75, 1.33])
def test_corrections_find_how_fast_an_endpoint_really_is(truth: float) -> None:
    e, p, flights = new_endpoints(1), parameters(), np.zeros(1, FLIGHT)
    e["step_s"], e["prompt_token_s"] = 0.02, 1e-4
    refresh(e, 0, 0.0, p)
    for number in range(400):
        now_s = 100.0 * number
        sent(e, 0, asking(3000, now_s=now_s), 0, flights, 0, p)
        first_s = now_s + truth * (3000 * 1e-4 + 0.02)
        first_token(e, flights, 0, first_s, p)
        finished(e, flights, 0, 200, first_s + 199 * 0.02 * truth, p)
    assert e[0]["prefill_correction"] == pytest.approx(truth, rel=0.06)
    assert e[0]["decode_correction"] == pytest.approx(truth, rel=0.06)


def test_dollars_that_are_paid_anyway_leave_no_endpoint_idle() -> None:
    e, p = new_endpoints(2), parameters()
    e["step_s"], e["prompt_token_s"], e["usd_per_s"] = 0.02, 1e-4, (1e-3, 3e-3)
    flights = np.zeros(1, FLIGHT)
    for index in range(2):
        refresh(e, index, 1.0, p)
    sent(e, 0, asking(2_000), 0, flights, 0, p)
    q, hits = asking(2_000), np.zeros(2, np.int64)
    assert pick(q, e, hits, p) == 1
    # Where idle replicas are given back, the dear one stays idle as long as the cheap one keeps the promise.
    e["saved_usd_per_s"] = e["usd_per_s"]
    assert pick(q, e, hits, p) == 0


def test_who_is_promised_nothing_goes_where_it_is_served_soonest() -> None:
    e, p, flights = new_endpoints(2), default_parameters(), np.zeros(4, FLIGHT)
    e["step_s"], e["sequence_s"], e["prompt_token_s"] = 0.02, 1e-4, 1e-4
    q = asking(1_000)
    q["ttft_s"] = q["tpot_s"] = inf
    refresh(e, 1, 1.0, p)
    for place in range(4):
        sent(e, 0, q, 0, flights, place, p)
    for turn in range(4):
        q["turn"] = turn
        assert pick(q, e, np.zeros(2, np.int64), p) == 1


@pytest.mark.parametrize("name", ["penstock", "least-request", "round-robin", "llm-d"])
def test_ties_are_shared_by_those_that_are_up(name: str) -> None:
    """Whoever stands behind those that are down is not sent their share too."""
    e, p = new_endpoints(12), parameters()
    e["step_s"] = 0.01
    e["accepts"][3:] = 0
    chosen = []
    for turn in range(1200):
        q = asking(100, turn=turn * 7)
        q["number"] = turn
        chosen.append(POLICIES[name].pick(q, e, np.zeros(12, np.int64), p))
    assert np.bincount(chosen, minlength=12)[:3] == pytest.approx([400] * 3, abs=20)


def test_a_picker_sends_to_its_own_share_unless_that_is_hopeless_or_the_prompt_is_cached_elsewhere() -> None:
    p, hits, flights = parameters(), np.zeros(5, np.int64), np.zeros(60, FLIGHT)
    p["pickers"] = 2.0
    shares = []
    for picker in range(2):
        e = new_endpoints(5)
        e["step_s"], e["prompt_token_s"] = 0.02, 1e-4
        divide(e, picker, 2)
        shares.append(np.flatnonzero(e["whose"] == OWN).tolist())
        assert e["whose"][4] == EVERYBODYS
        for index in range(5):
            refresh(e, index, 1.0, p)
    assert shares == [[0, 2], [1, 3]]
    e["serves"][4] = 2
    q = asking(4_000)
    for place in range(3):
        sent(e, 1 + 2 * (place % 2), q, 0, flights, place, p)
    assert pick(q, e, hits, p) == 3
    hits[2] = 3_000
    assert pick(q, e, hits, p) == 2
    hits[2] = 0
    e["max_context_tokens"][[1, 3]] = 100
    assert pick(q, e, hits, p) in {0, 2}
    # A share that lost an endpoint would be too small.
    e["accepts"][0] = 0
    divide(e, 1, 2)
    assert set(e["whose"].tolist()) == {EVERYBODYS}


@pytest.mark.parametrize(
    ("count", "pickers", "sharing"), [(10, 4, 2), (20, 16, 4), (80, 64, 4), (5, 4, 4), (8, 3, 3), (4, 6, 6)]
)
def test_what_is_left_of_a_pool_is_shared_by_equal_groups_of_pickers(count: int, pickers: int, sharing: int) -> None:
    """Attack: 64 pickers all sent to the 32 of 160 endpoints that could not be divided, and 87% kept the promise.

    Three pickers have no equal groups for two endpoints, and six none for four: those stay everybody's.
    """
    seen = []
    for picker in range(pickers):
        e = new_endpoints(count)
        divide(e, picker, pickers)
        seen.append(e["whose"].copy())
    whose = np.array(seen)
    divided = count // pickers * pickers
    assert ((whose[:, :divided] == OWN).sum(axis=0) == 1).all()
    assert ((whose[:, divided:] == EVERYBODYS).sum(axis=0) == sharing).all()
    assert (whose[:, divided:] != OWN).all()
    # Every picker has as much as any other.
    assert len(set((whose == EVERYBODYS).sum(axis=1).tolist())) == 1


def test_a_prompt_leaves_an_endpoint_that_does_not_decode_with_its_first_token() -> None:
    e, p, flights = new_endpoints(2), parameters(), np.zeros(2, FLIGHT)
    e["step_s"], e["prompt_token_s"], e["decodes"] = 1.0, 1e-4, 0  # a token a second, which nobody waits for
    for index in range(2):
        refresh(e, index, 1.0, p)
    sent(e, 0, asking(2_000), 0, flights, 0, p)
    assert pick(asking(2_000), e, np.zeros(2, np.int64), p) == 1
    first_token(e, flights, 0, 2.0, p)
    assert e[0]["in_flight"] == e[0]["prefilling"] == e[0]["residents"].sum() == e[0]["resident_tokens"] == 0
    finished(e, flights, 0, 100, 9.0, p)
    assert e[0]["in_flight"] == e[0]["residents"].sum() == e[0]["resident_tokens"] == 0
    assert e[0]["decode_correction"] == 1.0


def test_the_first_requests_teach_the_most() -> None:
    e, p, flights = new_endpoints(1), parameters(), np.zeros(1, FLIGHT)
    e["step_s"], e["prompt_token_s"] = 0.02, 1e-4
    refresh(e, 0, 0.0, p)
    for number in range(20):
        now_s = 100.0 * number
        sent(e, 0, asking(3000, now_s=now_s), 0, flights, 0, p)
        first_s = now_s + 1.33 * (3000 * 1e-4 + 0.02)
        first_token(e, flights, 0, first_s, p)
        finished(e, flights, 0, 200, first_s + 199 * 0.02 * 1.33, p)
    assert e[0]["prefill_correction"] == pytest.approx(1.33, rel=0.08)
    assert e[0]["decode_correction"] == pytest.approx(1.33, rel=0.08)
