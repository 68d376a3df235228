"""Is a picker alive, and is it ready? The gRPC health service, with the services of the endpoint-picker protocol."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

HEALTH: Final = "grpc.health.v1.Health"
LIVENESS: Final = "liveness"
_READINESS: Final = frozenset({"", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"})
"""The whole server is ready when its one service is: clients that name no service decide by it where to send."""
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
_WATCH_EVERY_S: Final = 0.1


class PickerHealth:
    """The health service of one picker.

    HealthCheckRequest has one string and HealthCheckResponse one enumerator, each as field 1: on the wire these are
    protobuf's own StringValue and Int32Value.
    """

    def __init__(self, is_ready: Callable[[], bool]) -> None:
        self._is_ready = is_ready
        self._closed = asyncio.Event()

    def handler(self) -> Any:  # noqa: ANN401 - grpcio has no types
        """Return the service for a gRPC server."""
        coding = {"request_deserializer": StringValue.FromString, "response_serializer": Int32Value.SerializeToString}
        methods = {
            "Check": grpc.unary_unary_rpc_method_handler(self._check, **coding),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch, **coding),
        }
        return grpc.method_handlers_generic_handler(HEALTH, methods)

    def close(self) -> None:
        """End all watches: a server that stops waits for calls under way."""
        self._closed.set()

    def _status(self, service: str) -> int:
        if service == LIVENESS:
            return SERVING
        if service in _READINESS:
            return SERVING if self._is_ready() else NOT_SERVING
        return SERVICE_UNKNOWN

    async def _check(self, request: Any, context: Any) -> Any:  # noqa: ANN401 - generated
        status = self._status(request.value)
        if status == SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service is called '{request.value[:100]}'")
        return Int32Value(value=status)

    async def _watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - generated
        """Send the status now, and again whenever it changes."""
        del context
        sent: int | None = None
        while not self._closed.is_set():
            status = self._status(request.value)
            if status != sent:
                sent = status
                yield Int32Value(value=status)
            try:
                await asyncio.wait_for(self._closed.wait(), _WATCH_EVERY_S)
            except TimeoutError:
                continue
