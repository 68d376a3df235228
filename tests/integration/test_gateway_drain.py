"""Health checks tell a load balancer that the gateway is about to end, or has no endpoint, before a request is lost."""

import asyncio
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import Running, chat, running
from picker_protocol import DUPLEX, asked, health, watched
from ports import free_ports

GRACE_S = 3.0
KEY = "sk-one-0123456789"
SERVING, NOT_SERVING = 1, 2


def status(stack: Running, path: str, body: bytes | None = None) -> int:
    """The status of a path; 0 where nothing answers. Only completions need a key."""
    key = {} if body is None else {"x-api-key": KEY}
    request = urllib.request.Request(f"http://{stack.stack.listen}{path}", body, key)
    try:
        return int(urllib.request.urlopen(request, timeout=5).status)  # noqa: S310 - loopback
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def until(there: Callable[[], bool], seconds: float = 10.0) -> None:
    begun = time.monotonic()
    while not there():
        assert time.monotonic() - begun < seconds
        time.sleep(0.05)


def both(stack: Running) -> tuple[int, int]:
    return status(stack, "/health"), status(stack, "/ready?probe=1")


def test_health_is_the_gateway_and_ready_needs_an_endpoint(tmp_path: Path) -> None:
    """Then SIGTERM: both fail at once, an idle gateway serves on, and a stream comes to its end after the grace."""
    access = tmp_path / "access.yaml"
    access.write_text(f"version: 1\nkeys: [{{tenant: one, key: {KEY}}}]\n")
    with running(tmp_path, endpoints=2, step_s=0.02, grace_s=60.0, access=str(access)) as stack:
        until(lambda: both(stack) == (200, 200))
        stack.fault("die")
        until(lambda: both(stack) == (200, 503))
        stack.fault("none")
        until(lambda: both(stack) == (200, 200))
        gateway = stack.processes["gateway"]

        async def end() -> tuple[int, bytes]:
            gateway.send_signal(signal.SIGTERM)
            await asyncio.to_thread(until, lambda: both(stack) == (503, 503))
            for _ in range(5):  # idle but for these
                assert await asyncio.to_thread(status, stack, "/v1/chat/completions", chat(1)) == 200
                assert both(stack) == (503, 503)
                await asyncio.sleep(0.2)
            async with httpx2.AsyncClient(http1=False, http2=True, timeout=30) as client:  # one connection
                url, headers = f"http://{stack.stack.listen}/v1/chat/completions", {"x-api-key": KEY}
                assert [(await client.post(url, content=chat(1), headers=headers)).status_code for _ in range(4)] == [
                    200
                ] * 4
            stream = asyncio.create_task(stack.ask(chat(150, stream=True), headers=f"x-api-key: {KEY}\r\n"))
            await asyncio.sleep(0.5)
            gateway.send_signal(signal.SIGTERM)  # no more grace
            return await stream

        answer, body = asyncio.run(end())
        assert (answer, body.count(b" penstock")) == (200, 150)
        assert gateway.wait(10) == 0
        assert status(stack, "/health") == 0


def test_a_picker_reports_not_serving_and_answers_while_it_drains(tmp_path: Path) -> None:
    """Without an Envoy of ours: gRPC health is NOT_SERVING at once, and all pickers end together."""
    pick, metrics = (f"127.0.0.1:{port}" for port in free_ports(2))
    more: dict[str, Any] = {"only_pick": pick, "metrics": metrics, "grace_s": GRACE_S, "pickers": 2}
    with running(tmp_path, protocol="ext_proc", **more) as stack, watched(pick, "readiness") as statuses:
        while next(statuses) != SERVING:
            pass
        begun_s = time.monotonic()
        stack.processes["gateway"].send_signal(signal.SIGTERM)
        assert next(statuses) == NOT_SERVING
        assert asked(pick, DUPLEX, chat()).status is None
        assert (health(pick, "readiness"), health(pick, "liveness")) == (NOT_SERVING, SERVING)
        assert stack.processes["gateway"].wait(10) == 0
        assert list(statuses) == []
        assert time.monotonic() - begun_s > GRACE_S
