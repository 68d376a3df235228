"""A promise for the whole answer steers as those for its first and its later tokens do: nothing else changes."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.compiled.marks import interpreted
from penstock.routing.endpoint_updates import finished, first_token, refresh, sent
from penstock.routing.harm import harm_of, misses, pick, terms_of
from penstock.routing.miss_probability import length_squarings
from penstock.routing.records import FLIGHT, Records, default_parameters, new_endpoints, new_request
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options, Routing
from penstock.workload import Overload, Slo, SloClass
from simulated import COST, pool, requests

NO_HITS = np.zeros(2, np.int64)


def asking(answer: int, *, e2e_s: float, ttft_s: float = inf, tpot_s: float = inf, tokens: int = 500) -> Records:
    request = new_request()
    request["now_s"], request["input_tokens"], request["expected_output_tokens"] = 1.0, tokens, answer
    request["ttft_s"], request["tpot_s"], request["e2e_s"] = ttft_s, tpot_s, e2e_s
    return request


def two_kinds() -> Records:
    """One that is quick with prompts and slow with tokens, and one that is the other way round."""
    e = new_endpoints(2)
    e["step_s"], e["prompt_token_s"] = (0.08, 0.02), (1e-5, 4e-4)
    for index in range(2):
        refresh(e, index, 1.0, default_parameters())
    return e


def test_an_answer_goes_where_it_ends_in_time_and_not_where_it_begins_first() -> None:
    """400 tokens of 80 ms are 32 s, of 20 ms 8 s: only the second keeps 12 s, though its first token is later."""
    e, p = two_kinds(), default_parameters()
    p["class_e2e_s"] = 12.0
    assert pick(asking(400, e2e_s=12.0), e, NO_HITS, p) == 1
    assert pick(asking(1, e2e_s=0.2), e, NO_HITS, p) == 0
    q = asking(400, e2e_s=12.0)
    slow, quick = (misses(q[0], e[index], 0, terms_of(q[0], p[0], e, NO_HITS)) for index in range(2))
    assert slow > 0.8
    assert quick < 0.4


def test_residents_that_would_end_too_late_count() -> None:
    """Both are alike but for who is there: answers that are nearly too long for their limit are not made longer."""
    e, p = new_endpoints(2), default_parameters()
    e["step_s"], e["sequence_s"], e["prompt_token_s"] = 0.03, 1e-3, 1e-5
    p["class_e2e_s"] = 12.0
    flights = np.zeros(1, FLIGHT)
    for index, answer in enumerate((360, 20)):
        for _ in range(5):
            sent(e, index, asking(answer, e2e_s=12.0), 0, flights, 0, p)
            first_token(e, flights, 0, 1.1, p)
        e[index]["resident_tokens"] = 5_000
        refresh(e, index, 2.0, p)
    q = asking(50, e2e_s=12.0)
    terms = terms_of(q[0], p[0], e, NO_HITS)
    long, short = (harm_of(q[0], e[index], 0, p[0], terms, inf) for index in range(2))
    assert misses(q[0], e[0], 0, terms) == pytest.approx(misses(q[0], e[1], 0, terms), rel=1e-6)
    assert long > 1.02 * short
    p["class_e2e_s"] = inf
    long, short = (harm_of(q[0], e[index], 0, p[0], terms, inf) for index in range(2))
    assert long == pytest.approx(short, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 60),
    answer=st.integers(1, 3000),
    e2e_s=st.floats(0.5, 60.0),
    first_s=st.sampled_from([inf, 2.0]),
    sheddable=st.integers(0, 1),
)
def test_the_compiled_policy_judges_whole_answers_as_its_source_does(
    seed: int, answer: int, e2e_s: float, first_s: float, sheddable: int
) -> None:
    rng, p = np.random.default_rng(seed), default_parameters()
    p["class_tpot_s"], p["class_e2e_s"] = 0.03 * first_s, e2e_s
    e, flights = new_endpoints(7), np.zeros(1, FLIGHT)
    e["step_s"], e["sequence_s"] = rng.uniform(0.01, 0.06, 7), 1e-4
    e["prompt_token_s"], e["context_token_s"] = rng.uniform(1e-5, 2e-4, 7), 5e-8
    e["kv_tokens"], e["decodes"] = 200_000, rng.random(7) < 0.8
    for index in range(7):
        refresh(e, index, 0.0, p)
        for _ in range(int(rng.integers(0, 40))):
            sent(e, index, asking(int(rng.integers(1, 900)), e2e_s=e2e_s), 0, flights, 0, p)
            if rng.random() < 0.8:
                first_token(e, flights, 0, 1.2, p)
    q = asking(answer, e2e_s=e2e_s, ttft_s=first_s, tpot_s=0.03 * first_s)
    q["sheddable"] = sheddable
    hits = rng.integers(0, 500, 7).astype(np.int64)
    assert interpreted(pick)(q, e, hits, p) == pick(q, e, hits, p)


@settings(max_examples=20, deadline=None)
@given(spread=st.sampled_from([0.0, 0.2, 0.8]), seed=st.integers(0, 9))
def test_the_doubt_about_answers_is_learned_from_their_lengths(spread: float, seed: int) -> None:
    e, p, flights = new_endpoints(1), default_parameters(), np.zeros(1, FLIGHT)
    e["step_s"] = 0.02
    refresh(e, 0, 1.0, p)
    for length in np.random.default_rng(seed).lognormal(np.log(200), spread, 600):
        sent(e, 0, asking(200, e2e_s=12.0), 0, flights, 0, p)
        first_token(e, flights, 0, 1.1, p)
        finished(e, flights, 0, max(1, round(length)), 5.0, p)
    assert p["class_length_doubt"][0, 0] == pytest.approx(spread / 1.7, abs=0.05 + 0.12 * spread)
    assert length_squarings(p[0], 0) == {0.0: 4, 0.2: 3, 0.8: 1}[spread]
    assert length_squarings(p[0], 1) == 1


def kept(overload: Overload, rate_per_s: float) -> list[float]:
    """One fast and two slower endpoints; chats with limits for first and later tokens, and agents with one for all."""
    slower = replace(COST, step_s=0.018, decode_s=8e-5, prefill_token_s=9e-5)
    fleet = [pool(40_000, replace(COST, decode_s=6e-5)), pool(80_000, slower, replicas=2, name="two")]
    count, rng = 3_000, np.random.default_rng(4)
    classes = (rng.random(count) < 0.3).astype(int).tolist()
    block = requests(
        np.cumsum(rng.exponential(1 / rate_per_s, count)).tolist(),
        [(2000, 300) if kind else (1000, 200) for kind in classes],
        classes,
    )
    slos = (
        SloClass(name="chat", share_fraction=0.7, slo=Slo(ttft_s=2.0, tpot_s=0.03), overload=overload),
        SloClass(name="agent", share_fraction=0.3, slo=Slo(e2e_s=7.0), overload=overload),
    )
    outcome = simulate(fleet, [block], classes=slos, options=Options(routing=Routing(pick=pick)))
    return [item.met_fraction or 0.0 for item in outcome.classes]


@pytest.mark.parametrize(("overload", "rate_per_s"), [("refuse", 22.0), ("hold", 22.0), ("serve", 18.0)])
def test_a_class_with_a_limit_for_the_whole_answer_is_not_given_up(overload: Overload, rate_per_s: float) -> None:
    """Found by an attack: the chats filled every endpoint, and agents kept 0% (refuse and hold) or 8% (serve)."""
    assert min(kept(overload, rate_per_s)) > 0.3
