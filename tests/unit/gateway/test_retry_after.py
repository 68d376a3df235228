"""Retry-After follows the policy's own predictions."""

import math

import numpy as np
import pytest

from gateway_fakes import MODELS, Clock, body_fields, fleet, picker_of
from penstock.gateway.picker.picker import Picker, Rejection
from penstock.gateway.picker.predicted_latency import predict_latency
from penstock.gateway.picker.request_body import RequestHints
from penstock.gateway.picker.retry_after import ShedRatio, room_s
from penstock.routing.latency import share_of_chance, times_of

BATCH = RequestHints(objective="batch")
LONG = body_fields(body_bytes=400_000)
"""A hundred thousand tokens."""
LONG_S = 100_000 * 2e-5 + 100_000 / 8192 * 0.01
"""At 20 us each, and 10 ms for each of its steps."""


def retry_after_s(picker: Picker, hints: RequestHints = BATCH, body_bytes: int = 400) -> int:
    shed = picker.decide(body_fields(body_bytes=body_bytes), b"", hints)
    assert isinstance(shed, Rejection)
    assert shed.status == 429
    assert shed.retry_s is not None
    return shed.retry_s


def test_predictions_equal_those_of_routing() -> None:
    routed, clock = fleet(6), Clock()
    routed.endpoints["sequence_s"], routed.endpoints["context_token_s"] = 1e-4, 1e-8
    routed.endpoints["prompt_pair_s"], routed.endpoints["request_s"] = 1e-10, 0.02
    routed.endpoints["kv_tokens"] = [20_000 + 10_000 * index for index in range(6)]
    picker, _ = picker_of(routed, clock)
    for turn in range(300):
        clock.now_s += 0.001
        picker.decide(body_fields(MODELS[turn % 2], 400 * (turn % 90 + 1)), b"", RequestHints())
    request = picker._arrays.request  # noqa: SLF001 - the last one
    hits = np.minimum(np.arange(6) * 20, int(request["input_tokens"][0]) - 1)
    first_s, tpot_s = predict_latency(request, picker.state.endpoints, hits)
    able = [int(request["model"][0]) & int(serves) != 0 for serves in picker.state.endpoints["serves"]]
    assert np.isfinite(first_s).tolist() == able
    for index, endpoint in enumerate(picker.state.endpoints):
        if not able[index]:
            continue
        due_s, token_s, _ = times_of(request[0], endpoint, int(hits[index]), share_of_chance(request[0]))
        assert (first_s[index], tpot_s[index]) == (pytest.approx(due_s), pytest.approx(token_s))
    assert first_s[able].max() > 2 * first_s[able].min(), "endpoints that differ"


@pytest.mark.parametrize("waiting", [5, 10, 20])
def test_retry_after_covers_the_queue_beyond_the_ttft_target(waiting: int) -> None:
    """A second is promised."""
    routed = fleet(2)
    routed.endpoints["prompt_token_s"] = 2e-5
    routed.endpoints["max_context_tokens"] = routed.endpoints["kv_tokens"] = 10_000_000
    picker, _ = picker_of(routed, Clock())
    for _ in range(waiting):
        picker.decide(LONG, b"", RequestHints())
    assert retry_after_s(picker) == pytest.approx(waiting * LONG_S - 1, abs=1)


@pytest.mark.parametrize(("only", "waiting"), [(None, 4), (frozenset({0}), 20)])
def test_the_earliest_endpoint_decides(only: frozenset[int] | None, waiting: int) -> None:
    routed = fleet(4)
    routed.endpoints["prompt_token_s"] = 2e-5
    routed.endpoints["max_context_tokens"] = routed.endpoints["kv_tokens"] = 10_000_000
    picker, _ = picker_of(routed, Clock())
    for count, endpoint in ((20, 0), (4, 2)):
        for _ in range(count):
            picker.decide(LONG, b"", RequestHints(), frozenset({endpoint}))
    shed = picker.decide(body_fields(), b"", BATCH, only)
    assert isinstance(shed, Rejection)
    assert shed.retry_s == pytest.approx(waiting * LONG_S - 1, abs=1)


def test_slow_tokens_wait_until_enough_responses_end() -> None:
    """Half of those that are there must leave: half of the seconds an answer takes."""
    routed = fleet(2)
    routed.endpoints["step_s"], routed.endpoints["sequence_s"], routed.endpoints["max_running"] = 1e-6, 0.001, 1000
    picker, _ = picker_of(routed, Clock())
    for _ in range(100):  # 0.1 s a token, where 0.05 are promised
        picker.decide(body_fields(body_bytes=4), b"", RequestHints())
    life_s = 50 * 0.1
    assert retry_after_s(picker, body_bytes=4) == pytest.approx(math.ceil(life_s / 2), abs=1)


def test_retry_after_is_between_1_and_60_seconds() -> None:
    routed = fleet(2)
    routed.endpoints["step_s"] = 0.052
    picker, _ = picker_of(routed, Clock())
    picker.decide(body_fields(), b"", RequestHints())
    assert retry_after_s(picker) == 1
    for _ in range(3000):  # most of them wait for a seat
        picker.decide(body_fields(body_bytes=40_000), b"", RequestHints())
    assert retry_after_s(picker, body_bytes=40_000) == 60
    picker.state.endpoints["accepts"] = 0
    assert room_s(picker._arrays.request, picker.state.endpoints, np.zeros(2, np.int64)) == 60  # noqa: SLF001 - nobody is there


def test_retry_after_scales_with_arrivals_per_admission() -> None:
    """Room is there in a second; of twelve that come in it one is let in."""
    ratio, now_s = ShedRatio(), 1000.0
    for turn in range(1200):
        now_s += 1 / 12
        ratio.add(now_s, admitted=turn % 12 == 0)
    assert ratio.arrivals_per_admission == pytest.approx(12, rel=0.1)
    ratio.add(now_s + 600, admitted=False)
    assert ratio.arrivals_per_admission == pytest.approx(1), "what was minutes ago says nothing"
    routed = fleet(2)
    routed.endpoints["step_s"] = 0.052
    picker, _ = picker_of(routed, clock := Clock())
    picker.decide(body_fields(), b"", RequestHints())
    told = list[int]()
    for _ in range(10):
        clock.now_s += 0.1
        told.append(retry_after_s(picker))
    assert told == sorted(told)
    assert (told[0], told[-1]) == (1, 10)
