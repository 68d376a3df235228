"""What was learned of an endpoint is kept while it answers, and forgotten as requests go elsewhere."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.compiled.marks import interpreted
from penstock.routing.corrections import corrected, gain
from penstock.routing.corrections import forget as compiled_forget
from penstock.routing.harm import pick
from penstock.routing.records import Records, default_parameters, new_endpoints
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Fault, Options, Routing
from penstock.workload import Slo, SloClass
from simulated import pool, requests

PARAMETERS = default_parameters()
REQUESTS = float(PARAMETERS["correction_requests"][0])
forget = interpreted(compiled_forget)


def equals(corrections: list[float], *, seen: float = REQUESTS) -> Records:
    endpoints = new_endpoints(len(corrections))
    endpoints["prefill_correction"] = endpoints["decode_correction"] = corrections
    endpoints["prompts_seen"] = endpoints["answers_seen"] = seen
    return endpoints


def pass_on(endpoints: Records, seconds: int, sent_per_s: float, to: int = -1) -> None:
    for _ in range(seconds):
        endpoints["sent"][to] += int(sent_per_s)
        forget(endpoints, 0, float(endpoints["forgot_s"][0]) + 1.0, PARAMETERS[0])


def test_an_endpoint_that_gets_nothing_becomes_like_its_equals() -> None:
    endpoints = equals([3.0, 1.1, 1.1])
    for _ in range(200):
        endpoints["prompts_seen"][1:] = endpoints["answers_seen"][1:] = REQUESTS  # they go on answering
        pass_on(endpoints, 1, 10)
    assert 1.09 < endpoints["decode_correction"][0] < 1.15
    assert 1.09 < endpoints["prefill_correction"][0] < 1.15
    assert np.allclose(endpoints["decode_correction"][1:], 1.1, rtol=1e-6), "one that was slow says nothing of them"


def test_where_nobody_of_a_pool_answers_what_was_predicted_counts_again_after_a_while() -> None:
    endpoints = equals([3.0, 3.0, 1.0])
    endpoints["pool"][2] = 1
    pass_on(endpoints, 200, 10)
    assert np.all(endpoints["decode_correction"][:2] > 2.5), "another pool may have more because its requests are short"
    pass_on(endpoints, 2000, 10)
    assert np.allclose(endpoints["decode_correction"], 1.0, atol=0.05)


def test_who_is_asked_for_nothing_forgets_nothing() -> None:
    endpoints = equals([3.0, 1.0])
    pass_on(endpoints, 1000, 0)
    assert endpoints["decode_correction"][0] == 3.0


def test_requests_for_another_model_teach_and_forget_nothing() -> None:
    endpoints = equals([3.0, 1.0])
    endpoints["serves"], endpoints["pool"] = [1, 2], [0, 1]
    pass_on(endpoints, 1000, 10)
    assert endpoints["decode_correction"][0] == 3.0


def test_an_endpoint_with_its_share_keeps_what_it_learned() -> None:
    """Every second one answer of each of two, the first of which is twice as slow as predicted."""
    endpoints = equals([1.0, 1.0], seen=0.0)
    for _ in range(300):
        for index, true in enumerate((2.0, 1.0)):
            e = endpoints[index]
            weight = gain(e["answers_seen"], REQUESTS)
            e["decode_correction"] = corrected(e["decode_correction"], true / e["decode_correction"], weight)
            e["answers_seen"] += 1
        endpoints["sent"] += 1
        pass_on(endpoints, 1, 0)
    assert 1.95 < endpoints["decode_correction"][0] <= 2.0
    assert math.isclose(endpoints["decode_correction"][1], 1.0, rel_tol=1e-6)


@settings(deadline=None)  # the first one compiles
@given(
    st.lists(st.floats(0.2, 5.0), min_size=1, max_size=6),
    st.lists(st.floats(0.0, 500.0), min_size=6, max_size=6),
    st.integers(0, 10_000),
)
def test_forgetting_never_leaves_the_range_of_what_was_learned_and_predicted(
    corrections: list[float], seen: list[float], sent: int
) -> None:
    endpoints = equals(corrections)
    endpoints["answers_seen"] = seen[: len(corrections)]
    pass_on(endpoints, 1, sent)
    low, high = min(1.0, *corrections), max(1.0, *corrections)
    assert np.all(endpoints["decode_correction"] >= low * (1 - 1e-6))
    assert np.all(endpoints["decode_correction"] <= high * (1 + 1e-6))
    assert np.all(endpoints["answers_seen"] <= np.array(seen[: len(corrections)]) + 1e-9)


def test_an_endpoint_that_was_slow_and_recovered_has_its_share_again_within_two_minutes() -> None:
    """Live it had two of a hundred requests after a quarter of an hour: it had so few that none could tell."""
    fleet = [pool(replicas=2)]
    arrivals = np.cumsum(np.random.default_rng(3).exponential(0.5, 720))
    slow = Fault(kind="slow", replica=0, at_s=60.0, for_s=60.0, factor=3.0)
    promised = (SloClass(name="chat", share_fraction=1.0, slo=Slo(ttft_s=1.0, tpot_s=0.05)),)

    def served(until_s: float) -> np.ndarray:
        before = [float(at) for at in arrivals if at < until_s]
        block = requests(before, [(512, 60)] * len(before))
        routing = Routing(pick=pick, faults=(slow,))
        outcome = simulate(fleet, [block], classes=promised, options=Options(routing=routing))
        return np.array([replica.finished for replica in outcome.replicas])

    while_slow, later = served(120.0) - served(75.0), served(360.0) - served(240.0)
    assert while_slow[0] < 0.2 * while_slow.sum()
    assert later[0] > 0.35 * later.sum()


@pytest.mark.parametrize(("pickers", "replicas"), [(2, 2), (4, 4), (4, 8)])
def test_a_picker_whose_own_endpoint_is_slow_sends_to_those_of_others(pickers: int, replicas: int) -> None:
    """With one endpoint each, the slow one had kept its share, and a quarter to a half of all missed their promise."""
    count = 1000 * replicas
    arrivals = np.cumsum(np.random.default_rng(5).exponential(0.5 / replicas, count))
    block = requests([float(at) for at in arrivals], [(1024, 80)] * count)
    routing = Routing(pick=pick, pickers=pickers, faults=(Fault(kind="slow", replica=0, at_s=20.0, factor=3.0),))
    promised = (SloClass(name="chat", share_fraction=1.0, slo=Slo(ttft_s=1.0, tpot_s=0.05)),)
    outcome = simulate([pool(replicas=replicas)], [block], classes=promised, options=Options(routing=routing))
    assert outcome.replicas[0].finished < 0.35 * count / replicas
    assert (outcome.classes[0].met_fraction or 0.0) > 0.97
