"""The gateway refuses and holds requests as the fleet file allows, with the policy that the simulator runs."""

import asyncio
from dataclasses import replace

import pytest
from rich.console import Console

from gateway_fakes import Clock, body_fields, fleet, picker_of
from penstock.gateway.metrics_view import read_view
from penstock.gateway.picker.picker import EndpointChoice, HeldRequest, Picker, Rejection
from penstock.gateway.picker.request_body import RequestHints
from penstock.gateway.servers.waiting_requests import WaitingRequests
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.telemetry.autoscaling import DesiredReplicas
from penstock.gateway.telemetry.gateway_metrics import metrics_page
from penstock.report.receipts import Explained, render_receipts
from penstock.report.top import render_top
from penstock.routing.records import REJECTED
from penstock.routing.replay import PickSample, explain
from penstock.workload import Overload

NO_HINTS = RequestHints()


def overloaded(overload: Overload) -> tuple[RoutedFleet, Picker, Clock]:
    """Endpoints whose tokens take longer than promised, each with a request."""
    routed, clock = fleet(), Clock()
    routed = replace(routed, classes=tuple(replace(item, overload=overload) for item in routed.classes))
    routed.endpoints["step_s"] = 0.06
    picker, _ = picker_of(routed, clock)
    for _ in range(len(routed.endpoints)):
        flight = picker.decide(body_fields(), b"", RequestHints(ttft_s=100.0, tpot_s=100.0))
        assert isinstance(flight, EndpointChoice)
    return routed, picker, clock


def relieve(picker: Picker, clock: Clock) -> None:
    """Make every endpoint fast again."""
    picker.state.endpoints["step_s"] = 0.001
    for index in range(len(picker.state.endpoints)):
        picker.state.policy.refresh(index, clock.now_s)


@pytest.mark.parametrize(("overload", "kind"), [("serve", EndpointChoice), ("refuse", Rejection), ("hold", Rejection)])
def test_a_route_says_whether_its_requests_may_be_refused(overload: Overload, kind: type) -> None:
    """Over ext_proc nothing is held, because the protocol bounds the time of an answer: `hold` is `refuse`."""
    _, picker, _ = overloaded(overload)
    answer = picker.decide(body_fields(), b"", NO_HINTS)
    assert isinstance(answer, kind)
    if isinstance(answer, Rejection):
        assert answer.status == 429
        assert answer.retry_s is not None
        assert 1 <= answer.retry_s <= 60
    assert picker.state.counters.refused == (kind is Rejection)


def test_a_held_request_is_sent_when_the_price_falls() -> None:
    _, picker, clock = overloaded("hold")
    assert isinstance(picker.decide_or_hold(body_fields(), b"", NO_HINTS, 0.0), HeldRequest)
    assert isinstance(picker.decide_or_hold(body_fields(), b"", NO_HINTS, 0.1), HeldRequest)
    relieve(picker, clock)
    assert isinstance(picker.decide_or_hold(body_fields(), b"", NO_HINTS, 0.2), EndpointChoice)
    assert (picker.state.counters.held, picker.state.counters.refused) == (1, 0)
    assert picker.state.parameters["class_requests"].sum() == pytest.approx(5, rel=0.01)  # held ones count once


def test_a_request_is_refused_after_half_of_its_limit() -> None:
    routed, picker, _ = overloaded("hold")
    limit_s = routed.classes[0].ttft_s
    assert limit_s is not None
    assert routed.hold_s == limit_s / 2
    assert isinstance(picker.decide_or_hold(body_fields(), b"", NO_HINTS, 0.49 * limit_s), HeldRequest)
    assert isinstance(picker.decide_or_hold(body_fields(), b"", NO_HINTS, 0.51 * limit_s), Rejection)
    assert picker.state.counters.refused == 1


def test_a_held_request_is_decided_when_there_is_room_unless_its_client_has_left() -> None:
    async def ask() -> EndpointChoice | Rejection:
        _, picker, clock = overloaded("hold")
        waiting = WaitingRequests(lambda: picker)
        stays, leaves = (asyncio.create_task(waiting.decide(body_fields(), b"", NO_HINTS)) for _ in range(2))
        await asyncio.sleep(0.05)
        assert not stays.done()
        leaves.cancel()  # who has left is neither answered nor counted as sent
        relieve(picker, clock)
        await asyncio.sleep(0.3)
        assert picker.state.endpoints["in_flight"].sum() == len(picker.state.endpoints) + 1
        return (await stays)[1]

    assert isinstance(asyncio.run(ask()), EndpointChoice)


def test_metrics_and_top_show_the_price_of_each_class() -> None:
    routed, picker, clock = overloaded("refuse")
    picker, tables = picker_of(routed, clock)
    picker.state.parameters["class_price"][0, 0] = 2.5
    picker.state.tick()
    desired = DesiredReplicas(routed)
    page = metrics_page(routed, tables.reports, tables.counts, tables.states, {}, desired).decode()
    view = read_view(page)
    assert view.classes[routed.classes[0].name]["class_price"] == 2.5
    console = Console(width=200, record=True)
    console.print(render_top(view, None, 1.0))
    assert f"{routed.classes[0].name} 2.5" in console.export_text()


@pytest.mark.parametrize(
    ("shed_fraction", "reason"),
    [
        (1.0, "serving it does as much harm as"),
        (0.5, "probability everywhere (limit 50%)"),
        (0.3, "probability everywhere (limit 30%; its tenant is beyond its fair share)"),
    ],
)
def test_a_receipt_says_why_a_request_was_not_admitted(shed_fraction: float, reason: str) -> None:
    _, picker, _ = overloaded("refuse")
    assert isinstance(picker.decide(body_fields(), b"", NO_HINTS), Rejection)
    arrays, state = picker._arrays, picker.state  # noqa: SLF001
    state.parameters["shed_fraction"] = shed_fraction
    receipt = explain(PickSample.of(arrays.request, state.endpoints, arrays.hits, REJECTED), state.parameters)
    addresses = state.fleet.addresses
    explained = Explained(number=1, addresses=addresses, order=(), receipt=receipt)
    console = Console(width=200, record=True)
    console.print(render_receipts(1, [], explained, [], 200))
    shown = console.export_text()
    assert "Not admitted: " in shown
    assert reason in shown
