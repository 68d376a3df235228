"""A streaming client of emulated endpoints: when the first and the last token of a response came, and how many."""

import asyncio
import time
from dataclasses import dataclass

_TOKEN = b'"text": " penstock"'
_PATIENCE_S = 900.0


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """One response. Without a token, its times are infinite."""

    status: int
    """HTTP status; 0 if no response came."""
    ttft_s: float
    tpot_s: float
    tokens: int
    late_s: float
    """How much later than planned the request was sent."""
    end_s: float
    """When the response ended, after the start of the run."""


class _Connection(asyncio.Protocol):
    """One streamed answer: when its first and its last token came, and how many there were."""

    def __init__(self, request: bytes) -> None:
        self._request, self._tail = request, b""
        self.status = 0
        self.first_s = self.last_s = 0.0
        self.tokens = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Count tokens; a mark may be cut in two by a packet."""
        if not self.status:
            self.status = int(data[9:12])
        found = (self._tail + data).count(_TOKEN)
        self._tail = data[1 - len(_TOKEN) :]
        if found:
            self.last_s = time.perf_counter()
            self.first_s = self.first_s or self.last_s
            self.tokens += found

    def connection_lost(self, exc: Exception | None) -> None:
        """Say that it ended."""
        del exc
        if not self.ended.done():
            self.ended.set_result(None)


async def send_at(port: int, body: bytes, begun_s: float, at_s: float) -> TimedAnswer:
    """Send a completion `at_s` seconds after the start of the run, and time its response."""
    await asyncio.sleep(max(0.0, begun_s + at_s - time.perf_counter()))
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    sent_s, inf = time.perf_counter(), float("inf")
    late_s, status, tokens, ttft_s, tpot_s = sent_s - begun_s - at_s, 0, 0, inf, inf
    try:
        opened = asyncio.get_running_loop().create_connection(
            lambda: _Connection(head.encode() + body), "127.0.0.1", port
        )
        _, client = await opened
        await asyncio.wait_for(client.ended, _PATIENCE_S)
        status, tokens = client.status, client.tokens
    except (OSError, TimeoutError):
        pass
    if tokens:
        ttft_s, tpot_s = client.first_s - sent_s, (client.last_s - client.first_s) / max(1, tokens - 1)
    return TimedAnswer(status, ttft_s, tpot_s, tokens, late_s, time.perf_counter() - begun_s)
