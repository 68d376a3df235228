"""Which answers have ended? Lines of Envoy's log from a pipe, one for each decision of this picker."""

import os
from typing import Final

from penstock.gateway.picking.desk import Desk

_READ_BYTES: Final = 2**18
_MOST_LINE_BYTES: Final = 4096
_FIELDS, _UNKNOWN_FIELDS = 5, 4
_UNKNOWN: Final = "unknown"
"""How a line begins that says which endpoint did not know a name."""


class Endings:
    """One picker's pipe."""

    def __init__(self, path: str, desk: Desk) -> None:
        self.desk = desk
        # For reading and writing: a pipe that nobody holds open for reading would block Envoy.
        self.descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""

    def read(self) -> None:
        """Take what is there."""
        try:
            data = self._rest + os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        *lines, rest = data.split(b"\n")
        self._rest = rest if len(rest) < _MOST_LINE_BYTES else b""
        for line in lines:
            self._line(line.decode("utf-8", "replace"))

    def _line(self, line: str) -> None:
        fields = line.split(" ")
        if fields[0] == _UNKNOWN:
            self._unknown(line.split(" ", _UNKNOWN_FIELDS - 1))
        if len(fields) != _FIELDS or not fields[0].isdigit():
            return
        ticket, status, flags, served, tries = fields
        self.desk.ended(
            int(ticket),
            served,
            int(status) if status.isdigit() else 0,
            flags,
            int(tries) if tries.isdigit() else 1,
        )

    def _unknown(self, fields: list[str]) -> None:
        """Take a line whose last field is a name, which may have spaces."""
        if len(fields) == _UNKNOWN_FIELDS and fields[1].isdigit():
            self.desk.not_found(int(fields[1]), fields[2], fields[3])
