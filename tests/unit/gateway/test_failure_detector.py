"""Failing endpoints are excluded for a while; slow endpoints, and endpoints that fail a bad request, are not."""

import pytest

pytest.importorskip("httptools", reason='serving is an extra: pip install "penstock[gateway]"')

from gateway_fakes import Clock, body_fields, fleet, picker_of, report
from penstock.gateway.picker.picker import EndpointChoice, Picker
from penstock.gateway.picker.request_body import RequestHints


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


def test_failed_tries_survive_a_reload() -> None:
    clock = Clock()
    picker, _ = picker_of(fleet(), clock)
    tickets = [named_by(picker).ticket for _ in range(3)]
    for ticket in tickets:
        picker.state.fail_try(ticket, picker.fleet.addresses[0], 500, "-")
    after, _ = picker_of(fleet(), clock)
    after.adopt(picker)
    for ticket in tickets:
        after.state.end(ticket, after.fleet.addresses[2], 200, "-", 2)
    assert named_by(after).order == (2,)


def test_an_endpoint_that_was_silent_until_another_answered_is_suspected() -> None:
    clock = Clock()
    picker, _ = picker_of(fleet(), clock)
    named = named_by(picker)
    first, other = named.order
    clock.now_s += 12.0
    picker.state.end(named.ticket, picker.fleet.addresses[other], 200, "-", 2)
    assert named_by(picker).order == (other,)
    clock.now_s += 1.1
    assert first in named_by(picker).order


def test_failures_under_way_do_not_prolong_suspicion() -> None:
    """Attack: eight requests that failed together excluded an endpoint for 30 s instead of one."""
    clock = Clock()
    picker, _ = picker_of(fleet(), clock)
    under_way = [named_by(picker) for _ in range(8)]
    for named in under_way:
        picker.state.fail_try(named.ticket, picker.fleet.addresses[0], 401, "-")
    for named in under_way:
        picker.state.end(named.ticket, picker.fleet.addresses[2], 200, "-", 2)
    assert named_by(picker).order == (2,)
    clock.now_s += 1.1
    assert 0 in named_by(picker).order


def test_a_refusal_others_answer_strikes() -> None:
    clock = Clock()
    picker, tables = picker_of(fleet(), clock)
    for _ in range(3):
        named = named_by(picker)
        picker.state.fail_try(named.ticket, picker.fleet.addresses[0], 429, "-")
        picker.state.end(named.ticket, picker.fleet.addresses[2], 200, "-", 2)
    picker.state.tick()
    assert tables.counts["struck"].tolist() == [[3, 0, 0, 0]]
    assert named_by(picker).order == (2,)


def test_a_doubted_endpoint_has_peers_asked() -> None:
    picker, _ = picker_of(fleet(), Clock())
    first = named_by(picker)
    assert not first.doubted
    picker.state.end(first.ticket, picker.fleet.addresses[first.order[0]], 400, "-", 1)
    assert picker.state.doubts(first.order[0])
    picker.state.end(named_by(picker).ticket, picker.fleet.addresses[first.order[0]], 200, "-", 1)
    assert not picker.state.doubts(first.order[0])
