"""Reads public traces and your own traces from CSV, JSONL or Parquet files in bounded memory.

The layout of a trace is recognised from its columns: the Azure LLM inference traces of 2023 and 2024, Mooncake with its
prefix hashes, BurstGPT, or the plain schema below. In files of other
tools, the meaning of a column is guessed from its name, or the user states it.

    arrival_s       seconds, 0 or more, from any origin                required
    input_tokens    tokens of the prompt, at least 1                   required
    output_tokens   tokens generated, at least 1                       required
    class           SLO class of the request                           optional, any text
    session         conversation; its turns have the same value        optional, any text
    prefix          requests with the same value share a first part    optional, any text
    prefix_tokens   length of that part; the shortest value is used    required with prefix

A turn continues the previous turn of its session with the same prefix if its prompt is at least as long as the previous
prompt plus the previous answer. Otherwise the turn shares only the prefix, because the conversation's history was cut.
Rows may be in any order. Unusable rows are left out and counted by reason, and so are lines that an unclosed quote made
part of another row. `require_whole` rejects a trace if more than 1% of its rows are lost.

Blocks of a Mooncake prompt are shared if their hash id occurs at least twice. If a hash id follows different ids in
different prompts, or has different lengths, the shared path ends before this id, and the id is counted as a
contradiction. The trace does not hash answers, so the tokens that a reply adds to the cache are unknown.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from penstock.errors import TraceError
from penstock.workload.randomness import NATIVE_BLOCK
from penstock.workload.recorded._database import ByteProgress, Database
from penstock.workload.recorded._ingest import FAILED, Ingested, ingest
from penstock.workload.recorded._table_file import look_at
from penstock.workload.requests import Int32s, Prefixes, Requests
from penstock.workload.slo import SloClass

MAX_UNREADABLE_FRACTION: Final = 0.01
"""Maximum share of unreadable rows; if more rows are unreadable, the remaining rows may not represent the traffic."""
_NS = 1e9


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """A recording on disk, sorted and checked. The blocks of requests can be read repeatedly."""

    name: str
    classes: tuple[SloClass, ...]
    """SLO classes named in the trace, with their shares of the requests; a trace states no limits for them."""
    _rows: Ingested = field(repr=False)
    _database: Database = field(repr=False)

    @property
    def format(self) -> str:
        """Name of the column layout."""
        return self._rows.format.name

    @property
    def source(self) -> str:
        """Citation."""
        return self._rows.format.source

    @property
    def mapping(self) -> Mapping[str, str]:
        """Maps meaning to column name; empty if the layout is known."""
        return self._rows.format.columns if self._rows.format.mapped else {}

    @property
    def requests(self) -> int:
        """Number of usable requests."""
        return self._rows.requests

    @property
    def dropped(self) -> Mapping[str, int]:
        """Maps each reason for leaving out rows to the number of such rows."""
        return self._rows.dropped

    @property
    def time_hint(self) -> str:
        """Suggestion for the user if arrival times could not be parsed; otherwise empty."""
        return self._rows.time_hint

    @property
    def contradictions(self) -> int:
        """Number of inconsistent hash ids: ids seen after different ids, or with different lengths.

        Shared paths end before such an id.
        """
        return self._rows.contradictions

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return (self._rows.last_ns - self._rows.first_ns) / _NS

    @property
    def segment_tokens(self) -> Int32s | None:
        """Length of every shared segment; None if the trace has no sharing information."""
        return None if self._rows.tree is None else self._rows.tree.tokens

    def blocks(self) -> Iterator[Requests]:
        """Yield the requests in order of arrival, the first at 0 s."""
        database = self._database.another()
        for start in range(0, self.requests, NATIVE_BLOCK):
            yield self._block(database, start, min(start + NATIVE_BLOCK, self.requests))

    def _block(self, database: Database, start: int, stop: int) -> Requests:
        names = self._rows.class_counts
        class_ = "0" if names is None else "list_position(?::VARCHAR[], coalesce(class, '')) - 1"
        columns = database.columns(
            f"SELECT arrival_ns, input, output, {class_} AS class FROM arrivals WHERE rowid >= ? AND rowid < ?",  # noqa: S608 - one of two texts above
            [*([] if names is None else [list(names)]), start, stop],
        )
        return Requests(
            arrival_s=(columns["arrival_ns"].astype(np.int64) - self._rows.first_ns) / _NS,
            input_tokens=columns["input"].astype(np.int32),
            output_tokens=columns["output"].astype(np.int32),
            slo_class=columns["class"].astype(np.uint8),
            prefixes=self._prefixes(database, start, stop),
        )

    def _prefixes(self, database: Database, start: int, stop: int) -> Prefixes | None:
        tree, segment_of_id = self._rows.tree, self._rows.segment_of_id
        if tree is None or segment_of_id is None:
            return None
        columns = database.columns("SELECT last, own FROM paths WHERE rowid >= ? AND rowid < ?", [start, stop])
        last, own = (segment_of_id.of(columns[name].astype(np.int64)) for name in ("last", "own"))
        return tree.prefixes(last, own)


def usable_rows_sentence(kept: int, dropped: Mapping[str, int]) -> str:
    """Return a sentence with the number of usable rows, and the number of rows left out for each reason."""
    counted = ", ".join(f"{count:,} ({reason})" for reason, count in dropped.items())
    return f"{kept:,} of {kept + sum(dropped.values()):,} can be used" + (f"; left out: {counted}" if counted else "")


def require_whole(trace: Trace) -> None:
    """Raise TraceError if more than 1% of the rows could not be read. Failed requests are not counted as unreadable."""
    unreadable = sum(count for reason, count in trace.dropped.items() if reason != FAILED)
    if unreadable > MAX_UNREADABLE_FRACTION * (trace.requests + sum(trace.dropped.values())):
        said = usable_rows_sentence(trace.requests, trace.dropped)
        raise TraceError(
            f"{trace.name} rows: {said}{trace.time_hint}; more than {MAX_UNREADABLE_FRACTION:.0%} of the rows cannot "
            "be used: fix or remove them"
        )


def read_trace(path: Path, *, progress: ByteProgress | None = None, columns: Mapping[str, str] | None = None) -> Trace:
    """Read a trace. `progress` is called with the bytes read so far and the total bytes.

    `columns` maps arrival, input and output to the file's column names, if these are not recognised. Rows are kept in a
    private database that spills to disk beyond a gigabyte. Only the tree of shared segments must fit in memory.
    """
    database = Database(look_at(path))
    rows = ingest(database, progress, columns)
    counts = rows.class_counts or {}
    return Trace(
        name=path.stem,
        classes=tuple(
            SloClass(name=name or "unnamed", share_fraction=count / rows.requests) for name, count in counts.items()
        ),
        _rows=rows,
        _database=database,
    )
