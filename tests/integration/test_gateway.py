"""A real Envoy routes as the pickers decide, with every filter, and loses no request."""

import asyncio
import json
import os
import signal
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

import grpc
from envoy.service.ext_proc.v3.external_processor_pb2_grpc import (
    ExternalProcessorServicer,
    add_ExternalProcessorServicer_to_server,
)

from gateway_stack import MODEL, chat, running

INTERNAL = (
    "decorator-operation",
    "force-trace",
    "hedge-on-per-try-timeout",
    "max-retries",
    "retriable-header-names",
    "retriable-status-codes",
    "retry-grpc-on",
    "retry-on",
    "upstream-alt-stat-name",
    "upstream-rq-per-try-timeout-ms",
    "upstream-rq-timeout-alt-response",
    "upstream-rq-timeout-ms",
)
RESERVED = (
    "x-gateway-destination-endpoint",
    "x-gateway-destination-endpoint-subset",
    "x-gateway-destination-endpoint-served",
    "x-penstock-ticket",
    "x-penstock-picker",
    "x-penstock-model",
    "x-penstock-streamed",
)
"""Written out: a list of the source would shrink together with what is removed."""


@pytest.mark.parametrize("protocol", ["module", "ext_proc", "ext_proc_buffered"])
def test_all_traffic_lands_on_the_one_endpoint_a_picker_may_choose(tmp_path: Path, protocol: str) -> None:
    """Envoy answers 200 and ignores a pick that comes too late; only counting tells."""
    with running(tmp_path, endpoints=3, protocol=protocol, only=1) as stack:
        seen = asyncio.run(stack.load(200, 8))
        assert seen.statuses == {200: 200}
        spoofed = asyncio.run(
            stack.ask(chat(), headers=f"x-gateway-destination-endpoint: {stack.stack.addresses[0]}\r\n")
        )
        assert spoofed[0] == 200
        assert list(stack.served().values()) == [0, 201, 0]
        streamed = asyncio.run(stack.ask(chat(20, stream=True)))
        assert streamed[0] == 200
        assert streamed[1].count(b" penstock") == 20
        long = asyncio.run(stack.ask(chat(2, prompt="x" * 400_000)))
        assert long[0] == 200
        assert list(stack.served().values()) == [0, 203, 0]


@pytest.mark.parametrize("protocol", ["module", "ext_proc_buffered"])
def test_models_stay_separate_with_and_without_pickers(tmp_path: Path, protocol: str) -> None:
    """An endpoint answers 404 for a model it does not have, so every 200 was sent to the right one."""
    with running(tmp_path, endpoints=4, models=("one", "two"), protocol=protocol) as stack:

        async def both() -> list[int]:
            asked = [chat(model=("one", "two")[number % 2]) for number in range(40)]
            return [status for status, _ in await asyncio.gather(*map(stack.ask, asked))]

        assert asyncio.run(both()) == [200] * 40
        assert asyncio.run(stack.ask(chat(model="three")))[0] == 404
        assert asyncio.run(stack.ask(b"not json"))[0] == 400
        assert asyncio.run(stack.ask(chat(), path="/v2/other"))[0] == 404
        before = stack.served()
        for pid in stack.children("picker"):
            os.kill(pid, signal.SIGSTOP)
        assert asyncio.run(both()) == [200] * 40
        assert asyncio.run(stack.ask(chat(model="three")))[0] == 404
        assert sum(stack.served().values()) == sum(before.values()) + 40


@pytest.mark.parametrize("protocol", ["module", "ext_proc_buffered"])
def test_adapters_reach_their_endpoints_with_and_without_pickers(tmp_path: Path, protocol: str) -> None:
    """An engine answers 404 for an adapter it was not started with; the model's own requests go anywhere."""
    with running(tmp_path, endpoints=3, adapters=("sql-lora",), protocol=protocol) as stack:

        async def twenty(model: str) -> list[int]:
            asked = [chat(model=model, prompt="x" * 3000) for _ in range(20)]
            return [status for status, _ in await asyncio.gather(*map(stack.ask, asked))]

        models = json.loads(urllib.request.urlopen(f"http://{stack.stack.listen}/v1/models", timeout=5).read())["data"]
        assert [(card["id"], card.get("parent")) for card in models] == [(MODEL, None), ("sql-lora", MODEL)]
        assert asyncio.run(twenty("sql-lora")) == [200] * 20
        assert list(stack.served().values()) == [20, 0, 0]
        assert asyncio.run(twenty(MODEL)) == [200] * 20
        assert sum(stack.served().values()) == 40
        assert min(list(stack.served().values())[1:]) > 0
        for pid in stack.children("picker"):
            os.kill(pid, signal.SIGSTOP)
        before = list(stack.served().values())
        assert asyncio.run(twenty("sql-lora")) == [200] * 20
        assert list(stack.served().values()) == [before[0] + 20, *before[1:]]
        assert asyncio.run(stack.ask(chat(model="other-lora")))[0] == 404


def test_a_stopped_gateway_finishes_requests_in_flight(tmp_path: Path) -> None:
    with running(tmp_path, endpoints=2, step_s=0.02) as stack:

        async def stop_meanwhile() -> tuple[int, bytes]:
            answer = asyncio.create_task(stack.ask(chat(100, stream=True)))
            await asyncio.sleep(0.5)
            stack.processes["gateway"].send_signal(signal.SIGTERM)
            return await answer

        status, body = asyncio.run(stop_meanwhile())
        assert status == 200
        assert body.count(b" penstock") == 100
        assert stack.processes["gateway"].wait(20) == 0


def test_pickers_do_not_see_credentials(tmp_path: Path) -> None:
    """Envoy sends all headers to a picker unless its configuration forbids it."""
    with running(tmp_path, endpoints=1, protocol="ext_proc_buffered") as stack:
        place = Path(stack.stack.folder) / "picker-0.sock"
        for pid in stack.children("picker"):
            os.kill(pid, signal.SIGSTOP)
        place.unlink()
        shown: list[str] = []

        class Noting(ExternalProcessorServicer):  # type: ignore[misc]
            async def Process(self, questions: Any, context: Any) -> None:  # noqa: ANN401, N802 - the service's name
                del questions
                shown.append(str(await context.read()))

        async def asked() -> int:
            server = grpc.aio.server()
            add_ExternalProcessorServicer_to_server(Noting(), server)
            server.add_insecure_port(f"unix:{place}")
            await server.start()
            said = [f"{name}: sk-secret\r\n" for name in ("authorization", "x-api-key", "cookie")]
            answer = await stack.ask(chat(), headers="".join([*said, "x-penstock-tenant: search\r\n"]))
            await server.stop(0.0)
            return answer[0]

        assert asyncio.run(asked()) == 200
        assert "x-penstock-tenant" in shown[0]
        assert "sk-secret" not in "".join(shown)


@pytest.mark.parametrize("protocol", ["module", "ext_proc_buffered"])
def test_clients_cannot_set_retries_or_timeouts(tmp_path: Path, protocol: str) -> None:
    """What only Envoy and pickers may say does not pass, so it cannot have been obeyed."""
    names = [*(f"x-envoy-{name}" for name in INTERNAL), *RESERVED]
    arrived: list[str] = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_POST(self) -> None:
            arrived.append(str(self.headers))
            self.do_GET()

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        real = (f"127.0.0.1:{server.server_port}",)
        with running(tmp_path, endpoints=1, real=real, only=1, protocol=protocol) as stack:
            said = "".join(f"{name}: 7654321\r\n" for name in names)
            assert asyncio.run(stack.ask(chat(), headers=said))[0] == 200
        server.shutdown()
    assert "7654321" not in arrived[0]
    # The list of endpoints; the module names only those for further tries, and there is no other.
    assert ("x-gateway-destination-endpoint" in arrived[0]) is (protocol != "module")
