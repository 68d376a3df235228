"""The compiled policy: compiled before the first request, cached, and equal to the simulator's."""

from typing import Any

import numpy as np
import pytest

from gateway_fakes import Clock, body_fields, fleet, picker_of, report
from penstock.gateway.picker import compiled_policy
from penstock.gateway.picker.picker import EndpointChoice
from penstock.gateway.picker.request_body import RequestHints
from penstock.routing import endpoint_updates, harm
from penstock.routing.records import Records, default_parameters, new_endpoints, new_request
from penstock.simulation.loop.compiler import cached_on_disk, keeps

ENTRIES: tuple[Any, ...] = (
    compiled_policy.rank,
    compiled_policy.refresh,
    compiled_policy.sent,
    compiled_policy.first_token,
    compiled_policy.finished,
    compiled_policy.lost,
    compiled_policy.begin_report,
    compiled_policy.reported,
)


def test_a_picker_compiles_nothing_once_it_has_started() -> None:
    compiled_policy.compile_once()
    assert compiled_policy.is_compiled()
    before = [len(entry.signatures) for entry in ENTRIES]
    assert before == [1] * len(ENTRIES)
    clock = Clock()
    picker, tables = picker_of(fleet(), clock)
    for _ in range(600):  # more than there is room for at first
        picker.decide(body_fields(), b"", RequestHints())
    for status in (200, 503):
        clock.now_s += 1.0
        report(tables, 0, clock, running=1)
        named = picker.decide(body_fields(), b"", RequestHints())
        assert isinstance(named, EndpointChoice)
        clock.now_s += 1000.0
        picker.state.tick()
        picker.state.end(named.ticket, "", status, "-", 1)
    assert [len(entry.signatures) for entry in ENTRIES] == before


def states(count: int) -> tuple[Records, Records, Records]:
    rng = np.random.default_rng(count)
    endpoints, request = new_endpoints(count), new_request()
    for name in ("step_s", "sequence_s", "prompt_token_s", "tpot_now_s", "decode_now_s", "wait_s", "usd_per_s"):
        endpoints[name] = rng.random(count) * 1e-2
    endpoints["vendor"] = rng.integers(0, 2, count)
    endpoints["accepts"] = rng.random(count) < 0.8
    endpoints["free_tokens"] = endpoints["kv_tokens"] = rng.integers(1, 5000, count)
    request["input_tokens"], request["expected_output_tokens"] = rng.integers(1, 3000), rng.integers(1, 300)
    request["ttft_s"], request["tpot_s"], request["turn"] = 1.0, 0.05, rng.integers(0, 2**31)
    return request, endpoints, rng.integers(0, 2, count)


def test_it_equals_the_simulators_function_bit_by_bit() -> None:
    for count in range(1, 40):
        request, endpoints, hits = states(count)
        answers = []
        for rank in (compiled_policy.rank, harm.rank):
            order, harms = np.zeros(3, np.int64), np.zeros(count)
            found = rank(request, endpoints, hits, default_parameters(), order, harms)
            answers.append((found, order.tobytes(), harms.tobytes()))
        assert answers[0] == answers[1]


def test_a_policy_runs_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise PermissionError("read-only file system")

    monkeypatch.setattr("numba.core.caching._CacheLocator.ensure_cache_path", refuse)
    source: Any = endpoint_updates.resident_tokens
    compiled: Any = cached_on_disk(source.py_func, "any sources")
    assert not keeps(compiled)
    flight = np.array([(100, 7)], [("input_tokens", "i8"), ("expected_output_tokens", "i8")])
    assert compiled(flight[0]) == 103
