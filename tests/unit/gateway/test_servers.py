"""A picker's servers stay open and check themselves through their own sockets."""

import asyncio
import gc
import shutil
import ssl
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

import uvloop

from gateway_fakes import Clock, fleet, picker_of
from penstock.gateway.servers.ext_proc_server import ExtProcServer
from penstock.gateway.servers.picker_process import beat
from penstock.gateway.state.shared_tables import PICKER_STATE
from ports import free_ports


def test_a_server_without_connections_survives_garbage_collection(tmp_path: Path) -> None:
    """A fleet that is read again before the first request leaves its pickers open."""

    async def scene() -> bool:
        server = ExtProcServer(picker_of(fleet(), Clock())[0], 0)
        await server.start(f"unix:{tmp_path}/picker.sock")
        gc.collect()
        await asyncio.sleep(0.05)
        answered = await server.answers()
        await server.stop(0.0)
        return answered

    assert uvloop.run(scene())


def test_a_picker_without_its_socket_sends_no_heartbeat(tmp_path: Path) -> None:
    async def scene() -> tuple[float, float, float]:
        path, states = tmp_path / "picker.sock", np.zeros(1, PICKER_STATE)
        server = ExtProcServer(picker_of(fleet(), Clock())[0], 0)
        await server.start(f"unix:{path}")
        life = asyncio.create_task(beat(server, states, 0))
        await asyncio.sleep(0.3)
        first = float(states["alive_s"][0])
        path.unlink()
        await asyncio.sleep(0.4)
        then = float(states["alive_s"][0])
        await asyncio.sleep(0.8)
        life.cancel()
        await server.stop(0.0)
        return first, then, float(states["alive_s"][0])

    first, then, last = uvloop.run(scene())
    assert first > 0
    assert then == last


def certificate(chain: Path, key: Path, name: str) -> str:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(chain)], check=True, capture_output=True)
    return chain.read_text().strip()


def test_the_certificate_is_reread_for_each_connection(tmp_path: Path) -> None:
    """Certificates run out while pickers run: cert-manager writes new ones, and nobody starts pickers again."""
    pair, port = (tmp_path / "picker.pem", tmp_path / "picker.key"), free_ports(1)[0]
    first = certificate(*pair, "first")

    async def shown() -> str:
        return (await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))).strip()

    async def scene() -> None:
        server = ExtProcServer(picker_of(fleet(), Clock())[0], 0)
        await server.start(f"127.0.0.1:{port}", pair)
        assert await shown() == first
        second = certificate(*pair, "second")
        assert await shown() == second
        pair[0].write_text(first)  # not of that key
        assert await shown() == second
        pair[1].unlink()
        assert await shown() == second
        await server.stop(0.0)

    asyncio.run(scene())
