"""Serves HTTP/1.1 for the emulator and the gateway, with an asyncio protocol that parses requests by httptools."""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Final, cast

import httptools

log = logging.getLogger(__name__)
_REASONS: Final = {
    200: b"OK",
    204: b"No Content",
    400: b"Bad Request",
    401: b"Unauthorized",
    404: b"Not Found",
    405: b"Method Not Allowed",
    413: b"Content Too Large",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}
MAX_BODY_BYTES: Final = 32 * 2**20
"""Maximum body size in bytes. A larger body is rejected before it is stored. A million tokens are about 4 MB."""
_MAX_HEADER_BYTES: Final = 64 * 2**10
JSON: Final = b"application/json"


def reply(status: int, body: bytes, kind: bytes = JSON, more: bytes = b"") -> bytes:
    """Return a complete response. `kind` is the content type.

    `more` holds additional header lines, each ending in CRLF.
    """
    reason = _REASONS.get(status, b"Status")
    content_type = b"content-type: " + kind + b"\r\n" if body else b""
    return b"HTTP/1.1 %d %b\r\ncontent-length: %d\r\n%b%b\r\n%b" % (status, reason, len(body), content_type, more, body)


def error_body(message: str, kind: str, code: int) -> bytes:
    """Return an error body in OpenAI's JSON format."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


class Exchange:
    """One request and its response."""

    __slots__ = ("_chunked", "_connection", "answered", "body", "headers", "method", "on_disconnect", "path")

    def __init__(
        self, connection: "HttpConnection", method: bytes, path: bytes, headers: dict[bytes, bytes], body: bytes
    ) -> None:
        self._connection = connection
        self.method, self.path, self.headers, self.body = method, path, headers, body
        self.on_disconnect: Callable[[], None] | None = None
        """Function that is called if the client disconnects before the response is complete."""
        self.answered = False
        self._chunked = False

    def reply(self, status: int, body: bytes, kind: bytes = JSON, more: bytes = b"") -> None:
        """Send a complete response. `more` holds additional header lines, each ending in CRLF."""
        self._connection.write(reply(status, body, kind, more))
        self._finish()

    def start(self, kind: bytes) -> None:
        """Send the headers of a chunked response with status 200. `kind` is the content type."""
        self._chunked = True
        self._connection.write(b"HTTP/1.1 200 OK\r\ncontent-type: " + kind + b"\r\ntransfer-encoding: chunked\r\n\r\n")

    def send(self, piece: bytes) -> None:
        """Send one chunk. An empty piece sends nothing, because an empty chunk ends the response."""
        if piece:
            self._connection.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def finish(self) -> None:
        """End the chunked response."""
        self._connection.write(b"0\r\n\r\n")
        self._finish()

    @property
    def started(self) -> bool:
        """True once a chunked response has started."""
        return self._chunked

    def abort(self) -> None:
        """Abort the connection, even in the middle of a response."""
        self.answered = True
        self._connection.abort()

    def _finish(self) -> None:
        self.answered = True
        self._connection.next_exchange(self)

    def client_disconnected(self) -> None:
        """Call `on_disconnect` if the response is incomplete.

        The connection calls this method when the client disconnects.
        """
        if not self.answered and self.on_disconnect is not None:
            self.answered = True
            self.on_disconnect()


Handler = Callable[[Exchange], None]


class HttpConnection(asyncio.Protocol):
    """One client connection, which handles its requests one after the other."""

    def __init__(
        self,
        handle: Handler,
        connections: "set[HttpConnection] | None" = None,
        max_body_bytes: int = MAX_BODY_BYTES,
        patience_s: float | None = None,
    ) -> None:
        """If a request is not complete `patience_s` after the connection or the last response, the connection ends."""
        self._handle, self._connections, self._max_body_bytes = handle, connections, max_body_bytes
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._begin()
        self._current: Exchange | None = None
        self._queued: list[Exchange] = []
        self._keep = True
        self._patience_s = patience_s
        self._timer: asyncio.TimerHandle | None = None

    def _await_request(self) -> None:
        if self._patience_s is not None and self._transport is not None:
            self._timer = asyncio.get_running_loop().call_later(self._patience_s, self.abort)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._path, self._headers, self._body = b"", dict[bytes, bytes](), list[bytes]()
        self._body_bytes = self._header_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the new connection."""
        self._transport = cast("asyncio.Transport", transport)
        if self._connections is not None:
            self._connections.add(self)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the current exchange and all queued exchanges that the client disconnected."""
        del exc
        self._transport = None
        self._stop_waiting()
        if self._connections is not None:
            self._connections.discard(self)
        for exchange in (self._current, *self._queued):
            if exchange is not None:
                exchange.client_disconnected()
        self._queued.clear()

    def data_received(self, data: bytes) -> None:
        """Parse received data. Reply 400 and close the connection if the data is not valid HTTP."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            # A bug in this program must not look like a bad request.
            log.exception("an HTTP request could not be handled")
            self.refuse(500)
        except (httptools.HttpParserUpgrade, httptools.HttpParserError):
            self.refuse(400)

    def on_url(self, url: bytes) -> None:
        """Append a part of the request path. The parser may deliver the path in several parts."""
        self._path += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store one header."""
        self._headers[name.lower()] = value
        self._count(len(name) + len(value))

    def _count(self, more: int) -> None:
        self._header_bytes += more
        if self._header_bytes > _MAX_HEADER_BYTES:
            self.refuse(431)

    def on_headers_complete(self) -> None:
        """Record whether the connection stays open after this request, which the parser learns from the headers."""
        self._keep = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        """Append a part of the request body. Reply 413 and close the connection if the body is too large."""
        self._body_bytes += len(body)
        if self._body_bytes > self._max_body_bytes:
            self.refuse(413)
        elif self._transport is not None:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """Handle the received request, or queue it if an earlier request is still being answered."""
        if self._transport is None or self._transport.is_closing():
            return
        exchange = Exchange(self, self._parser.get_method(), self._path, self._headers, b"".join(self._body))
        self._begin()
        self._stop_waiting()
        if self._current is None:
            self._current = exchange
            self._handle(exchange)
        else:
            self._queued.append(exchange)

    def next_exchange(self, ended: Exchange) -> None:
        """Handle the next queued request, or close the connection if the client asked for that."""
        if ended is not self._current:
            return
        self._current = None
        if not self._keep and not self._queued:
            if self._transport is not None:
                self._transport.close()
        elif self._queued:
            self._current = self._queued.pop(0)
            self._handle(self._current)
        else:
            self._await_request()

    def write(self, data: bytes) -> None:
        """Send data if the client is still connected."""
        if self._transport is not None:
            self._transport.write(data)

    def abort(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()

    def close_when_idle(self) -> bool:
        """Close the connection if no request is being answered. Return whether the function closed the connection."""
        if self._current is None and self._transport is not None:
            self._transport.close()
            return True
        return False

    def refuse(self, status: int) -> None:
        """Send an error status and close the connection."""
        if self._transport is not None and not self._transport.is_closing():
            reason = _REASONS[status]
            self._transport.write(
                b"HTTP/1.1 %d %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % (status, reason)
            )
            self._transport.close()
