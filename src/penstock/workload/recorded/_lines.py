"""Finds the line endings and the number of lines of a CSV file before it is parsed."""

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, cast

from penstock.errors import TraceError
from penstock.workload.recorded._table_file import TableFile

_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Properties of a CSV file that the parser needs, or that cannot be found after parsing."""

    mixed_ends: bool
    """Whether some lines end with LF and others with CRLF or CR."""
    written: int | None
    """Number of lines that are not blank, including the header; None if no field is quoted.

    Without quoted fields every row is one line.
    """


def count_lines(file: TableFile) -> Lines:
    """Scan every byte of a file.

    Lines are counted only if the file has quotes, because quoted fields may contain line breaks.
    """
    feeds = returns = both = quotes = 0
    last = b""
    for chunk in _chunks(file):
        feeds += chunk.count(b"\n")
        returns += chunk.count(b"\r")
        both += chunk.count(b"\r\n") + (last == b"\r" and chunk[:1] == b"\n")
        quotes += chunk.count(b'"')
        last = chunk[-1:]
    kinds = sum(count > 0 for count in (both, feeds - both, returns - both))
    return Lines(mixed_ends=kinds > 1, written=_count_lines(file) if quotes else None)


def _count_lines(file: TableFile) -> int:
    """Count the lines that are not blank; a line may end with LF, CRLF or CR."""
    count, rest = 0, b""
    for chunk in _chunks(file):
        *whole, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
        count += sum(1 for line in whole if line.strip())
    return count + bool(rest.strip())


def _chunks(file: TableFile) -> Iterator[bytes]:
    try:
        with open(file.path, "rb") as raw:  # noqa: PTH123 - the very string that is allowed
            stream = cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if file.gzipped else raw
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{file.name}: the file cannot be read to its end; check whether it is complete") from error
