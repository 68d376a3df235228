"""A scrape ends when it is cancelled, even if its answer arrives at the same moment."""

import asyncio

import numpy as np
import pytest

from penstock.gateway.state.shared_tables import REPORT
from penstock.gateway.telemetry.scraped_endpoint import ScrapedEndpoint

uvloop = pytest.importorskip("uvloop", reason='the gateway is an extra: pip install "penstock[gateway]"')

PAGE = b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
CANCELS = 300


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.readuntil(b"\r\n\r\n"):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(PAGE), PAGE))


def endpoint(port: int) -> ScrapedEndpoint:
    return ScrapedEndpoint(0, f"127.0.0.1:{port}", np.zeros(1, REPORT))


async def goes_on_after_cancel(port: int, turns: int) -> bool:
    """Return whether a task that scrapes without a pause goes on after it is cancelled."""
    one = endpoint(port)

    async def scrape() -> None:
        while True:
            await one.scrape()

    task = asyncio.create_task(scrape())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=0.2)
    task.cancel()
    one.close()
    return not done


def test_a_cancelled_scrape_ends() -> None:
    """The watcher of a replaced fleet went on, with its connection and its tables, once in some dozens of reloads."""

    async def count() -> int:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            return sum([await goes_on_after_cancel(port, number % 60) for number in range(CANCELS)])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(count()) == 0
