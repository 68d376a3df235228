"""Who fails gets no requests for a while; a request that fails everywhere takes nobody out, and slow is not dead."""

import pytest

pytest.importorskip("httptools", reason='serving is an extra: pip install "penstock[gateway]"')

from desks import Clock, asked, desk_of, fleet, report
from penstock.gateway.picker.picker import Named, Picker, SharedTables
from penstock.gateway.picker.request_body import RequestHints
from penstock.gateway.servers.destinations import QUESTIONS, destinations, tried
from penstock.gateway.servers.liveness_server import LivenessServer
from penstock.gateway.state.headers import ASK_AGAIN, DESTINATION, TICKET


def named_by(desk: Picker) -> Named:
    named = desk.decide(asked(), b"", RequestHints())
    assert isinstance(named, Named)
    assert named.order
    return named


def fail_elsewhere(desk: Picker, clock: Clock, endpoint: int, count: int) -> None:
    """Have an endpoint answer 500 to requests that another one then answers."""
    for _ in range(count):
        named = named_by(desk)
        other = next(index for index in (0, 2) if index != endpoint)
        clock.now_s += 0.002
        desk.try_failed(named.ticket, desk.fleet.addresses[endpoint], 500, "-")
        desk.ended(named.ticket, desk.fleet.addresses[other], 200, "-", 2)


def test_an_endpoint_whose_500s_others_answer_is_suspected_and_tried_again() -> None:
    clock = Clock()
    desk, _ = desk_of(fleet(), clock)
    fail_elsewhere(desk, clock, 0, 2)
    assert 0 in named_by(desk).order
    fail_elsewhere(desk, clock, 0, 1)
    assert named_by(desk).order == (2,)
    clock.now_s += 1.1
    assert 0 in named_by(desk).order
    fail_elsewhere(desk, clock, 0, 1)  # on trial, one is enough
    assert named_by(desk).order == (2,)
    clock.now_s += 2.1
    named = named_by(desk)
    desk.ended(named.ticket, desk.fleet.addresses[0], 200, "-", 1)
    fail_elsewhere(desk, clock, 0, 1)  # well again: it counts from the beginning
    assert 0 in named_by(desk).order


def test_a_request_that_fails_everywhere_takes_no_endpoint_out() -> None:
    clock = Clock()
    desk, _ = desk_of(fleet(), clock)
    for _ in range(20):
        named = named_by(desk)
        for index in (0, 2):
            desk.try_failed(named.ticket, desk.fleet.addresses[index], 500, "-")
        desk.ended(named.ticket, desk.fleet.addresses[2], 500, "URX", 11)
        clock.now_s += 0.01
    assert set(named_by(desk).order) == {0, 2}


def test_a_fast_500_teaches_nothing_about_speed() -> None:
    clock = Clock()
    desk, tables = desk_of(fleet(), clock)
    desk.learned.itl_s[:] = 0.01
    before = desk.endpoints[["decode_correction", "answers_seen"]].copy()
    for index in (0, 2):
        report(tables, index, clock)
    for _ in range(20):
        named = named_by(desk)
        clock.now_s += 1.0  # its first token is taken to be there
        desk.tick()
        desk.ended(named.ticket, desk.fleet.addresses[named.order[0]], 500, "-", 1)
    assert (desk.endpoints[["decode_correction", "answers_seen"]] == before).all()
    assert desk.endpoints["in_flight"].sum() == 0


def test_who_breaks_a_connection_is_suspected_at_once() -> None:
    desk, _ = desk_of(fleet(), Clock())
    named = named_by(desk)
    desk.try_failed(named.ticket, desk.fleet.addresses[0], 0, "UC")
    assert named_by(desk).order == (2,)


def answer_alone(desk: Picker, clock: Clock, endpoint: int, status: int) -> None:
    """Have an answer end at a gateway that tells of no tries."""
    clock.now_s += 0.01
    place = desk._flights.place(ticket := named_by(desk).ticket)  # noqa: SLF001 - where it was sent
    assert place is not None
    desk._flights.rows[place]["endpoint"] = endpoint  # noqa: SLF001 - same
    desk.ended(ticket, desk.fleet.addresses[endpoint], status, "-", 1, alone=True)


def test_behind_another_gateway_a_500_counts_where_others_answer_meanwhile() -> None:
    clock = Clock()
    desk, _ = desk_of(fleet(), clock)
    for _ in range(4):
        for endpoint in (0, 2):  # all fail: nobody is to blame
            answer_alone(desk, clock, endpoint, 500)
    assert set(named_by(desk).order) == {0, 2}
    answer_alone(desk, clock, 2, 200)
    answer_alone(desk, clock, 0, 500)
    assert named_by(desk).order == (2,)
    for _ in range(4):
        answer_alone(desk, clock, 2, 500)
    assert named_by(desk).order == (2,)  # one of two at most is out


def asked_again_s(desk: Picker, named: Named, *, first: bool = False) -> int | None:
    return desk.ask_again_s(named.ticket, [desk.fleet.addresses[named.order[0]]], first=first)


def waiting(clock: Clock) -> tuple[Picker, SharedTables, Named]:
    """A request that was sent 12 s ago to an endpoint that says it has it."""
    desk, tables = desk_of(fleet(), clock)
    named = named_by(desk)
    clock.now_s += 12.0
    report(tables, named.order[0], clock, running=1)
    desk.tick()
    return desk, tables, named


def test_a_try_that_ended_before_any_silence_is_not_waited_for() -> None:
    clock = Clock()
    desk, _ = desk_of(fleet(), clock)
    named = named_by(desk)
    clock.now_s += 9.0
    assert asked_again_s(desk, named, first=True) is None


def test_a_slow_endpoint_that_is_alive_is_waited_for_in_longer_and_longer_turns() -> None:
    clock = Clock()
    desk, tables, named = waiting(clock)
    assert asked_again_s(desk, named, first=True) == 1  # whether it failed, the log tells in a moment
    assert asked_again_s(desk, named) == 24
    clock.now_s += 88.0
    report(tables, named.order[0], clock, running=1)
    desk.tick()
    assert asked_again_s(desk, named) == 200


@pytest.mark.parametrize("how", ["down", "idle", "failed", "unknown"])
def test_a_dead_endpoint_is_not_waited_for(how: str) -> None:
    clock = Clock()
    desk, tables, named = waiting(clock)
    index = named.order[0]
    clock.now_s += 0.1
    if how == "down":
        report(tables, index, clock, healthy=0)
    elif how == "idle":
        report(tables, index, clock, running=0)
        desk.tick()
        assert asked_again_s(desk, named) is not None  # it may be about to report it
        for _ in range(70):
            clock.now_s += 1.0
            report(tables, index, clock, running=0)
            desk.tick()
    elif how == "failed":
        desk.try_failed(named.ticket, desk.fleet.addresses[index], 500, "-")
    else:
        desk.ended(named.ticket, "", 0, "DC", 1)
    desk.tick()
    assert asked_again_s(desk, named) is None


def test_an_endpoint_without_reports_is_waited_for() -> None:
    clock = Clock()
    desk, _ = desk_of(fleet(), clock)
    named = named_by(desk)
    clock.now_s += 300.0
    assert asked_again_s(desk, named) == 600


def test_envoy_is_told_to_ask_again_and_goes_on_where_a_question_cannot_be_read() -> None:
    clock = Clock()
    desk, _, named = waiting(clock)
    server = LivenessServer(desk)
    first = desk.fleet.addresses[named.order[0]]
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


def test_what_failed_is_known_after_the_fleet_is_read_again() -> None:
    clock = Clock()
    desk, _, named = waiting(clock)
    desk.try_failed(named.ticket, desk.fleet.addresses[named.order[0]], 500, "-")
    after, _ = desk_of(fleet(), clock)
    after.adopt(desk)
    assert asked_again_s(after, named) is None


def test_a_question_comes_after_each_endpoint_and_knows_who_was_tried() -> None:
    listed, retries = destinations(["a:1", "b:2"], "/alive")
    places = listed.split(",")
    assert places == ["a:1", *["/alive"] * QUESTIONS, "b:2", *["/alive"] * QUESTIONS]
    assert retries == len(places)  # and once more by weights
    assert tried(listed, 2, "/alive") == (["a:1"], True)
    assert tried(listed, 3, "/alive") == (["a:1"], False)
    assert tried(listed, QUESTIONS + 3, "/alive") == (["a:1", "b:2"], True)
