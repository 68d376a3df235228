"""Detects the type of a table file from its first bytes, not from its name."""

import csv
import gzip
import json
import os
import re
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from penstock.errors import TraceError

Container = Literal["csv", "jsonl", "parquet"]

_MAX_LINE_BYTES = 16 * 2**20  # DuckDB's JSON reader's limit for one object.
_MAX_COLUMNS = 1000
_MAX_BLANK_LINES = 100
_PATTERN = re.compile(r"([*?\[])")
_WANTED = "name one CSV, JSONL or Parquet file"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A regular file that looks like a table."""

    path: str
    """Path with symbolic links resolved, so that the opened path is exactly the path that DuckDB may access."""
    name: str
    size_bytes: int
    container: Container
    gzipped: bool
    blank_lines: int
    """Number of blank lines before the first line that is not blank."""
    columns: tuple[str, ...] | None
    """Column names from the CSV header or the first JSON object; None for Parquet, whose column names DuckDB reads."""

    @property
    def literal_path(self) -> str:
        """The path with glob characters escaped, because DuckDB would otherwise match other files."""
        return _PATTERN.sub(r"[\1]", self.path)


def look_at(path: Path) -> TableFile:
    """Read the start of a file and detect its type."""
    try:
        real = os.path.realpath(path)
        status = os.stat(real)  # noqa: PTH116 - the very string that is allowed later
        if not stat.S_ISREG(status.st_mode):
            raise TraceError(f"{path.name}: not a regular file; {_WANTED}")
        with open(real, "rb") as file:  # noqa: PTH123
            magic = file.read(4)
            file.seek(0)
            gzipped = magic.startswith(b"\x1f\x8b")
            blank_lines, line = (0, magic) if magic == b"PAR1" else _first_line(file, gzipped=gzipped)
            container, columns = _table(line, path.name)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "cannot be read"
        raise TraceError(f"{path.name or path!r}: {reason}; {_WANTED}") from error
    return TableFile(
        path=real,
        name=path.name,
        size_bytes=status.st_size,
        container=container,
        gzipped=gzipped,
        blank_lines=blank_lines,
        columns=columns,
    )


def _first_line(file: BinaryIO, *, gzipped: bool) -> tuple[int, bytes]:
    """Return the number of leading blank lines, and the first line that is not blank.

    Return 0 and an empty line if the first 100 lines are all blank.
    """
    stream = gzip.GzipFile(fileobj=file) if gzipped else file
    lines = enumerate(stream.readline(_MAX_LINE_BYTES) for _ in range(_MAX_BLANK_LINES))
    return next(((blank, line) for blank, line in lines if line.strip()), (0, b""))


def _table(line: bytes, name: str) -> tuple[Container, tuple[str, ...] | None]:
    if line == b"PAR1":
        return "parquet", None
    if line.lstrip().startswith(b"{"):
        return "jsonl", _json_columns(line, name)
    return "csv", _csv_columns(line, name)


def _csv_columns(line: bytes, name: str) -> tuple[str, ...]:
    try:
        text = line.decode("utf-8-sig")
        columns = next(csv.reader([text], strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        columns = []
    if not columns or "\0" in text or len(columns) > _MAX_COLUMNS:
        raise TraceError(f"{name}: unknown file format; use CSV with a header line, JSONL or Parquet")
    return tuple(column.strip() for column in columns)


def _json_columns(line: bytes, name: str) -> tuple[str, ...]:
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        first = None
    if not isinstance(first, dict):
        raise TraceError(f"{name}: the first line is not a JSON object; write one object per line")
    return tuple(first)
