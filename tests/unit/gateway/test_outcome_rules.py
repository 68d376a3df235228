"""Outcomes of ended requests: the rules on columns are those of one request, in any number of requests at once."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_fakes import fleet, outcomes_in
from penstock.gateway.inside_envoy import ended_ring
from penstock.gateway.inside_envoy.ended_ring import EndedRing
from penstock.gateway.inside_envoy.module_outcomes import ModuleOutcomes
from penstock.gateway.inside_envoy.module_table import shared_tables, write_module_table
from penstock.gateway.picker.in_flight import InFlightRequest
from penstock.gateway.picker.outcome_receipts import ObservedAnswer, OutcomeBook, RequestEnd
from penstock.gateway.picker.outcome_rules import ENDED_REQUEST, EndedRequest, request_outcomes
from penstock.gateway.state.request_outcome import RequestOutcome
from penstock.gateway.telemetry.cost_metrics import SETTLE_EVERY_S
from penstock.gateway.telemetry.usage_metrics import UsageMetrics
from penstock.routing.records import Records

counts = st.one_of(st.just(-1), st.integers(0, 3000))
seconds = st.one_of(st.just(0.0), st.floats(0, 8))
limits = st.one_of(st.just(math.inf), st.floats(0.001, 8))
requests = st.builds(
    EndedRequest,
    ended_unix_s=st.floats(1e9, 1e9 + 30),
    tenant=st.sampled_from(["", *"abc"]),
    model=st.sampled_from(["a", "b", "a long name"]),
    slo_class=st.sampled_from(["", "chat"]),
    status=st.sampled_from([0, 200, 204, 399, 400, 429, 499, 500, 503]),
    waited_s=seconds,
    request_bytes=st.integers(0, 9000),
    input_tokens=st.integers(0, 3000),
    pool=st.sampled_from(["", "p", "gone"]),
    endpoint=st.sampled_from(["", "10.0.0.0:8000", "10.0.0.1:8000"]),
    sent_s=seconds,
    first_s=seconds,
    ended_s=seconds,
    failed=st.booleans(),
    left=st.booleans(),
    streamed=st.booleans(),
    generates=st.booleans(),
    cached_tokens=st.integers(0, 4000),
    expected_output_tokens=st.integers(0, 300),
    response_bytes=st.one_of(st.sampled_from([-1, 0, 1]), st.integers(0, 90_000)),
    counted_prompt=counts,
    counted_cached=counts,
    counted_output=counts,
    ttft_limit_s=limits,
    tpot_limit_s=st.one_of(st.just(math.inf), st.floats(0.0001, 0.1)),
    e2e_limit_s=limits,
)


def outcomes_of(ended: list[EndedRequest]) -> Records:
    return request_outcomes(np.array(ended, ENDED_REQUEST))


def tokens_of(one: EndedRequest) -> int | None:
    """Output tokens of one request; None if nothing is known of its response."""
    if one.status >= 400:
        return 0
    if one.response_bytes < 0:
        return None
    if not one.generates:
        return 0
    if one.counted_output >= 0:
        return one.counted_output
    if one.streamed:
        return round(one.response_bytes / (220 + len(one.model)))
    return max(1, round((one.response_bytes - 450) / 4.5)) if one.response_bytes else 0


def slo_of(one: EndedRequest, tokens: int | None) -> bool | None:
    """Whether one request met its SLO: every limit that it has, as far as it was seen."""
    if one.failed or one.status >= 500:
        return False
    whole_s, first_s = one.ended_s - one.sent_s + one.waited_s, one.first_s - one.sent_s
    if one.left and one.streamed and not one.first_s and whole_s > one.ttft_limit_s:
        return False
    if not 0 < one.status < 400:
        return None
    times = [(whole_s, one.e2e_limit_s, True), (first_s + one.waited_s, one.ttft_limit_s, bool(one.first_s))]
    if tokens is not None and tokens > 1 and one.tpot_limit_s < math.inf:
        decode_s = whole_s - one.waited_s - first_s
        times.append((decode_s, one.tpot_limit_s * (tokens - 1), bool(one.first_s)))
    judged = [
        seen_s <= limit_s if seen else True if whole_s <= limit_s else None
        for seen_s, limit_s, seen in times
        if limit_s < math.inf
    ]
    if False in judged:
        return False
    return None if None in judged or not judged or one.left else True


@given(st.lists(requests, max_size=30))
def test_the_rules_on_columns_are_those_of_one_request(ended: list[EndedRequest]) -> None:
    for one, row in zip(ended, outcomes_of(ended), strict=True):
        tokens = tokens_of(one)
        assert row["output_tokens"] == (one.expected_output_tokens if tokens is None else tokens)
        assert row["tokens_from"] == ("expected" if tokens is None else "bytes" if one.counted_output < 0 else "engine")
        assert row["kept"] == {True: 1, False: 0, None: -1}[slo_of(one, tokens)]
        assert row["duration_s"] == max(0.0, one.ended_s - one.sent_s)
        assert row["ttft_s"] == one.first_s - one.sent_s if one.first_s else math.isnan(row["ttft_s"])
        known = one.counted_prompt >= 0
        cached = one.counted_cached if known and one.counted_cached >= 0 else min(one.cached_tokens, one.input_tokens)
        prompt = one.counted_prompt if known else one.input_tokens
        assert (row["input_tokens"], row["cached_tokens"]) == (prompt, min(cached, prompt))
        assert row["prompt_from"] == ("engine" if known else "bytes")


def test_an_answer_of_one_token_keeps_its_tpot_limit() -> None:
    request = EndedRequest(9.0, "", "a", "chat", 200, 0.0, 400, 100, sent_s=1.0, first_s=1.2, ended_s=1.2005)
    one = request._replace(failed=False, streamed=True, generates=True, response_bytes=300, counted_output=1)
    assert outcomes_of([one._replace(ttft_limit_s=1.0, tpot_limit_s=0.05)])["kept"].tolist() == [1]


def test_a_client_that_left_before_its_first_token_has_seen_no_slo_kept() -> None:
    request = EndedRequest(9.0, "", "a", "chat", 200, 0.0, 400, 100, sent_s=1.0, ended_s=1.5, ttft_limit_s=1.0)
    left = request._replace(failed=False, left=True, streamed=True, generates=True, response_bytes=0)
    assert outcomes_of([left, left._replace(ended_s=2.5)])["kept"].tolist() == [-1, 0]


@given(st.lists(requests, max_size=30))
def test_metrics_of_many_requests_are_those_of_one_after_the_other(ended: list[EndedRequest]) -> None:
    pages = []
    for parts in ([ended], [[one] for one in ended]):
        usage, routed = UsageMetrics(now_s=1e9), fleet()
        routed.endpoints["usd_per_s"] = 0.001
        usage.use(routed)
        for part in parts:
            usage.add(outcomes_of(part))
        usage.look(1e9 + SETTLE_EVERY_S, {})
        pages.append(list(usage.lines()))
    assert pages[0] == pages[1]


@pytest.mark.parametrize("refused", [False, True])
def test_the_module_and_a_picker_record_the_same_of_a_request(tmp_path: Path, *, refused: bool) -> None:
    routed, recorded = fleet(), dict[str, RequestOutcome]()

    def record(name: str) -> OutcomeBook:
        return OutcomeBook(publish=lambda rows: recorded.update({name: outcomes_in(rows)[0]}), wall_clock=lambda: 9.0)

    request = EndedRequest(0.0, "search", "b", "chat", 429, 0.5, 4000, 1000)
    flight = InFlightRequest(0, 5.0, 5.5, 1000, 600, 70, 1, 0.0, 0.0, 0.0, 0.5, 1.0, 0.05, math.inf)
    answer = ObservedAnswer(9000, streamed=True, generates=True, first_s=5.5, prompt_tokens=812)
    picker = record("picker")
    if refused:
        picker.refuse(request)
    else:
        picker.begin(7, request, (400,))
        picker.end(
            7,
            RequestEnd(
                endpoint=routed.addresses[1],
                pool="p",
                index=0,
                status=200,
                failed=False,
                ended_s=7.0,
                flight=flight,
                answer=answer,
            ),
        )
    picker.flush()
    shared_tables(tmp_path, routed, 1)
    write_module_table(tmp_path, routed, 1, 10.0)
    rows = EndedRing(tmp_path, 1)._records[0][:1].copy()  # noqa: SLF001 - to write one record
    fields = {"name": 1, "slo_class": 1, "prompt_bytes": 4000, "input_tokens": 1000, "cached_tokens": 400} | {
        "flags": ended_ring.STREAMED | ended_ring.GENERATES | refused * ended_ring.REFUSED,
        "status": 429 if refused else 200,
        "expected_output_tokens": 70,
        "response_bytes": 9000,
        "counted_prompt": 812,
        "counted_cached": -1,
        "counted_output": -1,
        "sent_s": 5.0,
        "first_s": 5.5,
        "ended_s": 7.0,
        "waited_s": 0.5,
        "ttft_limit_s": 1.0,
        "tpot_limit_s": 0.05,
        "e2e_limit_s": math.inf,
        "endpoint": routed.addresses[1].encode(),
        "tenant": b"search",
    }
    for name, value in fields.items():
        rows[name] = value
    module = ModuleOutcomes(None, lambda rows: recorded.update(module=outcomes_in(rows)[0]))
    module.use(tmp_path, routed)
    module.write(rows, routed.endpoints)
    assert recorded["module"]._replace(ended_unix_s=9.0) == recorded["picker"]
