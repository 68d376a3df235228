"""Serves the endpoint-picker protocol of Gateway API Inference Extension (004) over ext_proc."""

import time
from typing import TYPE_CHECKING, Any, Final

import grpc
from envoy.config.core.v3.base_pb2 import HeaderValue, HeaderValueOption
from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3.external_processor_pb2_grpc import add_ExternalProcessorServicer_to_server
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.wrappers_pb2 import StringValue

from penstock.gateway.picker.outcome_receipts import STREAM_TYPE, ObservedAnswer, generates_tokens
from penstock.gateway.picker.picker import MAX_CHOSEN, EndpointChoice, Picker, Rejection
from penstock.gateway.picker.request_body import BadBody, read_body, request_hints
from penstock.gateway.servers.grpc_health import HEALTH, LIVENESS, PickerHealth
from penstock.gateway.servers.waiting_requests import WaitingRequests
from penstock.gateway.state.headers import (
    DESTINATION,
    MAX_RETRIES,
    MODEL,
    PICKER,
    REASON,
    RETRIED,
    SERVED,
    STREAMED,
    SUBSET,
    TICKET,
    TRY_TIMEOUT,
)
from penstock.gateway.state.refusals import WRONG
from penstock.http_server import error_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

_CHUNK_BYTES: Final = 62_000
"""Bytes per returned body chunk. Some Envoys accept at most 64 KB per message."""
_MAX_BODY_BYTES: Final = 9 * 2**20
_HINT: Final = "envoy.lb.subset_hint"
_LB: Final = "envoy.lb"
_ALIVE: Final = StringValue(value=LIVENESS).SerializeToString()
_OWN_CONNECTION: Final = (("grpc.use_local_subchannel_pool", 1),)
"""Channel option that opens a new connection for each self-check.

An existing connection would not show that the server still accepts connections.
"""
_DUPLEX: Final = processing_mode_pb2.ProcessingMode.FULL_DUPLEX_STREAMED
_BUFFERED: Final = processing_mode_pb2.ProcessingMode.BUFFERED
_OK: Final = 200
_NO_LOCATION: Final = pb.HeaderMutation(remove_headers=["location", "content-location"])  # they name engines
_NOT_READY: Final = Rejection(503, "no-endpoints", "no endpoint is ready", 1)


class _Conversation:
    """Exchange of ext_proc messages with a gateway about one request."""

    def __init__(self, picker: Picker, number: int, waiting: WaitingRequests, *, is_external: bool) -> None:
        self._picker, self._number, self._waiting, self._is_external = picker, number, waiting, is_external
        self._modes = (0, 0)
        """Modes in which the gateway sends the request body and the response body, if the gateway declares them."""
        self._headers: dict[bytes, bytes] = {}
        self._subset: frozenset[int] | None = None
        self._body: list[bytes] = []
        self._bytes = 0
        self._choice: EndpointChoice | None = None
        self._served, self._status = "", 0
        self._saw_response = False
        self._response_bytes, self._content_type = 0, ""
        self._first_s: float | None = None

    async def answers(self, message: Any) -> list[Any]:  # noqa: ANN401 - generated classes have no types
        """Return the responses to a message of the gateway.

        While a part of the request body is missing, there are no responses.
        """
        if message.HasField("protocol_config"):
            config = message.protocol_config
            self._modes = (config.request_body_mode, config.response_body_mode)
        kind = message.WhichOneof("request")
        ask: dict[str, Callable[[Any], Awaitable[list[Any]]]] = {
            "request_headers": self._request_headers,
            "request_body": self._request_body,
            "request_trailers": self._request_trailers,
        }
        take: dict[str, Callable[[Any], list[Any]]] = {
            "response_headers": self._response_headers,
            "response_body": self._response_body,
            "response_trailers": self._response_trailers,
        }
        if kind in ask:
            return await ask[kind](message)
        return take[kind](message) if kind in take else []

    @property
    def _duplex(self) -> bool:
        return bool(self._modes[0] == _DUPLEX)

    async def _request_headers(self, message: Any) -> list[Any]:  # noqa: ANN401 - generated
        headers = message.request_headers
        self._headers = {
            header.key.lower().encode(): header.raw_value or header.value.encode() for header in headers.headers.headers
        }
        self._subset = self._read_subset(message)
        if headers.end_of_stream:
            return [await self._pick_response("request_headers")]
        return [] if self._duplex else [pb.ProcessingResponse(request_headers=pb.HeadersResponse())]

    def _read_subset(self, message: Any) -> frozenset[int] | None:  # noqa: ANN401 - generated
        """Return the endpoints that a gateway's subset hint allows, or None if there is no hint.

        The hint is a list or a comma-separated text of addresses. The result is empty if none of the addresses is an
        endpoint of this fleet.
        """
        hint = message.metadata_context.filter_metadata.get(_HINT)
        if hint is None or SUBSET not in hint.fields:
            return None
        value = hint.fields[SUBSET]
        texts = [item.string_value for item in value.list_value.values] or value.string_value.split(",")
        addresses = {text.strip() for text in texts}
        return frozenset(index for index, address in enumerate(self._picker.fleet.addresses) if address in addresses)

    async def _request_body(self, message: Any) -> list[Any]:  # noqa: ANN401 - generated
        part = message.request_body
        self._bytes += len(part.body)
        if self._bytes > _MAX_BODY_BYTES:
            return [_rejection_response(Rejection(413, "too-large", "the body is too large"))]
        self._body.append(part.body)
        # A buffered body is complete, but its message does not end the stream if trailers follow.
        if not part.end_of_stream and self._modes[0] != _BUFFERED:
            return []
        return await self._choose_for_body()

    async def _request_trailers(self, message: Any) -> list[Any]:  # noqa: ANN401 - generated
        del message
        answers = [] if self._choice is not None else await self._choose_for_body()
        return [*answers, pb.ProcessingResponse(request_trailers=pb.TrailersResponse())]

    async def _choose_for_body(self) -> list[Any]:
        """Choose endpoints for a request whose body is complete. Return the response messages.

        If the gateway streamed the body, the messages also return the body to the gateway.
        """
        if not self._duplex:
            return [await self._pick_response("request_body")]
        first = await self._pick_response("request_headers")
        if first.HasField("immediate_response"):
            return [first]
        return [first, *_body_chunks(b"".join(self._body), "request_body")]

    async def _pick_response(self, phase: str) -> Any:  # noqa: ANN401 - generated
        answer = await self._decide()
        if isinstance(answer, EndpointChoice) and not answer.order and self._is_external:
            answer = self._by_weight(answer.model)
        if isinstance(answer, Rejection):
            return _rejection_response(answer)
        self._choice = answer
        mutation = pb.HeaderMutation(set_headers=[_header(MODEL, answer.model)])
        response = pb.ProcessingResponse()
        if answer.order:
            addresses = [self._picker.fleet.addresses[index] for index in answer.order]
            mutation.set_headers.extend(
                _header(name, value) for name, value in self._routing_headers(answer, addresses)
            )
            inner = Struct(fields={DESTINATION: Value(string_value=",".join(addresses))})
            response.dynamic_metadata.CopyFrom(Struct(fields={_LB: Value(struct_value=inner)}))
        common = pb.CommonResponse(header_mutation=mutation, clear_route_cache=True)
        if phase == "request_headers":
            response.request_headers.CopyFrom(pb.HeadersResponse(response=common))
        else:
            response.request_body.CopyFrom(pb.BodyResponse(response=common))
        return response

    def _routing_headers(self, choice: EndpointChoice, addresses: list[str]) -> list[tuple[str, str]]:
        """Return the headers that route a request. Only Penstock's own Envoy gets headers for timeouts and retries."""
        headers = [(DESTINATION, ",".join(addresses))]
        if choice.ticket:
            headers += [(TICKET, str(choice.ticket)), (PICKER, str(self._number))]
        if not self._is_external:
            # After the last endpoint of the list, Envoy tries one more, chosen by weight.
            headers += [(TRY_TIMEOUT, str(int(1000 * choice.silence_s))), (MAX_RETRIES, str(len(addresses)))]
            headers += [(STREAMED, "1")] if choice.streamed else []
            headers += [(RETRIED, ",".join(map(str, WRONG)))] if choice.doubted else []
        return headers

    def _by_weight(self, model: str) -> EndpointChoice | Rejection:
        """Choose healthy endpoints by weight for an external gateway.

        Penstock's own Envoy chooses by weight without a picker.
        """
        name, picker = None if self._is_bodiless else model, self._picker
        order = picker.state.readiness.draw_by_weight(name, self._subset, picker.state.endpoints["accepts"], MAX_CHOSEN)
        return EndpointChoice(name or picker.fleet.served[order[0]], order) if order else _NOT_READY

    @property
    def _is_bodiless(self) -> bool:
        """True if the request names no model, so that any endpoint may answer it."""
        return self._headers.get(b":method") != b"POST" or not self._bytes

    async def _decide(self) -> EndpointChoice | Rejection:
        body = b"".join(self._body)
        if self._is_bodiless:
            return EndpointChoice(self._picker.fleet.models[0])
        try:
            request = read_body(body)
        except BadBody as error:
            return Rejection(400, "bad-body", str(error))
        hints = request_hints(self._headers)
        if self._is_external:  # an external gateway does not wait for long
            return self._picker.decide(request, body, hints, self._subset)
        self._picker, answer = await self._waiting.decide(request, body, hints)
        return answer

    def _response_headers(self, message: Any) -> list[Any]:  # noqa: ANN401 - generated
        self._saw_response = True
        metadata = message.metadata_context.filter_metadata.get(_LB)
        if metadata is not None and SERVED in metadata.fields:
            self._served = metadata.fields[SERVED].string_value
        status = [item for item in message.response_headers.headers.headers if item.key == ":status"]
        kinds = [item for item in message.response_headers.headers.headers if item.key == "content-type"]
        self._content_type = (kinds[0].raw_value.decode("latin-1") or kinds[0].value) if kinds else ""
        text = (status[0].raw_value or status[0].value.encode()) if status else b""
        self._status = int(text) if text.isdigit() else _OK
        common = pb.CommonResponse(header_mutation=_NO_LOCATION)
        return [pb.ProcessingResponse(response_headers=pb.HeadersResponse(response=common))]

    def _response_body(self, message: Any) -> list[Any]:  # noqa: ANN401 - generated
        part = message.response_body
        if part.body and self._first_s is None:
            self._first_s = time.monotonic()
        self._response_bytes += len(part.body)
        if self._modes[1] != _DUPLEX:
            return [pb.ProcessingResponse(response_body=pb.BodyResponse())]
        return _body_chunks(part.body, "response_body", end=part.end_of_stream)

    def _response_trailers(self, message: Any) -> list[Any]:  # noqa: ANN401 - generated
        del message
        return [pb.ProcessingResponse(response_trailers=pb.TrailersResponse())]

    def close(self) -> None:
        """Record the end of the request.

        If an external gateway sent no response messages, the end of the request is predicted. Penstock's own Envoy logs
        the end of each request.
        """
        if self._choice is None or not self._choice.ticket:
            return
        if self._saw_response:
            self._picker.state.end(
                self._choice.ticket,
                self._served,
                self._status,
                "-",
                1,
                unlogged=self._is_external,
                answer=self._read_answer(),
            )
        elif self._is_external:
            self._picker.state.predict_end(self._choice.ticket)

    def _read_answer(self) -> ObservedAnswer | None:
        """Return what was seen of the response; None if the gateway sent only its headers."""
        if self._first_s is None:
            return None
        path = self._headers.get(b":path", b"").decode("latin-1")
        streamed = self._content_type.startswith(STREAM_TYPE)
        # The pieces of a stream are seen one by one. A whole response has no first token.
        first_s = self._first_s if streamed and self._modes[1] == _DUPLEX else None
        return ObservedAnswer(self._response_bytes, streamed, generates_tokens(path), first_s)


class ExtProcServer:
    """The ext_proc gRPC service and its health service."""

    def __init__(
        self,
        picker: Picker,
        number: int,
        is_draining: "Callable[[], bool]" = lambda: False,
    ) -> None:
        self.picker = picker
        self._waiting = WaitingRequests(lambda: self.picker)
        self._number = number
        self._server: Any = None
        self._address, self._is_external = "", False
        """`_is_external` is true behind an external gateway.

        An external gateway has no fallback weights, and only its stream of messages shows when a request ends.
        """
        self._health = PickerHealth(lambda: self.picker.state.readiness.any_ready and not is_draining())

    async def start(self, address: str, certificate: "tuple[Path, Path] | None" = None) -> None:
        """Start listening. Several pickers may share a TCP address; each accepts a part of the connections."""
        self._address, self._is_external = address, not address.startswith("unix:")
        options = [("grpc.max_receive_message_length", _MAX_BODY_BYTES), ("grpc.so_reuseport", int(self._is_external))]
        self._server = grpc.aio.server(options=options)
        add_ExternalProcessorServicer_to_server(self, self._server)
        self._server.add_generic_rpc_handlers((self._health.handler(),))
        if certificate is None:
            self._server.add_insecure_port(address)
        else:
            self._server.add_secure_port(address, _server_credentials(*certificate))
        await self._server.start()

    async def answers(self) -> bool:
        """Return whether the server answers a health check through its own socket.

        If pickers share an address, the result is always True. On a shared address, a health check would prove nothing,
        because another picker could answer it.
        """
        if self._is_external:
            return True
        async with grpc.aio.insecure_channel(self._address, options=_OWN_CONNECTION) as channel:
            try:
                await channel.unary_unary(f"/{HEALTH}/Check")(_ALIVE, timeout=1.0)
            except grpc.aio.AioRpcError:
                return False
        return True

    async def stop(self, seconds: float) -> None:
        """Accept no new requests, and wait up to `seconds` until requests in flight have finished."""
        self._health.close()
        await self._server.stop(seconds)

    async def Process(self, request_iterator: Any, context: Any) -> None:  # noqa: ANN401, N802 - the service's name
        """Answer one request's messages until the gateway closes the stream."""
        del request_iterator
        conversation = _Conversation(self.picker, self._number, self._waiting, is_external=self._is_external)
        try:
            while (message := await context.read()) is not grpc.aio.EOF:
                for answer in await conversation.answers(message):
                    await context.write(answer)
        finally:
            conversation.close()


def _header(name: str, value: str) -> Any:  # noqa: ANN401 - generated
    action = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    return HeaderValueOption(header=HeaderValue(key=name, raw_value=value.encode()), append_action=action)


def _body_chunks(body: bytes, phase: str, *, end: bool = True) -> list[Any]:
    """Return the messages that send a body back to the gateway in chunks."""
    pieces = [body[at : at + _CHUNK_BYTES] for at in range(0, len(body), _CHUNK_BYTES)] or [b""]
    answers = []
    for number, piece in enumerate(pieces):
        last = end and number == len(pieces) - 1
        streamed = pb.StreamedBodyResponse(body=piece, end_of_stream=last)
        common = pb.CommonResponse(body_mutation=pb.BodyMutation(streamed_response=streamed))
        answers.append(pb.ProcessingResponse(**{phase: pb.BodyResponse(response=common)}))
    return answers


def _rejection_response(rejection: Rejection) -> Any:  # noqa: ANN401 - generated
    headers = [_header("content-type", "application/json"), _header(REASON, rejection.reason)]
    if rejection.retry_s is not None:
        headers.append(_header("retry-after", str(rejection.retry_s)))
    immediate = pb.ImmediateResponse(
        status={"code": rejection.status},
        headers=pb.HeaderMutation(set_headers=headers),
        body=error_body(rejection.message, rejection.reason, rejection.status),
        details=rejection.reason,
    )
    return pb.ProcessingResponse(immediate_response=immediate)


def _server_credentials(chain: "Path", key: "Path") -> Any:  # noqa: ANN401 - grpcio has no types
    """Return TLS credentials that read the certificate files again for each connection.

    If the files cannot be read, the last certificate stays in use.
    """

    def read() -> Any:  # noqa: ANN401 - same
        return grpc.ssl_server_certificate_configuration([(key.read_bytes(), chain.read_bytes())])

    def reread() -> Any:  # noqa: ANN401 - same
        try:
            return read()
        except OSError:
            return None

    return grpc.dynamic_ssl_server_credentials(read(), reread)
