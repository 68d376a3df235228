"""Reads a user's table in a private DuckDB database that can access only this one file."""

import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from penstock.errors import TraceError
from penstock.workload.recorded._table_file import TableFile

if TYPE_CHECKING:
    import duckdb

ByteProgress = Callable[[int, int | None], None]
"""Progress callback: bytes read and, if known, total bytes."""

MEMORY_LIMIT = "1GB"
"""DuckDB's memory limit. Data beyond this limit spills to the temporary directory."""

_POLL_S = 0.1


class Database:
    """The database tables of one trace file. The error message of a failed query is one line that names the file."""

    def __init__(self, file: TableFile, connection: "duckdb.DuckDBPyConnection | None" = None) -> None:
        import duckdb  # noqa: PLC0415 - a quarter of a second and 40 MB that only readers of traces pay

        self.file = file
        self._error = duckdb.Error
        if connection is None:
            spill = _spill_folder()
            connection = _connect(file, spill)
            weakref.finalize(self, _discard, connection, spill)
        self._connection = connection

    def another(self) -> "Database":
        """Return a second reader of the same tables. Queries of both readers may be interleaved."""
        return Database(self.file, self._connection.cursor())

    def run(self, query: str, parameters: Sequence[object] = ()) -> None:
        """Run a query and discard its result."""
        self._execute(query, parameters)

    def row(self, query: str) -> tuple[Any, ...]:
        """Return the first row."""
        return tuple(self._execute(query).fetchone() or ())

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return every row."""
        return self._execute(query, parameters).fetchall()

    def columns(self, query: str, parameters: Sequence[object] = ()) -> dict[str, NDArray[Any]]:
        """Return every column as an array."""
        columns: dict[str, NDArray[Any]] = self._execute(query, parameters).fetchnumpy()
        return columns

    def names(self, query: str, parameters: Sequence[object] = ()) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(str(column[0]) for column in self._execute(query, parameters).description or ())

    def watch(self, query: str, parameters: Sequence[object], progress: ByteProgress) -> None:
        """Run a query and report to `progress` how many bytes of the file have been read."""
        failure: list[Exception] = []

        def work() -> None:
            try:
                self._execute(query, parameters)
            except TraceError as error:
                failure.append(error)

        worker = threading.Thread(target=work, name="penstock-trace", daemon=True)
        worker.start()
        size, percent = self.file.size_bytes, 0.0
        try:
            while worker.is_alive():
                worker.join(_POLL_S)
                # query_progress is -1 before the query starts and after it ends; progress must not go backwards.
                percent = min(max(percent, self._connection.query_progress()), 100.0)
                progress(int(percent / 100 * size), size)
        except BaseException:
            self._connection.interrupt()
            worker.join()
            raise
        if failure:
            raise failure[0]
        progress(size, size)

    def _execute(self, query: str, parameters: Sequence[object] = ()) -> "duckdb.DuckDBPyConnection":
        try:
            return self._connection.execute(query, list(parameters))
        except self._error as error:
            raise TraceError(f"{self.file.name}: {_first_line(error)}") from error


def _spill_folder() -> str:
    """Create a folder that only this user can read, for data that exceeds memory.

    Return "" if no folder is writable.
    """
    try:
        return tempfile.mkdtemp(prefix="penstock-")
    except OSError:
        return ""


def _first_line(error: Exception) -> str:
    """Return the first line of an error, without the query that DuckDB appends."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def _discard(connection: "duckdb.DuckDBPyConnection", spill: str) -> None:
    connection.close()
    if spill:
        shutil.rmtree(spill, ignore_errors=True)


def _connect(file: TableFile, spill: str) -> "duckdb.DuckDBPyConnection":
    import duckdb  # noqa: PLC0415 - as above

    connection = duckdb.connect(
        ":memory:",
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": spill,
        },
    )
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = true")
    connection.execute("SET enable_progress_bar_print = false")
    connection.execute("SET progress_bar_time = 0")
    connection.execute("SET allowed_paths = ?", [[file.path, file.literal_path]])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection
