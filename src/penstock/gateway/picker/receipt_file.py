"""Appends lines to a file of receipts. A full disk loses lines, which are counted, but stops nothing for ever."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_PIECE_BYTES: Final = 1 << 16


class ReceiptFile:
    """Writer of whole lines. Where lines are missing, it writes the line of `gap_line` as soon as it can."""

    def __init__(
        self,
        path: Path,
        gap_line: Callable[[float, float, int], str],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`gap_line` makes a line of the times of the gap, in seconds since 1970, and its number of ended requests."""
        self._path, self._gap_line, self._clock, self._wall_clock = path, gap_line, clock, wall_clock
        self.lost = 0
        """Ended requests whose lines were not written."""
        self._in_gap = 0
        self._gap_from_s, self._good_s = 0.0, wall_clock()
        self._pause_s, self._again_s = 0.0, 0.0
        _drop_incomplete_line(path)
        self._descriptor = self._open()

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, lines: Sequence[str], ended: int = 0) -> None:
        """Append lines, `ended` of which are about ended requests."""
        try:
            if not self._pause_s:
                self._append(lines)
            elif self._clock() < self._again_s:
                self._lose(ended)
            else:
                self._end_gap(lines)
        except OSError as error:
            self._begin_gap(error)
            self._lose(ended)

    def close(self) -> None:
        """Write the gap if there is one, and close the file. A further line opens it again."""
        if self._pause_s:
            with suppress(OSError):
                self._end_gap([])
        self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, lines: Sequence[str]) -> None:
        """Append all lines or none."""
        if self._descriptor < 0:
            self._descriptor = self._open()
        data = "".join(f"{line}\n" for line in lines).encode("ascii")
        size = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, data)
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise
        self._good_s = self._wall_clock()

    def _lose(self, ended: int) -> None:
        self.lost += ended
        self._in_gap += ended

    def _begin_gap(self, error: OSError) -> None:
        if not self._pause_s:
            self._gap_from_s, self._in_gap = self._good_s, 0
            log.error("receipts are not written: %s: %s; the bill will miss requests", self._path, error.strerror)
        self._pause_s = min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, 2 * self._pause_s))
        self._again_s = self._clock() + self._pause_s

    def _end_gap(self, lines: Sequence[str]) -> None:
        """Open the file again, and append the gap and the lines after it."""
        self._close()
        self._append([self._gap_line(self._gap_from_s, self._wall_clock(), self._in_gap), *lines])
        log.warning("receipts are written again; %d requests are missing: %s", self._in_gap, self._path)
        self._pause_s = 0.0


def _drop_incomplete_line(path: Path) -> None:
    """Remove the last line of a file if a killed process left it incomplete, so that the next line can be read."""
    try:
        file = path.open("rb+")
    except FileNotFoundError:
        return
    with file:
        end = size = file.seek(0, 2)
        while end:
            start = max(0, end - _PIECE_BYTES)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            file.truncate(end)
