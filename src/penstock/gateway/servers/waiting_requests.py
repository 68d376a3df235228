"""Lets requests wait at a picker: until there is room for them, or until their model is awake."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from penstock.gateway.picker.picker import EndpointChoice, HeldRequest, Picker, Rejection
from penstock.gateway.picker.request_body import RequestBody, RequestHints

MAX_HELD: Final = 1000
"""Maximum number of requests that one picker holds. Further requests are refused."""
_ASK_AGAIN_S: Final = 0.05
_LOOK_AGAIN_S: Final = 0.02


class WaitingRequests:
    """The requests that wait at one picker. A fleet reload replaces the picker, so it is asked for each time."""

    def __init__(self, picker: Callable[[], Picker]) -> None:
        self._picker, self._holding = picker, 0

    async def decide(
        self, request: RequestBody, body: bytes, hints: RequestHints
    ) -> tuple[Picker, EndpointChoice | Rejection]:
        """Return a request's endpoints or its rejection as soon as it no longer waits, and the picker that chose."""
        begun_s, waited_s = time.monotonic(), 0.0
        while True:
            picker = self._picker()
            if self._holding >= MAX_HELD and not waited_s:
                return picker, picker.decide(request, body, hints)
            answer = picker.decide_or_hold(request, body, hints, waited_s)
            if not isinstance(answer, HeldRequest):
                break
            self._holding += 1
            try:
                await asyncio.sleep(_ASK_AGAIN_S)
            finally:
                self._holding -= 1
            waited_s = time.monotonic() - begun_s
        if isinstance(answer, EndpointChoice) and answer.ready_in_s > 0.0:
            await self._wake(picker.fleet.addresses[answer.order[0]], answer, picker.fleet.wake_hold_s)
        return picker, answer

    async def _wake(self, address: str, choice: EndpointChoice, most_s: float) -> None:
        """Wait until a model is awake. After the longest wait the request waits at its engine instead."""
        due_s = time.monotonic() + most_s
        try:
            while time.monotonic() < due_s and not self._picker().state.is_awake(address):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_AGAIN_S)
        except asyncio.CancelledError:  # the client has left
            self._picker().state.cancel(choice.ticket)
            raise
        self._picker().state.release(choice.ticket, choice.ready_in_s)
