"""Failing endpoints are excluded for a while; slow endpoints, and endpoints that fail a bad request, are not."""

import pytest

pytest.importorskip("httptools", reason='serving is an extra: pip install "penstock[gateway]"')

from gateway_fakes import Clock, body_fields, fleet, picker_of, report
from penstock.gateway.picker.fleet_state import SharedTables
from penstock.gateway.picker.picker import EndpointChoice, Picker
from penstock.gateway.picker.request_body import RequestHints
from penstock.gateway.servers.destinations import QUESTIONS, destinations, tried_endpoints
from penstock.gateway.servers.liveness_server import LivenessServer
from penstock.gateway.state.headers import ASK_AGAIN, DESTINATION, TICKET


def named_by(picker: Picker) -> EndpointChoice:
    named = picker.decide(body_fields(), b"", RequestHints())
    assert isinstance(named, EndpointChoice)
    assert named.order
    return named


def fail_elsewhere(picker: Picker, clock: Clock, endpoint: int, count: int) -> None:
    """Have an endpoint answer 500 to requests that another one then answers."""
    for _ in range(count):
        named = named_by(picker)
        other = next(index for index in (0, 2) if index != endpoint)
        clock.now_s += 0.002
        picker.state.fail_try(named.ticket, picker.fleet.addresses[endpoint], 500, "-")
        picker.state.end(named.ticket, picker.fleet.addresses[other], 200, "-", 2)


def test_an_endpoint_whose_500s_others_answer_is_suspected_for_a_while() -> None:
    clock = Clock()
    picker, _ = picker_of(fleet(), clock)
    fail_elsewhere(picker, clock, 0, 2)
    assert 0 in named_by(picker).order
    fail_elsewhere(picker, clock, 0, 1)
    assert named_by(picker).order == (2,)
    clock.now_s += 1.1
    assert 0 in named_by(picker).order
    fail_elsewhere(picker, clock, 0, 1)  # on trial, one is enough
    assert named_by(picker).order == (2,)
    clock.now_s += 2.1
    named = named_by(picker)
    picker.state.end(named.ticket, picker.fleet.addresses[0], 200, "-", 1)
    fail_elsewhere(picker, clock, 0, 1)  # well again: it counts from the beginning
    assert 0 in named_by(picker).order


def test_a_request_that_fails_everywhere_excludes_no_endpoint() -> None:
    clock = Clock()
    picker, _ = picker_of(fleet(), clock)
    for _ in range(20):
        named = named_by(picker)
        for index in (0, 2):
            picker.state.fail_try(named.ticket, picker.fleet.addresses[index], 500, "-")
        picker.state.end(named.ticket, picker.fleet.addresses[2], 500, "URX", 11)
        clock.now_s += 0.01
    assert set(named_by(picker).order) == {0, 2}


def test_a_fast_500_gives_no_latency_sample() -> None:
    clock = Clock()
    picker, tables = picker_of(fleet(), clock)
    picker.state.learned.itl_s[:] = 0.01
    before = picker.state.endpoints[["decode_correction", "answers_seen"]].copy()
    for index in (0, 2):
        report(tables, index, clock)
    for _ in range(20):
        named = named_by(picker)
        clock.now_s += 1.0  # its first token is taken to be there
        picker.state.tick()
        picker.state.end(named.ticket, picker.fleet.addresses[named.order[0]], 500, "-", 1)
    assert (picker.state.endpoints[["decode_correction", "answers_seen"]] == before).all()
    assert picker.state.endpoints["in_flight"].sum() == 0


def test_a_broken_connection_makes_an_endpoint_suspected_at_once() -> None:
    picker, _ = picker_of(fleet(), Clock())
    named = named_by(picker)
    picker.state.fail_try(named.ticket, picker.fleet.addresses[0], 0, "UC")
    assert named_by(picker).order == (2,)


def answer_alone(picker: Picker, clock: Clock, endpoint: int, status: int) -> None:
    """Have an answer end at a gateway that tells of no tries."""
    clock.now_s += 0.01
    place = picker.state.flights.place(ticket := named_by(picker).ticket)
    assert place is not None
    picker.state.flights.rows[place]["endpoint"] = endpoint
    picker.state.end(ticket, picker.fleet.addresses[endpoint], status, "-", 1, unlogged=True)


def test_behind_an_external_gateway_500_counts_if_others_answer() -> None:
    clock = Clock()
    picker, _ = picker_of(fleet(), clock)
    for _ in range(4):
        for endpoint in (0, 2):  # all fail: nobody is to blame
            answer_alone(picker, clock, endpoint, 500)
    assert set(named_by(picker).order) == {0, 2}
    answer_alone(picker, clock, 2, 200)
    answer_alone(picker, clock, 0, 500)
    assert named_by(picker).order == (2,)
    for _ in range(4):
        answer_alone(picker, clock, 2, 500)
    assert named_by(picker).order == (2,)  # one of two at most is out


def check_again_s(picker: Picker, named: EndpointChoice, *, first: bool = False) -> int | None:
    return picker.state.next_check_s(named.ticket, [picker.fleet.addresses[named.order[0]]], first=first)


def waiting(clock: Clock) -> tuple[Picker, SharedTables, EndpointChoice]:
    """A request that was sent 12 s ago to an endpoint that says it has it."""
    picker, tables = picker_of(fleet(), clock)
    named = named_by(picker)
    clock.now_s += 12.0
    report(tables, named.order[0], clock, running=1)
    picker.state.tick()
    return picker, tables, named


def test_a_failed_try_is_not_waited_for() -> None:
    clock = Clock()
    picker, _ = picker_of(fleet(), clock)
    named = named_by(picker)
    clock.now_s += 9.0
    assert check_again_s(picker, named, first=True) is None


def test_checks_of_a_slow_endpoint_back_off() -> None:
    clock = Clock()
    picker, tables, named = waiting(clock)
    assert check_again_s(picker, named, first=True) == 1  # whether it failed, the log tells in a moment
    assert check_again_s(picker, named) == 24
    clock.now_s += 88.0
    report(tables, named.order[0], clock, running=1)
    picker.state.tick()
    assert check_again_s(picker, named) == 200


@pytest.mark.parametrize("how", ["down", "idle", "failed", "unknown"])
def test_a_dead_endpoint_is_not_waited_for(how: str) -> None:
    clock = Clock()
    picker, tables, named = waiting(clock)
    index = named.order[0]
    clock.now_s += 0.1
    if how == "down":
        report(tables, index, clock, healthy=0)
    elif how == "idle":
        report(tables, index, clock, running=0)
        picker.state.tick()
        assert check_again_s(picker, named) is not None  # it may be about to report it
        for _ in range(70):
            clock.now_s += 1.0
            report(tables, index, clock, running=0)
            picker.state.tick()
    elif how == "failed":
        picker.state.fail_try(named.ticket, picker.fleet.addresses[index], 500, "-")
    else:
        picker.state.end(named.ticket, "", 0, "DC", 1)
    picker.state.tick()
    assert check_again_s(picker, named) is None


def test_a_client_that_leaves_before_its_response_counts_as_a_missed_slo() -> None:
    """A picker predicts first tokens. It must not take a client that gave up for one that was answered in time."""
    kept = {}
    for status, flags in ((200, "-"), (0, "DC")):
        clock = Clock()
        picker, _ = picker_of(fleet(), clock)
        for _ in range(5):
            ticket = named_by(picker).ticket
            clock.now_s += 0.01
            picker.state.end(ticket, "", status, flags, 1)
        kept[flags] = float(picker.state.parameters["class_kept"].min())
        assert not picker.state.endpoints["in_flight"].any()
    assert kept["DC"] < kept["-"]


def test_an_endpoint_without_reports_is_waited_for() -> None:
    clock = Clock()
    picker, _ = picker_of(fleet(), clock)
    named = named_by(picker)
    clock.now_s += 300.0
    assert check_again_s(picker, named) == 600


def test_invalid_liveness_questions_make_envoy_try_the_next_endpoint() -> None:
    clock = Clock()
    picker, _, named = waiting(clock)
    server = LivenessServer(picker.state)
    first = picker.fleet.addresses[named.order[0]]
    head = (
        f"POST / HTTP/1.1\r\nX-Envoy-Attempt-Count: 2\r\n{DESTINATION}: {first},,\r\n{TICKET}: {named.ticket}".encode()
    )
    assert f"\r\n{ASK_AGAIN}: 1\r\n".encode() in server.answer(head)
    for torn in (
        b"",
        b"noise",
        b"POST / HTTP/1.1\r\nx",
        head.replace(b": 2", b": two"),
        head.replace(b"Count: 2", b"C: 2"),
    ):
        answer = server.answer(torn)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert ASK_AGAIN.encode() not in answer


def test_failed_tries_survive_a_reload() -> None:
    clock = Clock()
    picker, _, named = waiting(clock)
    picker.state.fail_try(named.ticket, picker.fleet.addresses[named.order[0]], 500, "-")
    after, _ = picker_of(fleet(), clock)
    after.adopt(picker)
    assert check_again_s(after, named) is None


def test_destinations_alternate_endpoints_and_liveness_questions() -> None:
    listed, retries = destinations(["a:1", "b:2"], "/alive")
    places = listed.split(",")
    assert places == ["a:1", *["/alive"] * QUESTIONS, "b:2", *["/alive"] * QUESTIONS]
    assert retries == len(places)  # and once more by weights
    assert tried_endpoints(listed, 2, "/alive") == (["a:1"], True)
    assert tried_endpoints(listed, 3, "/alive") == (["a:1"], False)
    assert tried_endpoints(listed, QUESTIONS + 3, "/alive") == (["a:1", "b:2"], True)
