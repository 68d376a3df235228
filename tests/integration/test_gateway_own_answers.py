"""Envoy's own errors are JSON with the right status, and have Retry-After if that helps."""

import asyncio
import json
import time
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import Running, chat, running


async def said_to(stack: Running, raw: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
    """Send bytes; return the status, headers and body that come back."""
    reader, writer = await asyncio.open_connection(stack.host, stack.port)
    writer.write(raw)
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    return int(first.split()[1]), dict(line.split(b": ", 1) for line in lines), body


_POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"


@pytest.mark.parametrize("protocol", ["module", "ext_proc"])
def test_envoys_own_errors_are_json_and_pickers_errors_stay(tmp_path: Path, protocol: str) -> None:
    not_http = {
        b"HELLO WORLD\r\n\r\n": 400,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03": 400,
        b"GET /v1/models HTTP/1.1\r\nhost x\r\n\r\n": 400,
        b"GET /v1/models HTTP/1.1\r\nhost: x\r\na: \0\r\n\r\n": 400,
        b"GET /v1/models HTTP/1.0\r\n\r\n": 426,
        b"GET /v1/models HTTP/9.9\r\nhost: x\r\n\r\n": 426,
        _POST + b"content-length: abc\r\n\r\n": 400,
        _POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n": 400,
        _POST + b"transfer-encoding: foo\r\n\r\n": 501,
    }
    with running(tmp_path, protocol=protocol, endpoints=1) as stack:
        for raw, status in not_http.items():
            seen, headers, body = asyncio.run(said_to(stack, raw))
            assert (seen, headers[b"content-type"]) == (status, b"application/json"), raw
            told = json.loads(body)["error"]
            assert (told["type"], told["code"]) == ("invalid_request_error", status), raw
        body = chat(model="other")
        seen, _, said = asyncio.run(said_to(stack, _POST + b"content-length: %d\r\n\r\n%b" % (len(body), body)))
        assert (seen, json.loads(said)["error"]["type"]) == (404, "no-such-model")
        for path, status in ((b"models", 200), (b"models/none", 404)):
            raw = b"HEAD /v1/%b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % path
            seen, headers, body = asyncio.run(said_to(stack, raw))
            assert (seen, headers[b"content-type"], body) == (status, b"application/json", b"")


def test_a_fleet_that_is_down_returns_retry_after(tmp_path: Path) -> None:
    with running(tmp_path, endpoints=2) as stack:
        stack.fault("die")
        time.sleep(1.0)
        body = chat()
        seen, headers, said = asyncio.run(said_to(stack, _POST + b"content-length: %d\r\n\r\n%b" % (len(body), body)))
        assert (seen, headers[b"retry-after"]) == (503, b"5")
        assert json.loads(said)["error"]["type"] == "server_error"


@pytest.mark.parametrize("protocol", ["module", "ext_proc"])
def test_bodies_above_the_buffer_are_rejected(tmp_path: Path, protocol: str) -> None:
    with running(tmp_path, endpoints=2, protocol=protocol) as stack:
        assert asyncio.run(stack.ask(chat(prompt="x" * 9 * 2**20)))[0] == 413
        assert asyncio.run(stack.ask(chat(prompt="x" * 2**20)))[0] == 200
