"""A receipt says of every endpoint what ruled it out or what was predicted; a replay asks another policy the same."""

import numpy as np
import pytest

from penstock.routing.baselines.peer_policies import round_robin
from penstock.routing.endpoint_updates import refresh
from penstock.routing.harm import pick
from penstock.routing.records import REJECTED, Records, default_parameters, new_endpoints, new_request
from penstock.routing.replay import PickSample, explain, replay


def sample(number: int = 0, *, down: int | None = None) -> tuple[PickSample, Records]:
    e, q, p = new_endpoints(4), new_request(), default_parameters()
    e["step_s"], e["prompt_token_s"] = (0.01, 0.02, 0.03, 0.04), (1e-5, 2e-5, 3e-5, 4e-5)
    e["kv_tokens"], e["usd_per_s"] = (100, 10_000, 10_000, 10_000), 1e-3
    q["input_tokens"], q["expected_output_tokens"], q["ttft_s"], q["tpot_s"], q["number"] = 1000, 100, 1.0, 0.05, number
    if down is not None:
        e["accepts"][down] = 0
    for index in range(4):
        refresh(e, index, 0.0, p)
    hits = np.zeros(4, np.int64)
    return PickSample.of(q, e, hits, pick(q, e, hits, p)), p


def test_every_endpoint_has_its_line() -> None:
    taken, parameters = sample(down=2)
    receipt = explain(taken, parameters)
    assert [line.ruled_out for line in receipt.lines] == ["its KV cache is too small", None, "is down", None]
    able = [line for line in receipt.lines if line.ruled_out is None]
    assert receipt.line is not None
    assert receipt.line.harm == min(line.harm for line in able)
    # 1,000 tokens of 20 us and the step that carries them; a token is a step.
    assert receipt.line.ttft_s == pytest.approx(1000 * 2e-5 + 0.02)
    assert receipt.line.tpot_s == pytest.approx(0.02)
    assert receipt.line.engine_usd == pytest.approx(1000 * 2e-5 * 1e-3)


def test_a_rejection_has_no_line() -> None:
    taken, parameters = sample()
    refused = PickSample(taken.request, taken.endpoints, taken.hits, REJECTED)
    assert explain(refused, parameters).line is None


def test_the_same_policy_replays_to_the_same_picks() -> None:
    again = replay([sample(number) for number in range(12)], pick)
    assert (len(again.chosen), again.agreed, again.refused) == (12, 12, 0)


def test_what_round_robin_would_have_cost() -> None:
    samples = [sample(number) for number in range(12)]
    ours, theirs = replay(samples, pick), replay(samples, round_robin)
    assert theirs.agreed < 12
    assert theirs.engine_usd > ours.engine_usd
    assert theirs.expected_misses > ours.expected_misses


def test_in_turn_is_in_turn_among_the_picks_that_were_written_down() -> None:
    every_thousandth = [sample(1000 * number) for number in range(12)]
    # The first of the four endpoints is too small: the others take turns.
    assert replay(every_thousandth, round_robin).chosen == (1, 2, 3) * 4


def test_what_nobody_can_serve_is_rejected_and_costs_nothing() -> None:
    taken, parameters = sample()
    taken.endpoints["accepts"] = 0
    found = replay([(taken, parameters)], pick)
    assert (found.chosen, found.refused, found.engine_usd, found.expected_misses) == ((REJECTED,), 1, 0.0, 0.0)
