"""The benchmark's constant picker replaces the real one, so that it measures ext_authz alone."""

import asyncio
import runpy
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason='serving is an extra: pip install "penstock[gateway]"')

from gateway_fakes import Clock, fleet, picker_of
from penstock.gateway.servers import ext_authz_server

TOOL = Path(__file__).resolve().parents[3] / "tools" / "bench_gateway.py"
QUESTION = b'POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 14\r\n\r\n{"model": "a"}'


def test_the_constant_control_replaces_the_picker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ext_authz_server, "AuthzConnection", ext_authz_server.AuthzConnection)  # put back afterwards
    runpy.run_path(str(TOOL))["answer_without_looking"]("10.9.9.9:1")
    picker, _ = picker_of(fleet(), Clock())

    async def asked() -> bytes:
        server = ext_authz_server.AuthzServer(picker, 0)
        await server.start(tmp_path / "picker.sock")
        reader, writer = await asyncio.open_unix_connection(tmp_path / "picker.sock")
        writer.write(QUESTION)
        answer = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        assert await server.answers()  # or the supervisor would take it for dead
        await server.stop(0.0)
        return answer

    assert b"x-gateway-destination-endpoint: 10.9.9.9:1\r\n" in asyncio.run(asked())
    assert picker.state.counters.decisions == 0
