"""What a module inside Envoy calls: compiled, as Python source, and as the picker in Python decides."""

import math
from typing import Any

import numpy as np
import pytest

from penstock.compiled.interface import ExportedFunction
from penstock.compiled.tables import as_records
from penstock.gateway.picker.late_fallback import late_candidates, shorten
from penstock.gateway.picker.predicted_latency import IdleEndpoints
from penstock.gateway.picker.prefix_index import BLOCK_BYTES, PrefixIndex
from penstock.gateway.picker.tenant_weights import TenantWeights
from penstock.routing import late_requests, picker_calls, prefix_blocks, suspicion, tenant_shares
from penstock.routing.records import FLIGHT, Records, default_parameters, new_endpoints, new_request

ENDPOINTS = 40


def fleet(rng: np.random.Generator) -> Records:
    endpoints = new_endpoints(ENDPOINTS)
    for name in ("step_s", "sequence_s", "prompt_token_s"):
        endpoints[name] = rng.random(ENDPOINTS) * 1e-3
    endpoints["prompt_pair_s"] = rng.random(ENDPOINTS) * 1e-9
    endpoints["pool"], endpoints["vendor"] = rng.integers(0, 3, ENDPOINTS), rng.integers(0, 2, ENDPOINTS)
    endpoints["serves"], endpoints["accepts"] = rng.integers(1, 4, ENDPOINTS), rng.random(ENDPOINTS) < 0.9
    endpoints["kv_tokens"] = rng.integers(1_000, 100_000, ENDPOINTS)
    endpoints["max_context_tokens"], endpoints["max_running"] = rng.integers(500, 50_000, ENDPOINTS), 64
    endpoints["step_tokens"] = 8192
    return endpoints


def request(rng: np.random.Generator) -> Records:
    made = new_request()
    made["model"], made["slo_class"] = rng.integers(1, 4), rng.integers(0, 6)
    made["input_tokens"], made["expected_output_tokens"] = rng.integers(1, 60_000), rng.integers(1, 900)
    made["output_limit_tokens"] = rng.integers(0, 2) * rng.integers(1, 2_000)
    made["ttft_s"], made["tpot_s"] = rng.choice([0.01, 1.0, math.inf]), rng.choice([0.02, 0.1, math.inf])
    made["sheddable"], made["turn"], made["now_s"] = rng.integers(0, 3), rng.integers(0, 2**31), 100 * rng.random()
    return made


def tables(rng: np.random.Generator) -> dict[str, Any]:
    """A picker in the middle of its work, and the tables of a module."""
    endpoints, parameters, flights = fleet(rng), default_parameters(), np.zeros(32, FLIGHT)
    hits, suspects = rng.integers(0, 300, ENDPOINTS), np.zeros(ENDPOINTS, suspicion.SUSPECT)
    picker = picker_calls.picker_table(
        request=request(rng), endpoints=endpoints, hits=hits, parameters=parameters, flights=flights
    )
    for place in range(32):
        picker.request[0] = request(rng)[0]
        picker_calls.sent_with(picker, int(rng.integers(0, ENDPOINTS)), place, int(rng.integers(0, 2)))
        if place % 3 == 0:
            picker_calls.first_token(picker, place, float(picker.request["now_s"][0] + rng.random()))
    suspects["healthy"] = 1
    for name, top in (("until_s", 90.0), ("for_s", 4.0)):
        suspects[name] = rng.integers(0, 2, ENDPOINTS) * rng.random(ENDPOINTS) * top
    blocks = np.zeros(16, prefix_blocks.PREFIX_BLOCK)  # so few that blocks replace each other
    blocks["key"], blocks["sent_s"] = rng.integers(0, 40, 16), rng.random(16) * 1_000
    tenants = np.zeros(tenant_shares.TENANT_BUCKETS, tenant_shares.TENANT)
    tenants["tokens"][:9], tenants["since"][:9] = rng.integers(0, 3, 9) * 1_000, rng.random(9)
    words = -(-ENDPOINTS // prefix_blocks.HOLDERS_PER_WORD)
    return {
        "picker": picker,
        "suspects": suspicion.SuspectTable(endpoints, suspects),
        "prefix": prefix_blocks.PrefixTable(
            blocks,
            rng.integers(0, 2**32, (16, words)) % (1 << np.array([32, ENDPOINTS - 32])),
            rng.integers(1, 40, 6),
            np.zeros(words, np.int64),
            np.zeros(ENDPOINTS, np.int64),
        ),
        "tenants": tenant_shares.TenantTable(tenants),
    }


def numbers(function: ExportedFunction, rng: np.random.Generator) -> list[float]:
    """Return arguments for every number that a function takes."""
    limits = {"endpoint": ENDPOINTS, "place": 32, "count": 7, "bucket": 9, "healthy": 2, "max_tokens": 900}
    return [
        int(rng.integers(0, limits.get(name, 300))) if kind is int else float(100 + 600 * rng.random())
        for name, kind in function.arguments[1:]
    ]


CASES: list[tuple[Any, str]] = [
    *((call, "picker") for call in (picker_calls.sent_with, picker_calls.clear_counts, picker_calls.resume)),
    *((call, "picker") for call in (picker_calls.first_token, picker_calls.finished, picker_calls.lost)),
    *((call, "picker") for call in (picker_calls.count_arrival, picker_calls.count_refusal)),
    *((call, "picker") for call in (late_requests.retry_after, late_requests.shorten_request)),
    (late_requests.late_choice, "picker"),
    *((call, "suspects") for call in (suspicion.apply_health, suspicion.strike, suspicion.clear_strikes)),
    (suspicion.end_suspicions, "suspects"),
    *((call, "prefix") for call in (prefix_blocks.match_prefix, prefix_blocks.add_prefix)),
    *((call, "tenants") for call in (tenant_shares.tenant_weight, tenant_shares.count_tenant)),
]


@pytest.mark.parametrize(("call", "kind"), CASES, ids=[case[0].__name__ for case in CASES])
def test_the_compiled_function_equals_its_source_bit_for_bit(call: Any, kind: str) -> None:  # noqa: ANN401 - exported
    if call.native is None:
        pytest.skip("no compiled library")
    changed = 0
    for seed in range(60):
        found: list[tuple[Any, list[bytes]]] = []
        for native in (True, False):
            rng = np.random.default_rng(seed)
            table = tables(rng)[kind]
            before = [array.tobytes() for array in table]
            given = numbers(call, rng)
            with np.errstate(all="ignore"):
                result = call(table, *given) if native else call.py_func(as_records(table), *given)
            found.append((result, [array.tobytes() for array in table]))
        assert found[0] == found[1], seed
        changed += found[0][1] != before or bool(found[0][0])
    assert changed > 0


def test_prefixes_are_found_as_the_index_in_python_finds_them() -> None:
    rng, index = np.random.default_rng(1), PrefixIndex()
    rows, words = 2**10, -(-ENDPOINTS // prefix_blocks.HOLDERS_PER_WORD)
    table = prefix_blocks.PrefixTable(
        np.zeros(rows, prefix_blocks.PREFIX_BLOCK),
        np.zeros((rows, words), np.int64),
        np.zeros(8, np.int64),
        np.zeros(words, np.int64),
        np.zeros(ENDPOINTS, np.int64),
    )
    expected, some = np.zeros(ENDPOINTS, np.int64), 0
    for step in range(400):
        prompt, length = int(rng.integers(0, 6)), int(rng.integers(1, 9))
        keys = [1 + (prompt // 2 if number < 3 else prompt) * 100 + number for number in range(length)]
        table.keys[:length] = keys
        now_s = 5.0 * step
        prefix_blocks.match_prefix(table, length, 255.5, 1_800, now_s)
        index.fill_hits(keys, expected, 255.5, now_s)
        assert table.hits.tolist() == np.minimum(expected, 1_800).tolist()
        some += int(table.hits.max() > 0)
        if rng.random() < 0.3:
            endpoint = int(rng.integers(0, ENDPOINTS))
            prefix_blocks.add_prefix(table, length, endpoint, now_s)
            index.add(keys, endpoint, now_s)
    assert some > 100
    assert BLOCK_BYTES == 1024


def test_tenants_are_weighed_as_in_python() -> None:
    rng, weights = np.random.default_rng(2), TenantWeights()
    table = tenant_shares.TenantTable(np.zeros(tenant_shares.TENANT_BUCKETS, tenant_shares.TENANT))
    for step in range(300):
        bucket, now_s = int(rng.integers(0, 5)), 3.0 * step
        assert tenant_shares.tenant_weight(table, bucket, now_s) == pytest.approx(weights.weight(bucket, now_s))
        tokens = (int(rng.integers(1, 900)), int(rng.integers(1, 200)) * (bucket + 1))
        tenant_shares.count_tenant(table, bucket, *tokens, now_s)
        weights.count(bucket, *tokens, now_s)


def test_late_requests_are_treated_as_in_python() -> None:
    results = set()
    for seed in range(400):
        rng = np.random.default_rng(seed)
        picker = tables(rng)["picker"]
        if seed % 4:  # as in a fleet that has load everywhere
            picker.endpoints["running"] += 1
        initial, asked = new_endpoints(ENDPOINTS), picker.request.copy()
        for name in picker.endpoints.dtype.names or ():
            if name not in _AT_RUN_TIME:
                initial[name] = picker.endpoints[name]
        picker.hits[:] = np.minimum(picker.hits, asked["input_tokens"] - 1)
        idle = IdleEndpoints(initial, picker.parameters)
        expected = late_candidates(asked, picker.endpoints, picker.hits, idle)
        copied = picker._replace(endpoints=picker.endpoints.copy())
        choice = late_requests.late_choice(copied)
        results.add(choice)
        if choice == late_requests.ONLY_UNLOADED:
            assert expected is not None
            assert expected["accepts"].tolist() == copied.endpoints["accepts"].tolist()
        else:
            assert (expected is not None) == (choice == late_requests.ANY_ENDPOINT), seed
        other = picker._replace(request=picker.request.copy(), hits=picker.hits.copy())
        assert late_requests.shorten_request(other) == shorten(picker.request, picker.endpoints, picker.hits)
        assert (other.request, other.hits.tolist()) == (picker.request, picker.hits.tolist())
    assert results == {late_requests.SHED, late_requests.ONLY_UNLOADED, late_requests.ANY_ENDPOINT}


_AT_RUN_TIME = frozenset(
    {
        *("tpot_now_s", "stretch", "swing_s", "stall_per_prompt_s", "strain_per_s", "wait_s", "seats_wait_s"),
        *("free_tokens", "drain_tokens_per_s", "carry_s", "decode_now_s", "resident_tpot_s", "residents"),
        *("reported_s", "running", "waiting", "kv_used_tokens", "sent", "in_flight", "prefilling"),
        *("sent_since_report", "outstanding_prompt_tokens", "outstanding_prompt_s", "resident_tokens"),
        *("shared_tokens", "resident_output_tokens", "prompt_load_fraction", "prompt_squares_s", "prompt_load_s"),
    }
)


def _suspects(count: int) -> suspicion.SuspectTable:
    table = suspicion.SuspectTable(new_endpoints(count), np.zeros(count, suspicion.SUSPECT))
    table.suspects["healthy"] = 1
    return table


def test_an_endpoint_is_suspected_after_three_strikes_and_then_after_one() -> None:
    table = _suspects(2)
    assert [suspicion.strike(table, 0, 10.0) for _ in range(3)] == [0, 0, 1]
    assert table.endpoints["accepts"].tolist() == [0, 1]
    suspicion.apply_health(table, 0, 1, 10.5)
    assert not table.endpoints["accepts"][0]
    suspicion.end_suspicions(table, 11.0)
    assert table.endpoints["accepts"][0]
    assert suspicion.strike(table, 0, 12.0) == 1
    assert table.suspects["until_s"][0] == 12.0 + 2.0
    suspicion.end_suspicions(table, 14.0)
    suspicion.clear_strikes(table, 0)
    assert suspicion.strike(table, 0, 15.0) == 0


def test_a_resumed_request_counts_as_it_did_before() -> None:
    rng = np.random.default_rng(5)
    table = tables(rng)["picker"]
    names = ("in_flight", "prefilling", "outstanding_prompt_tokens", "resident_tokens", "shared_tokens", "residents")
    before = {name: table.endpoints[name].copy() for name in (*names, "resident_output_tokens")}
    for index in range(ENDPOINTS):
        picker_calls.clear_counts(table, index)
    assert not table.endpoints["in_flight"].any()
    for place in range(32):
        picker_calls.resume(table, int(table.flights["endpoint"][place]), place)
    for name, values in before.items():
        assert values.tolist() == table.endpoints[name].tolist(), name
