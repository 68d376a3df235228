"""How is a user's table opened? In a database of its own that can reach this one file and nothing else."""

import csv
import gzip
import json
import os
import stat
import tempfile
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

from penstock.workload.errors import TraceError

if TYPE_CHECKING:
    import duckdb

Progress = Callable[[int, int | None], None]
"""Told what is done and, where known, of how much."""

MEMORY_LIMIT = "1GB"
"""Tables larger than this go to the temporary directory; the limit is DuckDB's own."""

_MAX_HEAD_BYTES = 16 * 2**20  # As long as the JSON reader allows an object to be.
_MAX_COLUMNS = 1000
_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A regular file that looks like a table, and the names of its columns."""

    path: str
    name: str
    size_bytes: int
    container: Literal["csv", "jsonl", "parquet"]
    gzipped: bool
    columns: tuple[str, ...]


def open_table(path: Path) -> "tuple[TableFile, duckdb.DuckDBPyConnection]":
    """Look at a file's first bytes, not its name, and open a database for it."""
    real = os.path.realpath(path)
    try:
        status = os.stat(real)  # noqa: PTH116 - as the string that is allowed below
        if not stat.S_ISREG(status.st_mode):
            raise TraceError(f"{path.name}: not a regular file; name one CSV, JSONL or Parquet file")
        with open(real, "rb") as file:  # noqa: PTH123
            magic = file.read(4)
            file.seek(0)
            gzipped = magic[:2] == b"\x1f\x8b"
            head = b"" if magic == b"PAR1" else _head(file, gzipped=gzipped)
    except (OSError, EOFError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "cannot be read"
        raise TraceError(f"{path.name or path}: {reason}; name one CSV, JSONL or Parquet file") from error
    connection = _connect(real)
    if magic == b"PAR1":
        container, columns = "parquet", _parquet_columns(connection, real, path.name)
    elif head.lstrip()[:1] == b"{":
        container, columns = "jsonl", _json_columns(head, path.name)
    else:
        container, columns = "csv", _csv_columns(head, path.name)
    file_ = TableFile(
        path=real,
        name=path.name,
        size_bytes=status.st_size,
        container=cast("Literal['csv', 'jsonl', 'parquet']", container),
        gzipped=gzipped,
        columns=columns,
    )
    return file_, connection


def scan_sql(file: TableFile, wanted: Sequence[str | None]) -> str:
    """Write the relation that reads the wanted columns as text, named w0, w1, ...; an absent one is null.

    The file's name is a parameter to bind, and no text of the file becomes part of the query.
    """
    compression = "gzip" if file.gzipped else "none"
    if file.container == "csv":
        types = ", ".join(f"'c{index}': 'VARCHAR'" for index in range(len(file.columns)))
        source = (
            f"read_csv(?, columns = {{{types}}}, auto_detect = false, header = true, delim = ',', quote = '\"', "
            f"escape = '\"', compression = '{compression}', store_rejects = true)"
        )
        names = {column: f"c{index}" for index, column in enumerate(file.columns)}
    elif file.container == "jsonl":
        known = [column for column in wanted if column is not None]
        types = ", ".join(f"'{column}': 'VARCHAR'" for column in known)
        source = (
            f"read_json(?, columns = {{{types}}}, format = 'newline_delimited', compression = '{compression}', "
            "ignore_errors = true)"
        )
        names = {column: f'"{column}"' for column in known}
    else:
        source = "read_parquet(?)"
        names = {column: f'"{column}"' for column in wanted if column is not None and column in file.columns}
    picked = ", ".join(
        f"{'NULL' if column is None or column not in names else names[column]}::VARCHAR AS w{index}"
        for index, column in enumerate(wanted)
    )
    return f"SELECT {picked} FROM {source}"  # noqa: S608 - only numbers and names from `formats` are written in


def run(connection: "duckdb.DuckDBPyConnection", query: str, file: TableFile, progress: Progress | None = None) -> None:
    """Run a query over the file, telling `progress` how many of its bytes are done."""
    import duckdb  # noqa: PLC0415 - a quarter of a second and 40 MB that only readers of traces pay

    try:
        if progress is None:
            connection.execute(query, [file.path])
        else:
            _run_watched(connection, query, file, progress)
    except duckdb.Error as error:
        raise TraceError(f"{file.name}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """Return what went wrong in one line, without the query that DuckDB appends."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def _run_watched(connection: "duckdb.DuckDBPyConnection", query: str, file: TableFile, progress: Progress) -> None:
    failure: list[BaseException] = []

    def work() -> None:
        try:
            connection.execute(query, [file.path])
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            failure.append(error)

    worker = threading.Thread(target=work, name="penstock-trace", daemon=True)
    worker.start()
    percent = 0.0
    try:
        while worker.is_alive():
            worker.join(_POLL_S)
            # -1 before the query starts and after it ends; it must not seem to go back.
            percent = min(max(percent, connection.query_progress()), 100.0)
            progress(int(percent / 100 * file.size_bytes), file.size_bytes)
    except BaseException:
        connection.interrupt()
        worker.join()
        raise
    if failure:
        raise failure[0]
    progress(file.size_bytes, file.size_bytes)


def _connect(path: str) -> "duckdb.DuckDBPyConnection":
    import duckdb  # noqa: PLC0415 - as above

    spill = Path(tempfile.gettempdir()) / f"penstock-{uuid.uuid4().hex}"  # DuckDB makes it, and removes it, if needed.
    connection = duckdb.connect(
        ":memory:",
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": str(spill),
        },
    )
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = true")
    connection.execute("SET enable_progress_bar_print = false")
    connection.execute("SET progress_bar_time = 0")
    connection.execute("SET allowed_paths = [?]", [path])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _head(file: BinaryIO, *, gzipped: bool) -> bytes:
    """Return the first line that is not blank."""
    stream = gzip.GzipFile(fileobj=file) if gzipped else file
    while True:
        line = stream.readline(_MAX_HEAD_BYTES)
        if not line or line.strip():
            return line


def _csv_columns(head: bytes, name: str) -> tuple[str, ...]:
    try:
        text = head.decode("utf-8-sig")
        columns = next(csv.reader([text], strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        columns = []
    if not columns or "\0" in text or len(columns) > _MAX_COLUMNS:
        raise TraceError(f"{name}: neither a CSV file with a header line nor JSONL nor Parquet")
    return tuple(column.strip() for column in columns)


def _json_columns(head: bytes, name: str) -> tuple[str, ...]:
    try:
        first = json.loads(head)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{name}: the first line is not a JSON object; write one object per line") from error
    if not isinstance(first, dict):
        raise TraceError(f"{name}: the first line is not a JSON object; write one object per line")
    return tuple(first)


def _parquet_columns(connection: "duckdb.DuckDBPyConnection", path: str, name: str) -> tuple[str, ...]:
    import duckdb  # noqa: PLC0415 - as above

    try:
        described = connection.execute("SELECT * FROM read_parquet(?) LIMIT 0", [path]).description
    except duckdb.Error as error:
        raise TraceError(f"{name}: {first_line(error)}") from error
    return tuple(str(column[0]) for column in described or ())
