"""The gateway side of the endpoint-picker protocol: sends ext_proc messages and collects the answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import grpc
from envoy.config.core.v3.base_pb2 import HeaderMap, HeaderValue, Metadata
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3.external_processor_pb2_grpc import ExternalProcessorStub
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

BUFFERED, DUPLEX = 2, 4
DESTINATION = "x-gateway-destination-endpoint"
PIECE_BYTES = 50_000
_WAIT_S = 20.0
Message = Any
"""Generated classes have no types."""


@dataclass
class Answer:
    """What a picker said to a request."""

    header: str | None = None
    metadata: str | None = None
    status: int | None = None
    """Of an ImmediateResponse, as the next two."""
    refusal: bytes = b""
    retry_after: str | None = None
    body: bytes = b""
    """As it came back, where bodies are streamed."""
    kinds: list[str] = field(default_factory=list)
    """The messages that came, in order."""

    @property
    def named(self) -> list[str]:
        return (self.header or "").split(",")

    def take(self, message: Message) -> None:
        kind = message.WhichOneof("response")
        self.kinds.append(kind)
        if kind == "immediate_response":
            self.status = message.immediate_response.status.code
            self.refusal = message.immediate_response.body
            self.retry_after = _set(message.immediate_response.headers).get("retry-after")
            return
        if kind in {"request_headers", "request_body"}:
            common = getattr(message, kind).response
            self.header = _set(common.header_mutation).get(DESTINATION, self.header)
            self.body += common.body_mutation.streamed_response.body
        if message.HasField("dynamic_metadata"):
            inner = message.dynamic_metadata.fields["envoy.lb"].struct_value.fields
            assert inner[DESTINATION].WhichOneof("kind") == "string_value"
            self.metadata = inner[DESTINATION].string_value


def _set(mutation: Message) -> dict[str, str]:
    return {one.header.key: one.header.raw_value.decode() for one in mutation.set_headers}


def headers(values: dict[str, str]) -> HeaderMap:
    return HeaderMap(headers=[HeaderValue(key=key, raw_value=value.encode()) for key, value in values.items()])


def metadata(namespace: str, key: str, value: object) -> Metadata:
    inner = Struct()
    inner.update({key: value})
    return Metadata(filter_metadata={namespace: inner})


class Exchange:
    """One HTTP request as a gateway tells a picker of it, each message sent when the protocol lets it be."""

    def __init__(self, channel: Message, mode: int) -> None:
        self._mode, self._sent = mode, SimpleQueue[Message]()
        self._stream = ExternalProcessorStub(channel).Process(iter(self._sent.get, None), timeout=_WAIT_S)
        self.answer = Answer()

    def close(self) -> None:
        self._sent.put(None)
        for message in self._stream:
            self.answer.take(message)

    def send(self, message: Message) -> None:
        self._sent.put(message)

    def receive(self) -> Message:
        message = next(self._stream)
        self.answer.take(message)
        return message

    def request(
        self, body: bytes | None, *, said: dict[str, str] | None = None, subset: object = None, trailers: bool = False
    ) -> Answer:
        """Send a request to its end; a body of None is none at all."""
        method, path = ("GET", "/v1/models") if body is None else ("POST", "/v1/chat/completions")
        map_ = headers({":method": method, ":path": path, ":authority": "x", **(said or {})})
        first = pb.ProcessingRequest(request_headers=pb.HttpHeaders(headers=map_, end_of_stream=body is None))
        first.protocol_config.request_body_mode = first.protocol_config.response_body_mode = self._mode
        if subset is not None:
            hint = metadata("envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset", subset)
            first.metadata_context.CopyFrom(hint)
        self.send(first)
        if body is None or self._mode == BUFFERED:
            self.receive()
        if body is not None and self.answer.status is None:
            self._request_body(body, trailers=trailers)
        return self.answer

    def _request_body(self, body: bytes, *, trailers: bool) -> None:
        size = len(body) if self._mode == BUFFERED else PIECE_BYTES
        places = range(0, len(body), size)
        for at in places:
            last = at == places[-1] and not trailers
            self.send(pb.ProcessingRequest(request_body=pb.HttpBody(body=body[at : at + size], end_of_stream=last)))
        if self._mode == BUFFERED:
            self.receive()
        if trailers:
            self.send(pb.ProcessingRequest(request_trailers=pb.HttpTrailers()))
        if self._mode == DUPLEX:
            while self.answer.status is None and len(self.answer.body) < len(body):
                self.receive()
        if trailers:
            self.receive()

    def response(self, served: str, pieces: list[bytes]) -> list[Message]:
        """Send a response that an endpoint served; return the answers to its body."""
        first = pb.ProcessingRequest(response_headers=pb.HttpHeaders(headers=headers({":status": "200"})))
        first.metadata_context.CopyFrom(metadata("envoy.lb", "x-gateway-destination-endpoint-served", served))
        self.send(first)
        self.receive()
        answers = []
        whole = [b"".join(pieces)] if self._mode == BUFFERED else pieces
        for number, piece in enumerate(whole):
            part = pb.HttpBody(body=piece, end_of_stream=number == len(whole) - 1)
            self.send(pb.ProcessingRequest(response_body=part))
            answers.append(self.receive())
        return answers


@contextmanager
def exchange(address: str, mode: int) -> Iterator[Exchange]:
    with grpc.insecure_channel(address) as channel:
        made = Exchange(channel, mode)
        try:
            yield made
        finally:
            made.close()


def asked(address: str, mode: int, body: bytes | None, **more: Any) -> Answer:  # noqa: ANN401 - as `request` takes
    with exchange(address, mode) as made:
        return made.request(body, **more)


def health(address: str, service: str) -> int:
    with grpc.insecure_channel(address) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check", StringValue.SerializeToString, Int32Value.FromString
        )
        return int(check(StringValue(value=service), timeout=_WAIT_S).value)


@contextmanager
def watched(address: str, service: str) -> Iterator[Iterator[int]]:
    """The statuses a watch is sent."""
    with grpc.insecure_channel(address) as channel:
        watch = channel.unary_stream(
            "/grpc.health.v1.Health/Watch", StringValue.SerializeToString, Int32Value.FromString
        )
        stream = watch(StringValue(value=service), timeout=_WAIT_S)
        yield (int(one.value) for one in stream)
        stream.cancel()
