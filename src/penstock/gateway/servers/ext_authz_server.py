"""Answers Envoy's ext_authz requests over HTTP/1.1. An answer has destination headers or is a rejection."""

import asyncio
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from penstock.gateway.picker.picker import EndpointChoice, HeldRequest, Picker, Rejection
from penstock.gateway.picker.request_body import BadBody, RequestBody, RequestHints, read_body
from penstock.gateway.servers.destinations import DestinationList, destinations
from penstock.gateway.state.addresses import liveness_socket
from penstock.gateway.state.headers import (
    DESTINATION,
    LENGTH,
    MAX_RETRIES,
    MODEL,
    OBJECTIVE,
    PICKER,
    REASON,
    SHOWN_BYTES,
    TENANT,
    TICKET,
    TPOT_MS,
    TRY_TIMEOUT,
    TTFT_MS,
    WHOLE,
)
from penstock.http_server import Exchange, HttpConnection, error_body, reply

log = logging.getLogger(__name__)
_PARTIAL: Final = b"x-envoy-auth-partial-body"
_MAX_HINT_MS: Final = 1e7
_BACKLOG: Final = 4096
_SELF_CHECK: Final = b"GET / HTTP/1.1\r\nhost: picker\r\nconnection: close\r\n\r\n"
_MAX_NAME: Final = 128


_LENGTH: Final = LENGTH.encode()
_HINT_HEADERS: Final = frozenset(name.encode() for name in (*OBJECTIVE, *TENANT, *TTFT_MS, *TPOT_MS))
_NO_HINTS: Final = RequestHints()
_MAX_LENGTH_DIGITS: Final = 11
"""Maximum number of digits of a plausible body length."""
_MAX_BODY_BYTES: Final = 9 * 2**20
_MAX_LISTS: Final = 10_000
_UNUSUAL: Final = frozenset({b"transfer-encoding", b"connection", b"expect", b"upgrade"})
"""Headers that the fast path does not handle. Envoy sends no such header to a picker."""
_CHOICE: Final = (
    f"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{MODEL}: %b\r\n{DESTINATION}: %b\r\n{TICKET}: %d\r\n{PICKER}: %d\r\n"
    f"{TRY_TIMEOUT}: %d\r\n{MAX_RETRIES}: %d\r\n%b\r\n"
).encode()
_WHOLE: Final = f"{WHOLE}: 1\r\n".encode()


MAX_HELD: Final = 1000
"""Maximum number of requests that one picker holds. Further requests are refused."""
_ASK_AGAIN_S: Final = 0.05
_LOOK_AGAIN_S: Final = 0.02
Send = Callable[[bytes], None]


class _Asked(NamedTuple):
    """A request, and the function that sends its response."""

    request: RequestBody
    body: bytes
    hints: RequestHints
    send: Send
    is_gone: Callable[[], bool]
    """Returns whether Envoy no longer waits for the response."""


class _Waiting(NamedTuple):
    """The response to a request whose model is not awake yet."""

    response: bytes
    address: str
    due_s: float
    """Time at which the response is sent in any case."""


class AuthzServer:
    """Server for Envoy's ext_authz requests. The server builds each HTTP response directly as bytes."""

    def __init__(self, picker: Picker, number: int) -> None:
        self._number = number
        self.picker = picker
        self._path = self._liveness = ""
        self._holding = 0
        self._server: asyncio.Server | None = None
        """Reference that keeps the server open, because uvloop closes a Unix server without references."""

    async def start(self, path: Path) -> None:
        """Listen on the picker's socket."""
        self._path, connections = str(path), set[HttpConnection]()
        self._liveness = liveness_socket(path.parent, self._number)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: AuthzConnection(self, connections), self._path, backlog=_BACKLOG
        )

    async def answers(self) -> bool:
        """Return whether the server answers a test request that this process sends through the server's socket."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._path)
        except OSError:
            return False
        try:
            writer.write(_SELF_CHECK)
            return (await reader.read()).startswith(b"HTTP/1.1 200 ")
        except OSError:
            return False
        finally:
            writer.close()

    async def stop(self, seconds: float) -> None:
        """Stop listening. Closing waits for no request, because each request is answered at once."""
        del seconds
        if self._server is not None:
            self._server.close()

    @property
    def picker(self) -> Picker:
        """Picker that chooses the endpoints. Each fleet reload replaces the picker."""
        return self._picker

    @picker.setter
    def picker(self, picker: Picker) -> None:
        self._picker = picker
        self._lists: dict[tuple[int, ...], DestinationList] = {}

    def handle(self, exchange: Exchange) -> None:
        """Reply 200 with a destination, or reply with a rejection, which Envoy passes on to the client."""
        gone = asyncio.Event()
        exchange.on_disconnect = gone.set
        self.answer(exchange.method, exchange.headers, exchange.body, exchange.reply_whole, gone.is_set)

    def answer(
        self, method: bytes, headers: dict[bytes, bytes], body: bytes, send: Send, is_gone: Callable[[], bool]
    ) -> None:
        """Send the complete response to an ext_authz request: at once, or when the request is no longer held."""
        if method != b"POST":
            send(self._response(EndpointChoice(self._picker.fleet.models[0])))
            return
        length = headers.get(_LENGTH, b"")
        declared = int(length) if length.isdigit() and len(length) <= _MAX_LENGTH_DIGITS else None
        try:
            request = read_body(body, declared or len(body), cut=_is_cut(headers, body, declared))
        except BadBody as error:
            send(self._response(Rejection(400, "bad-body", str(error))))
            return
        self._ask(_Asked(request, body, request_hints(headers), send, is_gone))

    def _ask(self, asked: "_Asked", begun_s: float | None = None) -> None:
        """Answer a request, or ask the picker again after a while if the request is held."""
        picker = self._picker
        if begun_s is None and self._holding >= MAX_HELD:
            decision = picker.decide(asked.request, asked.body, asked.hints)
        else:
            waited_s = 0.0 if begun_s is None else asyncio.get_running_loop().time() - begun_s
            self._holding -= begun_s is not None
            answer = picker.decide_or_hold(asked.request, asked.body, asked.hints, waited_s)
            if isinstance(answer, HeldRequest):
                self._holding += 1
                loop = asyncio.get_running_loop()
                loop.call_later(_ASK_AGAIN_S, self._ask_again, asked, loop.time() if begun_s is None else begun_s)
                return
            decision = answer
        if isinstance(decision, EndpointChoice) and decision.ready_in_s > 0.0:
            address = picker.fleet.addresses[decision.order[0]]
            due_s = asyncio.get_running_loop().time() + picker.fleet.wake_hold_s
            self._forward_awake(asked, decision, _Waiting(self._response(decision), address, due_s))
            return
        asked.send(self._response(decision))

    def _forward_awake(self, asked: "_Asked", choice: EndpointChoice, waiting: "_Waiting") -> None:
        """Send the response when the model is awake. After the longest wait the request waits at its engine instead."""
        loop, state = asyncio.get_running_loop(), self._picker.state
        if asked.is_gone():
            state.cancel(choice.ticket)
        elif loop.time() >= waiting.due_s or state.is_awake(waiting.address):
            state.release(choice.ticket, choice.ready_in_s)
            asked.send(waiting.response)
        else:
            loop.call_later(_LOOK_AGAIN_S, self._forward_awake, asked, choice, waiting)

    def _ask_again(self, asked: "_Asked", begun_s: float) -> None:
        if asked.is_gone():  # its client has left, or Envoy has waited too long
            self._holding -= 1
            return
        try:
            self._ask(asked, begun_s)
        except Exception:  # a bug in this program must not leave the request unanswered
            log.exception("a held request could not be answered")
            asked.send(self._response(Rejection(500, "error", "The gateway failed. Retry the request.")))

    def _response(self, decision: EndpointChoice | Rejection) -> bytes:
        if isinstance(decision, Rejection):
            retry = "" if decision.retry_s is None else f"retry-after: {decision.retry_s}\r\n"
            more = f"{REASON}: {decision.reason}\r\n{retry}".encode()
            return reply(decision.status, error_body(decision.message, decision.reason, decision.status), more=more)
        model, order, ticket, silence_s, streamed, _ = decision
        if not order:
            return reply(200, b"", more=f"{MODEL}: {model}\r\n".encode())
        places, retries = self._destinations(order)
        whole = b"" if streamed else _WHOLE
        return _CHOICE % (model.encode(), places.encode(), ticket, self._number, 1000 * silence_s, retries, whole)

    def _destinations(self, order: tuple[int, ...]) -> DestinationList:
        """Return the destinations for endpoints in the given order.

        Results are cached, because only a few orders occur.
        """
        listing = self._lists.get(order)
        if listing is None:
            if len(self._lists) > _MAX_LISTS:
                self._lists.clear()
            addresses = self._picker.fleet.addresses
            listing = self._lists[order] = destinations([addresses[index] for index in order], self._liveness)
        return listing


class AuthzConnection(HttpConnection):
    """A connection from Envoy. A request that arrives in one piece is parsed on a fast path without the HTTP parser."""

    def __init__(self, server: AuthzServer, connections: set[HttpConnection] | None = None) -> None:
        super().__init__(server.handle, connections, max_body_bytes=_MAX_BODY_BYTES)
        self._owner = server

    def data_received(self, data: bytes) -> None:
        """Answer a request that arrives completely in `data`. Pass any other data to the HTTP parser."""
        if self._transport is None or self.is_reading:
            super().data_received(data)
            return
        head, separator, body = data.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        try:
            headers = dict([line.split(b": ", 1) for line in lines])
        except ValueError:  # a line without a colon and a space
            headers = {}
        usual = separator and first[:5] == b"POST " and first[-9:] == b" HTTP/1.1" and _UNUSUAL.isdisjoint(headers)
        if not usual or headers.get(b"content-length") != b"%d" % len(body):
            super().data_received(data)
            return
        try:
            self._owner.answer(b"POST", headers, body, self._transport.write, self._transport.is_closing)
        except Exception:  # a bug in this program must not leave the request unanswered
            log.exception("an ext_authz request could not be answered")
            self.refuse(500)


def _is_cut(headers: dict[bytes, bytes], body: bytes, declared: int | None) -> bool:
    """Return whether the request body is truncated. `declared` is the length that the client declared, or None.

    Envoy reports a complete body if its buffer is exactly full, even if more of the body follows. If the client
    declared no length (chunks, HTTP/2), a full buffer is the only sign of truncation.
    """
    if headers.get(_PARTIAL) == b"true":
        return True
    return len(body) == SHOWN_BYTES if declared is None else declared > len(body)


def request_hints(headers: dict[bytes, bytes]) -> RequestHints:
    """Read the routing hints from headers. Implausible values are ignored."""
    if _HINT_HEADERS.isdisjoint(headers):
        return _NO_HINTS
    return RequestHints(
        objective=_first(headers, OBJECTIVE).lower(),
        tenant=_first(headers, TENANT),
        ttft_s=_seconds(_first(headers, TTFT_MS)),
        tpot_s=_seconds(_first(headers, TPOT_MS)),
    )


def _first(headers: dict[bytes, bytes], names: tuple[str, ...]) -> str:
    for name in names:
        value = headers.get(name.encode())
        if value is not None:
            return value[:_MAX_NAME].decode("latin-1")
    return ""


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value / 1000 if math.isfinite(value) and 0 < value < _MAX_HINT_MS else None
