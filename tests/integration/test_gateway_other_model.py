"""A 404 for its model excludes an endpoint; a client disconnect does not."""

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import MODEL, Running, chat, running


class Engine(BaseHTTPRequestHandler):
    """An engine that knows no model anybody asks for, whatever its page says."""

    protocol_version = "HTTP/1.1"
    model = MODEL
    asked = 0

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        label = f'{{engine="0",model_name="{self.model}"}}'
        page = f"vllm:num_requests_running{label} 0\nvllm:num_requests_waiting{label} 0\n"
        cards = {"data": [{"id": self.model}]}
        self._answer(200, json.dumps(cards).encode() if self.path == "/v1/models" else page.encode())

    def do_POST(self) -> None:
        type(self).asked += 1
        self.rfile.read(int(self.headers["content-length"]))
        self._answer(404, b'{"error":{"message":"no such model"}}')

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def engine(model: str) -> Iterator[tuple[str, type[Engine]]]:
    kind = type("Named", (Engine,), {"model": model})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", kind
    finally:
        server.shutdown()
        server.server_close()


def metric(stack: Running, name: str, endpoint: str = "") -> float:
    page = urllib.request.urlopen(f"http://{stack.stack.metrics}/metrics", timeout=5).read().decode()
    lines = [line for line in page.splitlines() if line.startswith(f"{name}{{") and endpoint in line]
    return sum(float(line.split()[-1]) for line in lines)


@pytest.mark.parametrize("says", [MODEL, "another"])
def test_an_endpoint_that_does_not_know_its_model_loses_no_request(tmp_path: Path, says: str) -> None:
    with (
        engine(says) as (address, kind),
        running(tmp_path, endpoints=2, real=(address,), metrics=f"127.0.0.1:{free_ports(1)[0]}") as stack,
    ):
        time.sleep(1.5)
        seen = asyncio.run(stack.load(120, 2, pause_s=0.02))
        assert seen.failed == 0, seen.statuses
        # Suspected for one, two, four, ... seconds; by its page it is known at once.
        assert kind.asked <= (0 if says == "another" else 24)
        assert metric(stack, "penstock_endpoint_other_model", address) == (says == "another")
        before = kind.asked
        assert asyncio.run(stack.ask(chat(), path="/v1/no-such-path"))[0] in {404, 405}
        assert kind.asked - before <= 1  # a path nobody has is not tried again


def test_client_disconnects_are_not_endpoint_failures(tmp_path: Path) -> None:
    async def leave(stack: Running) -> None:
        _, writer = await asyncio.open_connection(stack.host, stack.port)
        body = chat(2000)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await asyncio.sleep(0.5)
        writer.close()

    async def all_leave(stack: Running) -> None:
        await asyncio.gather(*(leave(stack) for _ in range(10)))

    with running(tmp_path, endpoints=2, metrics=f"127.0.0.1:{free_ports(1)[0]}") as stack:
        asyncio.run(all_leave(stack))
        begun = time.monotonic()
        while metric(stack, "penstock_answers_total") < 8:
            assert time.monotonic() - begun < 15
            time.sleep(0.2)
        assert metric(stack, "penstock_failed_answers_total") == 0


def test_an_unknown_adapter_does_not_affect_its_model(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    with running(tmp_path, endpoints=2, adapters=("sql-lora",), unloaded=True, access_log=str(log)) as stack:

        async def both() -> None:
            for _ in range(5):
                assert (await stack.ask(chat(model="sql-lora")))[0] == 404
                await asyncio.sleep(0.1)  # until the picker has read of it
                assert (await stack.load(20, 4, pause_s=0.15)).failed == 0

        asyncio.run(both())
        time.sleep(0.5)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        served = [line["served"] for line in lines if line["path"].startswith("/v1") and line["status"] == 200]
        assert len(served) == 100
        counts = [served[begin : begin + 20].count(stack.stack.addresses[0]) for begin in range(0, 100, 20)]
        # An endpoint left out for a name that it does not know would get none. The pauses keep equals equal: answers
        # without pauses teach the corrections that one of them is faster, and it gets more.
        assert all(6 <= count <= 14 for count in counts), counts
