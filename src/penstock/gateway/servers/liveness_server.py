"""Answers Envoy's liveness questions about silent endpoints.

A liveness question is a copy of the client's request. The reply to a question makes Envoy ask again later or try the
next endpoint.
"""

import asyncio
from typing import Final, cast

from penstock.gateway.picker.fleet_state import FleetState
from penstock.gateway.servers.destinations import tried_endpoints
from penstock.gateway.state.headers import ASK_AGAIN, ATTEMPT, DESTINATION, TICKET
from penstock.http_server import error_body

_BACKLOG: Final = 4096
_MAX_HEAD_BYTES: Final = 2**17
_END: Final = b"\r\n\r\n"
_BODY: Final = error_body("no endpoint answered; try again", "server_error", 503)
_RETRIED_HEAD: Final = (
    "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-type: application/json\r\n"
    f"content-length: {len(_BODY)}\r\nretry-after: 5\r\n"
)
"""First bytes of the response that makes Envoy retry.

Envoy retries at once, or after the seconds in the ASK_AGAIN header. A client gets this response only if no endpoint is
left to try.
"""


class LivenessServer:
    """Server for Envoy's liveness questions, on a Unix socket."""

    def __init__(self, state: FleetState) -> None:
        self.state = state
        self._path = ""
        self._server: asyncio.Server | None = None

    async def start(self, path: str) -> None:
        """Listen on a socket path."""
        self._path = path
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Question(self), path, backlog=_BACKLOG)

    def stop(self) -> None:
        """Stop listening. After the server has closed, Envoy tries the next endpoint without a liveness question."""
        if self._server is not None:
            self._server.close()

    def answer(self, head: bytes) -> bytes:
        """Return the response to a liveness question. `head` is the question's request line and headers."""
        lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
        headers = {name.lower(): value.strip() for name, _, value in lines}
        ticket, attempt = headers.get(TICKET, ""), headers.get(ATTEMPT, "")
        wait_s: int | None = None
        if ticket.isdigit() and attempt.isdigit():
            endpoints, first = tried_endpoints(headers.get(DESTINATION, ""), int(attempt), self._path)
            wait_s = self.state.next_check_s(int(ticket), endpoints, first=first)
        next_check = "" if wait_s is None else f"{ASK_AGAIN}: {wait_s}\r\n"
        return f"{_RETRIED_HEAD}{next_check}\r\n".encode() + _BODY


class _Question(asyncio.Protocol):
    """A connection from Envoy with one liveness question. The request body is discarded."""

    def __init__(self, server: LivenessServer) -> None:
        self._owner = server
        self._transport: asyncio.Transport | None = None
        self._head: bytes | None = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer a liveness question as soon as its headers are complete. Envoy closes the connection."""
        if self._head is None or self._transport is None:
            return
        self._head += data
        head, separator, _ = self._head.partition(_END)
        if separator or len(self._head) > _MAX_HEAD_BYTES:
            self._head = None
            self._transport.write(self._owner.answer(head))
