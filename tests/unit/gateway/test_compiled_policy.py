"""The compiled policy that pickers decide with: the same function as the simulator's and as its source."""

import numpy as np

from gateway_fakes import Clock, body_fields, fleet, picker_of, report
from penstock.gateway.picker.compiled_policy import CompiledPolicy
from penstock.gateway.picker.picker import EndpointChoice
from penstock.gateway.picker.request_body import RequestHints
from penstock.routing import harm
from penstock.routing.picker_calls import picker_table
from penstock.routing.records import Records, default_parameters, new_endpoints, new_request


def test_a_picker_that_runs_out_of_room_for_requests_goes_on() -> None:
    clock = Clock()
    picker, tables = picker_of(fleet(), clock)
    for _ in range(600):  # more than there is room for at first
        picker.decide(body_fields(), b"", RequestHints())
    assert picker.state.endpoints["in_flight"].sum() == 600
    for status in (200, 503):
        clock.now_s += 1.0
        report(tables, 0, clock, running=1)
        named = picker.decide(body_fields(), b"", RequestHints())
        assert isinstance(named, EndpointChoice)
        clock.now_s += 1000.0
        picker.state.tick()
        picker.state.end(named.ticket, "", status, "-", 1)
    assert picker.state.endpoints["in_flight"].sum() == 600


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


def test_it_is_the_function_the_simulator_runs_to_the_last_bit() -> None:
    """And its source, run as Python."""
    for count in range(1, 40):
        request, endpoints, hits = states(count)
        arrays = {"order": np.zeros(3, np.int64), "harms": np.zeros(count), "parameters": default_parameters()}
        table = picker_table(request=request, endpoints=endpoints, hits=hits, **arrays)
        found = CompiledPolicy(table).rank()
        order, harms = np.zeros(3, np.int64), np.zeros(count)
        assert harm.rank(request, endpoints, hits, table.parameters, order, harms) == found
        assert (order.tobytes(), harms.tobytes()) == (table.order.tobytes(), table.harms.tobytes())
