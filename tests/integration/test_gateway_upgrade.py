"""A rolling upgrade loses no request.

The new gateway starts beside the old one. The old one then fails its health checks and drains.
"""

import asyncio
import json
import signal
import tempfile
import urllib.request
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import Running, chat, running

CLIENTS, GRACE_S, CHECK_S = 6, 2.0, 0.2


def is_healthy(gateway: Running) -> bool:
    with suppress(OSError):
        return bool(urllib.request.urlopen(f"http://{gateway.stack.listen}/health", timeout=2).status == 200)
    return False


def test_no_request_is_lost_while_a_gateway_is_replaced(tmp_path: Path) -> None:
    """Clients send to whichever gateway a load balancer holds for healthy. Streams in flight end in the old Envoy."""
    statuses: list[int] = []
    by_gateway = [0, 0]
    serving = [0]
    stopping = asyncio.Event()

    async def client(gateways: list[Running]) -> None:
        while not stopping.is_set():
            place = serving[0]
            status, body = await gateways[place].ask(chat(20, stream=True))
            statuses.append(status if b"[DONE]" in body else 0)
            by_gateway[place] += 1

    async def balance(gateways: list[Running]) -> None:
        while not stopping.is_set():
            healthy = [place for place, one in enumerate(gateways) if await asyncio.to_thread(is_healthy, one)]
            serving[0] = healthy[-1] if healthy else serving[0]
            await asyncio.sleep(CHECK_S)

    async def upgrade(old: Running, new: Running) -> None:
        gateways = [old, new]
        tasks = [
            asyncio.create_task(balance(gateways)),
            *(asyncio.create_task(client(gateways)) for _ in range(CLIENTS)),
        ]
        await asyncio.sleep(1.0)
        await asyncio.to_thread(new.start_gateway)
        await asyncio.sleep(1.0)
        process = old.processes["gateway"]
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, 40)
        await asyncio.sleep(1.0)
        stopping.set()
        await asyncio.gather(*tasks)

    with running(tmp_path, endpoints=2, step_s=0.02, grace_s=GRACE_S, protocol="module") as old:
        listen = f"127.0.0.1:{free_ports(1)[0]}"
        stack = replace(old.stack, listen=listen, folder=tempfile.mkdtemp(prefix="penstock-"))
        told = tmp_path / "new.json"
        told.write_text(json.dumps(asdict(stack)))
        new = Running(stack, {}, told)
        try:
            asyncio.run(upgrade(old, new))
        finally:
            if "gateway" in new.processes:
                new.processes["gateway"].send_signal(signal.SIGTERM)
                new.processes["gateway"].wait(40)
    assert set(statuses) == {200}
    assert min(by_gateway) > CLIENTS
