"""One client cannot make the gateway use more memory than its pod may have, nor take others' places."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')
pytest.importorskip("h2")

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event, ResponseReceived, StreamEnded, StreamReset

from gateway_stack import Running, chat, running

GIB = 2**30
"""The memory limit of the chart."""
GREEDY = "x-penstock-tenant: greedy\r\n"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("memory"), endpoints=2, memory_bytes=GIB) as stack:
        yield stack


def resident_bytes(stack: Running) -> int:
    """Memory of the whole gateway; pages that its processes share count once."""
    pids = [stack.processes["gateway"].pid, *stack.children("envoy"), *stack.children("scraper")]
    lines = (line for pid in pids for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines())
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


async def watch(stack: Running, seen: list[int]) -> None:
    while True:
        seen.append(resident_bytes(stack))
        await asyncio.sleep(0.2)


async def send_unfinished(stack: Running, size: int) -> asyncio.StreamWriter:
    """Send a body but for its last byte, and keep the connection."""
    _, writer = await asyncio.open_connection(stack.host, stack.port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{GREEDY}content-length: {size + 1}\r\n\r\n"
    try:
        writer.write(head.encode())
        for _ in range(0, size, 100_000):
            writer.write(b" " * 100_000)
            await asyncio.wait_for(writer.drain(), 20)
    except (OSError, TimeoutError):
        pass  # the gateway has answered
    return writer


async def others(stack: Running, count: int) -> Counter[int]:
    asked = (stack.ask(chat(), headers="x-penstock-tenant: modest\r\n") for _ in range(count))
    return Counter([status for status, _ in await asyncio.gather(*asked)])


def test_unfinished_bodies_stay_within_the_limit(stack: Running) -> None:
    """Attack: 200 connections with 7.9 MB each took 1.3 GB."""

    async def attack() -> tuple[list[int], Counter[int]]:
        seen: list[int] = []
        watching = asyncio.create_task(watch(stack, seen))
        writers = await asyncio.gather(*(send_unfinished(stack, 7_900_000) for _ in range(200)))
        served = await others(stack, 20)
        await asyncio.sleep(1)
        watching.cancel()
        for writer in writers:
            writer.close()
        return seen, served

    seen, served = asyncio.run(attack())
    assert max(seen) < 0.8 * GIB
    assert served == {200: 20}


class Streams:
    """Requests over one HTTP/2 connection."""

    def __init__(self) -> None:
        self.connection = H2Connection(H2Configuration(client_side=True))
        self.statuses: dict[int, int] = {}
        self.ended: set[int] = set()

    def take(self, event: Event) -> None:
        if isinstance(event, ResponseReceived):
            self.statuses[event.stream_id] = int(dict(event.headers)[b":status"])
        if isinstance(event, StreamEnded | StreamReset):
            self.ended.add(event.stream_id)


async def send_streams(
    stack: Running, count: int, body: bytes, *, finish: bool = True, seconds: float = 20.0
) -> Streams:
    """Send bodies at once, a piece of each in turn."""
    reader, writer = await asyncio.open_connection(stack.host, stack.port)
    streams = Streams()
    connection = streams.connection
    connection.initiate_connection()
    head = [(":method", "POST"), (":path", "/v1/chat/completions"), (":scheme", "http"), (":authority", "x")]
    places = {2 * number + 1: 0 for number in range(count)}
    for stream in places:
        connection.send_headers(stream, [*head, ("x-penstock-tenant", "greedy")])
    begun = time.monotonic()
    while len(streams.ended) < count and time.monotonic() - begun < seconds:
        sent = 0
        for stream, at in places.items():
            room = 0 if stream in streams.ended else connection.local_flow_control_window(stream)
            piece = body[at : at + min(room, connection.max_outbound_frame_size)]
            if piece:
                connection.send_data(stream, piece, end_stream=finish and at + len(piece) == len(body))
                places[stream], sent = at + len(piece), sent + len(piece)
        writer.write(connection.data_to_send())
        try:
            await writer.drain()
            data = await asyncio.wait_for(reader.read(2**16), 0.001 if sent else 0.05)
        except TimeoutError:
            continue
        except OSError:
            break
        if not data:
            break
        for event in connection.receive_data(data):
            streams.take(event)
    writer.close()
    return streams


def test_streams_of_one_connection_stay_within_the_limit(stack: Running) -> None:
    """Attack: over HTTP/2 a body might have 16 MiB, and 60 streams took a gigabyte."""

    async def attack() -> tuple[list[int], Counter[int]]:
        seen: list[int] = []
        watching = asyncio.create_task(watch(stack, seen))
        sending = asyncio.create_task(send_streams(stack, 60, b" " * 15_000_000, finish=False))
        await asyncio.sleep(4)
        served = await others(stack, 20)
        await sending
        watching.cancel()
        return seen, served

    seen, served = asyncio.run(attack())
    assert max(seen) < 0.8 * GIB
    assert served == {200: 20}


@pytest.mark.parametrize(("size", "too_large"), [(7_900_000, False), (8_500_000, True), (12_000_000, True)])
def test_both_versions_of_http_have_one_limit(stack: Running, size: int, *, too_large: bool) -> None:
    body = chat(prompt="x" * size)
    first, _ = asyncio.run(stack.ask(body))
    second = asyncio.run(send_streams(stack, 1, body)).statuses.get(1)
    assert first == second
    assert (first == 413) == too_large


def test_a_connection_has_a_hundred_streams(stack: Running) -> None:
    async def settings() -> int:
        reader, writer = await asyncio.open_connection(stack.host, stack.port)
        connection = H2Connection(H2Configuration(client_side=True))
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        connection.receive_data(await asyncio.wait_for(reader.read(2**16), 5))
        writer.close()
        return connection.remote_settings.max_concurrent_streams

    assert asyncio.run(settings()) == 100
