"""Reads log lines of ended requests from a pipe.

Envoy writes a log line into a picker's pipe when a request that the picker routed ends.
"""

import os
import time
from typing import Final

from penstock.gateway.picker.fleet_state import FleetState
from penstock.gateway.picker.outcome_receipts import STREAM_TYPE, ObservedAnswer, generates_tokens

_READ_BYTES: Final = 2**18
_MAX_LINE_BYTES: Final = 4096
_FIELDS, _OUTCOME_FIELDS, _TRY_FIELDS = 5, 9, 6
_SEEN_FIELDS: Final = 4
_TRY: Final = "try"
"""First word of a log line that reports a failed try of a request."""
_NOT_FOUND: Final = 404


class EndedRequests:
    """Reader of one picker's access-log pipe."""

    def __init__(self, path: str, state: FleetState) -> None:
        self.state = state
        # Open the pipe for reading and writing, because a pipe without a reader would block Envoy.
        self.descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._incomplete = b""

    def read(self) -> None:
        """Read and handle all lines that are available now."""
        try:
            data = self._incomplete + os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        *lines, incomplete = data.split(b"\n")
        self._incomplete = incomplete if len(incomplete) < _MAX_LINE_BYTES else b""
        for line in lines:
            self._line(line.decode("utf-8", "replace"))

    def _line(self, line: str) -> None:
        fields = line.split(" ")
        if fields[0] == _TRY:
            self._failed_try(line.split(" ", _TRY_FIELDS - 1))
        fields = line.split(" ", _OUTCOME_FIELDS - 1)
        if len(fields) not in {_FIELDS, _OUTCOME_FIELDS} or not fields[0].isdigit():
            return
        ticket, status, flags, served, tries, *outcome = fields
        self.state.end(
            int(ticket),
            served,
            int(status) if status.isdigit() else 0,
            flags,
            int(tries) if tries.isdigit() else 1,
            answer=_read_answer(*outcome) if outcome else None,
        )

    def _failed_try(self, fields: list[str]) -> None:
        """Handle the log line of a failed try. The last field of the line is a model name, which may contain spaces."""
        if len(fields) != _TRY_FIELDS or not fields[1].isdigit():
            return
        _, ticket, served, status, flags, name = fields
        code = int(status) if status.isdigit() else 0
        if code == _NOT_FOUND:
            self.state.model_not_found(int(ticket), served, name)
        else:
            self.state.fail_try(int(ticket), served, code, flags)


def _read_answer(sent_bytes: str, seen: str, path: str, content_type: str) -> ObservedAnswer:
    """Return what Envoy's log says of a response. A content type may contain spaces, so it is the last field."""
    noted = seen.strip('"').split("/")
    if len(noted) != _SEEN_FIELDS:
        noted = ["-"] * _SEEN_FIELDS
    first_ms, prompt, cached, output = (int(text) if text.isdigit() else None for text in noted)
    streamed = content_type.startswith(STREAM_TYPE)
    # The clocks differ, so the age of the first piece is subtracted. A whole response has no first token.
    first_s = time.monotonic() - (time.time() - first_ms / 1000) if first_ms is not None and streamed else None
    return ObservedAnswer(
        int(sent_bytes) if sent_bytes.isdigit() else 0,
        streamed,
        generates_tokens(path),
        first_s,
        prompt,
        cached,
        output,
    )
