"""Serves gRPC health checks. The endpoint-picker protocol defines the service names for liveness and readiness."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

HEALTH: Final = "grpc.health.v1.Health"
LIVENESS: Final = "liveness"
_READINESS: Final = frozenset({"", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"})
"""Service names that mean readiness.

The empty service name means readiness, because clients that send no name use the result to route requests.
"""
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
_WATCH_EVERY_S: Final = 0.1


class PickerHealth:
    """The gRPC health service of one picker.

    HealthCheckRequest has one string and HealthCheckResponse has one enum, each as field 1. On the wire,
    HealthCheckRequest equals protobuf's StringValue, and HealthCheckResponse equals protobuf's Int32Value.
    """

    def __init__(self, is_ready: Callable[[], bool]) -> None:
        self._is_ready = is_ready
        self._closed = asyncio.Event()

    def handler(self) -> Any:  # noqa: ANN401 - grpcio has no types
        """Return the service's handler for a gRPC server."""
        coding = {"request_deserializer": StringValue.FromString, "response_serializer": Int32Value.SerializeToString}
        methods = {
            "Check": grpc.unary_unary_rpc_method_handler(self._check, **coding),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch, **coding),
        }
        return grpc.method_handlers_generic_handler(HEALTH, methods)

    def close(self) -> None:
        """End all open watch calls, for which a stopping server would otherwise wait."""
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
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service with the name '{request.value[:100]}'")
        return Int32Value(value=status)

    async def _watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - generated
        """Yield the current health status, and then each new status when it changes."""
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
