"""How a gateway without keys meets failing engines, overload, another fleet file and its own end."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from contract.gateway_door import (
    PROTOCOLS,
    SMALL,
    Answer,
    Gateway,
    arrived,
    chat,
    held,
    running,
    send,
    send_h2,
    sent,
    start,
    until,
    write_fleet,
)
from fake_engines import FakeEngine, fake_engines
from ports import free_ports

STRICT = (("x-slo-ttft-ms", "1"), ("x-slo-tpot-ms", "0.1"))
"""An SLO that only an idle endpoint may try to keep."""
MAX_TRIES = 4


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Gateway]]:
    """One of each protocol, in front of two engines that refuse in overload."""
    with ExitStack() as stack:
        made = {}
        for protocol in PROTOCOLS:
            engines = stack.enter_context(fake_engines(2, (SMALL,)))
            folder = tmp_path_factory.mktemp(protocol)
            write_fleet(folder / "fleet.yaml", [engine.address for engine in engines], overload="refuse")
            made[protocol] = start(folder, engines, "--drain", "10", protocol=protocol)
        stack.enter_context(running(*made.values()))
        yield made


@pytest.fixture(params=PROTOCOLS)
def gateway(request: pytest.FixtureRequest, gateways: dict[str, Gateway]) -> Gateway:
    found: Gateway = gateways[request.param]
    for engine in found.engines:
        engine.heads.clear()
        engine.status = 200
    return found


def reload(gateway: Gateway, addresses: list[str]) -> None:
    """Write a fleet file of these endpoints and wait until the gateway has read it."""
    before = gateway.said.count("fleet reloaded")
    write_fleet(gateway.fleet, addresses, overload="refuse")
    until(lambda: gateway.said.count("fleet reloaded") > before)


@pytest.fixture
def other(gateway: Gateway) -> Iterator[FakeEngine]:
    """An engine that is not in the fleet; the fleet is as it was afterwards."""
    with fake_engines(1, (SMALL,)) as (engine,):
        yield engine
        reload(gateway, [engine.address for engine in gateway.engines])
        until(lambda: gateway.is_up(2))


def test_without_keys_tenants_are_what_clients_say(gateway: Gateway) -> None:
    """And an engine's own key passes, as its clients send it."""
    headers = {
        "x-penstock-tenant": "a",
        "x-llm-d-inference-fairness-id": "b",
        "authorization": "Bearer sk-of-the-engine",
    }
    assert send(gateway.address, chat(), tuple(headers.items())).status == 200
    assert headers.items() <= arrived(gateway.engines)[1].items()


@pytest.mark.parametrize("name", ["x-penstock-model", "x-penstock-ticket", "x-gateway-destination-endpoint"])
def test_without_keys_reserved_headers_are_removed(gateway: Gateway, name: str) -> None:
    """A fleet of one model: the gateway writes no model of its own."""
    for body in (chat(), None):
        assert send(gateway.address, body, [(name, "7654321")]).status == 200
        assert "7654321" not in arrived(gateway.engines)[0]


@pytest.mark.parametrize("by", [send, send_h2], ids=["HTTP/1.1", "HTTP/2"])
def test_overload_is_429_with_retry_after(gateway: Gateway, by: Callable[..., Answer]) -> None:
    """No endpoint is idle, and none keeps the SLO. Before any test in which engines fail: those are left out later."""
    until(lambda: send(gateway.address, chat(), STRICT).status == 200)
    with held(gateway) as release, ExitStack() as stack:
        streams = [stack.enter_context(sent(gateway.address, chat(stream=True))).getresponse() for _ in range(4)]
        refused = by(gateway.address, chat(), STRICT)
        release()
        assert all(stream.read().endswith(b"data: [DONE]\n\n") for stream in streams)
    assert (refused.status, refused.error["code"], refused.error["type"]) == (429, 429, "saturated")
    assert refused.headers["x-penstock-reason"] == "saturated"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.headers.keys() == {
        *("content-type", "content-length", "date", "server"),
        *("retry-after", "x-penstock-reason"),
    }
    until(lambda: not any(engine.running for engine in gateway.engines))


@pytest.mark.parametrize("status", [500, 502, 503, 504, 401, 403, 429])
def test_failed_requests_move_to_another_endpoint(gateway: Gateway, status: int) -> None:
    """Whichever is asked first, each request is answered, and each in vain once at most."""
    bad, good = gateway.engines
    bad.status = status
    asked = range(4)
    assert [send(gateway.address, chat(prompt=str(number)), ()).status for number in asked] == [200 for _ in asked]
    assert len(good.heads) == len(asked)
    assert len(bad.heads) <= len(asked)
    good.heads.clear()
    bad.heads.clear()
    bad.status, good.status = 200, status
    assert [send(gateway.address, chat(prompt=str(number)), ()).status for number in asked] == [200 for _ in asked]
    assert len(bad.heads) == len(asked)


def test_last_failure_reaches_the_client(gateway: Gateway) -> None:
    for engine in gateway.engines:
        engine.status = 500
    answer = send(gateway.address, chat())
    assert (answer.status, answer.body) == (500, b'{"error": {"message": "this engine fails"}}')
    assert all(engine.heads for engine in gateway.engines)
    assert sum(len(engine.heads) for engine in gateway.engines) <= MAX_TRIES


@pytest.mark.parametrize("status", [400, 415, 422])
def test_wrong_requests_are_not_retried(gateway: Gateway, status: int) -> None:
    """Peers are asked about a 400 or 422 only while the last answer of the endpoint was one."""
    for engine in gateway.engines:
        engine.status = status
    answer = send(gateway.address, chat())
    assert (answer.status, answer.body) == (status, b'{"error": {"message": "this engine fails"}}')
    assert sum(len(engine.heads) for engine in gateway.engines) <= (1 if status == 415 else MAX_TRIES)
    assert "retry-after" not in answer.headers


def test_completions_move_on_404(gateway: Gateway) -> None:
    """An engine that does not know the model is not the one to answer; other paths keep their 404."""
    for engine in gateway.engines:
        engine.status = 404
    assert send(gateway.address, chat()).status == 404
    assert all(engine.heads for engine in gateway.engines)
    tries = sum(len(engine.heads) for engine in gateway.engines)
    assert tries <= MAX_TRIES
    assert send(gateway.address, chat(), path="/v1/embeddings").status == 404
    assert sum(len(engine.heads) for engine in gateway.engines) == tries + 1


def test_edited_fleet_is_served_at_once(gateway: Gateway, other: FakeEngine) -> None:
    """A stream that is open meanwhile ends as it began."""
    with held(gateway) as release, sent(gateway.address, chat(stream=True)) as connection:
        stream = connection.getresponse()
        assert stream.readline().startswith(b"data: {")
        reload(gateway, [other.address])
        until(lambda: f'penstock_endpoint_up{{endpoint="{other.address}"' in gateway.page())
        for engine in gateway.engines:
            engine.heads.clear()
        assert [send(gateway.address, chat()).status for _ in range(3)] == [200] * 3
        assert (len(other.heads), sum(len(engine.heads) for engine in gateway.engines)) == (3, 0)
        release()
        assert stream.read().endswith(b"data: [DONE]\n\n")


def test_unreadable_fleet_changes_nothing(gateway: Gateway, other: FakeEngine) -> None:
    gateway.fleet.write_text("version: 1\nname: [nonsense\n")
    until(lambda: "fleet not reloaded: " in gateway.said)
    assert send(gateway.address, chat()).status == 200
    assert not other.heads


def test_no_endpoint_is_503_with_retry_after(gateway: Gateway, other: FakeEngine) -> None:
    """The gateway itself is healthy, but not ready."""
    del other
    reload(gateway, [f"127.0.0.1:{port}" for port in free_ports(2)])
    until(lambda: gateway.status_of("/ready") == 503)
    answer = send(gateway.address, chat())
    assert (answer.status, answer.error["code"], answer.error["type"]) == (503, 503, "server_error")
    assert answer.headers["retry-after"] == "5"
    assert gateway.status_of("/health") == 200


def test_stopped_gateway_ends_its_streams(gateway: Gateway) -> None:
    """The last test: it ends the gateway. Health fails first, the stream ends well, the command returns 0."""
    with held(gateway) as release, sent(gateway.address, chat(stream=True)) as connection:
        stream = connection.getresponse()
        assert stream.readline().startswith(b"data: {")
        gateway.process.send_signal(signal.SIGTERM)
        until(lambda: gateway.status_of("/health") == 503)
        assert gateway.status_of("/ready") == 503
        release()
        assert stream.read().endswith(b"data: [DONE]\n\n")
    assert gateway.process.wait(20) == 0
