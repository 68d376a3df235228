"""Sends how requests ended from pickers to the scraper, which makes metrics of it.

Records travel as datagrams on a Unix socket. A scraper that is away costs metrics, never a request.
"""

import json
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.gateway.state.request_outcome import RequestOutcome, outcome_lines, outcome_rows
from penstock.routing.records import Records

_MAX_WAITING: Final = 20_000
"""Records that are kept while the scraper is away. Older ones are dropped."""
_IN_DATAGRAM: Final = 100
_MAX_BYTES: Final = 2**20


def _socket_file(folder: Path) -> Path:
    return folder / "outcomes.sock"


class OutcomeOutbox:
    """Sender of one picker's records."""

    def __init__(self, folder: Path) -> None:
        self._path = str(_socket_file(folder))
        self._waiting: deque[str] = deque(maxlen=_MAX_WAITING)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(0.0)

    def add(self, outcomes: Records) -> None:
        """Keep records until they are sent."""
        self._waiting.extend(outcome_lines(outcomes))

    def flush(self) -> None:
        """Send the waiting records. What cannot be sent now stays."""
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(_IN_DATAGRAM, len(self._waiting)))]
            try:
                self._socket.sendto(f"[{','.join(some)}]".encode(), self._path)
            except OSError:
                self._waiting.extendleft(reversed(some))
                return

    def close(self) -> None:
        """Send what waits for the last time, and close the socket."""
        self.flush()
        self._socket.close()


class OutcomeInbox:
    """Receiver of the records of all pickers."""

    def __init__(self, folder: Path, add: Callable[[Records], None]) -> None:
        self._add, path = add, _socket_file(folder)
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(0.0)

    def fileno(self) -> int:
        """Return the descriptor, which an event loop watches."""
        return self._socket.fileno()

    def read(self) -> None:
        """Handle all records that are here now."""
        while True:
            try:
                data = self._socket.recv(_MAX_BYTES)
            except OSError:
                return
            outcomes = []
            for fields in json.loads(data):
                with suppress(ValueError, KeyError, TypeError):
                    outcomes.append(RequestOutcome.from_json(fields))
            self._add(outcome_rows(outcomes))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
