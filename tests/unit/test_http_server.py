"""A connection handles requests in order and closes when it must."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

pytest.importorskip("httptools", reason='serving is an extra: pip install "penstock[gateway]"')

from hypothesis import given
from hypothesis import strategies as st

from penstock.http_server import Exchange, HttpConnection


def echo(exchange: Exchange) -> None:
    exchange.reply(200, exchange.method + b" " + exchange.path + b" " + exchange.body)


def serving(script: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: HttpConnection(echo, max_body_bytes=1000), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await asyncio.wait_for(script(reader, writer), 10)
        writer.close()
        server.close()
        await server.wait_closed()

    asyncio.run(main())


async def answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return await reader.readexactly(length)


def test_one_connection_serves_many_requests() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(5):
            writer.write(b"POST /%d HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi" % number)
            assert await answer(reader) == b"POST /%d hi" % number

    serving(script)


def test_pipelined_requests_are_answered_in_order() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n" % number for number in range(5)))
        for number in range(5):
            assert await answer(reader) == b"GET /%d " % number

    serving(script)


def test_connection_close_is_honoured_after_the_response() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"GET / ")

    serving(script)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2000\r\n\r\n" + b"x" * 2000, b"413"),
        (b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"x" * 70_000 + b"\r\n\r\n", b"431"),
        (b"not http at all\r\n\r\n", b"400"),
    ],
)
def test_oversized_or_invalid_input_is_rejected_and_closes_the_connection(sent: bytes, status: bytes) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        assert (await reader.read()).split()[1] == status

    serving(script)


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_no_bytes_make_the_parser_raise(pieces: list[bytes]) -> None:
    line = HttpConnection(echo)
    for piece in pieces:
        line.data_received(piece)


def test_a_half_sent_request_ends_its_connection() -> None:
    """Attack: 1,100 half-sent requests took all files of the metrics page, until their clients left."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: HttpConnection(echo, patience_s=0.2), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert await answer(reader) == b"GET / "
        writer.write(b"GET / HTTP/1.1\r\nhost:")
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        server.close()
        await server.wait_closed()

    asyncio.run(main())
