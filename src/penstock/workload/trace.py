"""What was really asked? Public traces and your own, read from CSV, JSONL or Parquet in bounded memory.

The layout is recognised from the columns: the Azure LLM inference traces of 2023 and 2024, Mooncake with its prefix
hashes, BurstGPT, or the plain schema:

    arrival_s       seconds, from any origin                           required
    input_tokens    tokens of the prompt, at least 1                   required
    output_tokens   tokens generated, at least 1                       required
    class           which promise the request is served under          optional, any text
    session         turns of one conversation have the same            optional, any text
    prefix          requests with the same begin with the same text    optional, any text
    prefix_tokens   how long that text is; the shortest one counts     required with prefix

A turn continues the turn before it in its session (same prefix) when its prompt is at least as long as that prompt and
its answer together; else the history was cut and only the prefix is shared. Rows may be in any order. A row that
cannot be used is counted under its reason and left out. Blocks of a Mooncake prompt are shared when their hash id is
seen at least twice; the trace does not hash answers, so what a reply adds to the cache is not known from it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.workload._ingest import Ingested, ingest
from penstock.workload._table import Progress, open_table
from penstock.workload.errors import TraceError
from penstock.workload.formats import recognise
from penstock.workload.randomness import NATIVE_BLOCK
from penstock.workload.requests import Int32s, Prefixes, Requests
from penstock.workload.slo import SloClass

if TYPE_CHECKING:
    import duckdb

_MAX_CLASSES = 256
_NS = 1e9


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """A recording on disk, sorted and checked; blocks are read from it as often as needed."""

    name: str
    format: str
    source: str
    classes: tuple[SloClass, ...]
    dropped: Mapping[str, int]
    """Rows left out, by reason."""
    contradictions: int
    """Hash ids seen after different prompts, or with different lengths; prompts are not called shared from there on."""
    _rows: Ingested = field(repr=False)
    _connection: "duckdb.DuckDBPyConnection" = field(repr=False)

    @property
    def requests(self) -> int:
        """How many can be used."""
        return self._rows.requests

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return (self._rows.last_ns - self._rows.first_ns) / _NS

    @property
    def segment_tokens(self) -> Int32s | None:
        """Length of every segment that prompts share; None where the trace does not say."""
        return None if self._rows.tree is None else self._rows.tree.tokens

    def blocks(self) -> Iterator[Requests]:
        """Yield the requests in order of arrival, the first at 0 s."""
        cursor = self._connection.cursor()
        try:
            for start in range(0, self.requests, NATIVE_BLOCK):
                yield self._block(cursor, start, min(start + NATIVE_BLOCK, self.requests))
        finally:
            cursor.close()

    def _block(self, cursor: "duckdb.DuckDBPyConnection", start: int, stop: int) -> Requests:
        columns = cursor.execute(
            "SELECT arrival_ns, input, output, list_position(?::VARCHAR[], coalesce(class, '')) - 1 AS class "
            "FROM arrivals WHERE rowid >= ? AND rowid < ?",
            [list(self._rows.class_counts), start, stop],
        ).fetchnumpy()
        return Requests(
            arrival_s=(columns["arrival_ns"].astype(np.int64) - self._rows.first_ns) / _NS,
            input_tokens=columns["input"].astype(np.int32),
            output_tokens=columns["output"].astype(np.int32),
            slo_class=columns["class"].astype(np.uint8),
            prefixes=self._prefixes(cursor, start, stop),
        )

    def _prefixes(self, cursor: "duckdb.DuckDBPyConnection", start: int, stop: int) -> Prefixes | None:
        tree, segment_of_id = self._rows.tree, self._rows.segment_of_id
        if tree is None:
            return None
        columns = cursor.execute(
            "SELECT last, own FROM paths WHERE rowid >= ? AND rowid < ?", [start, stop]
        ).fetchnumpy()
        last = columns["last"].astype(np.int64)
        return tree.prefixes(
            last.astype(np.int32) if segment_of_id is None else segment_of_id.of(last), columns["own"].astype(np.int32)
        )


def read_trace(path: Path, *, progress: Progress | None = None) -> Trace:
    """Read a trace; `progress` is told the bytes done and the bytes in all.

    Rows are kept in a private database that grows onto disk beyond a gigabyte. What must fit memory is the tree of
    shared segments alone.
    """
    file, connection = open_table(path)
    known = recognise(file.columns, file.name)
    rows = ingest(connection, file, known, progress)
    counts = rows.class_counts
    if len(counts) > _MAX_CLASSES:
        raise TraceError(f"{file.name}: more than {_MAX_CLASSES} classes; a class is a kind of promise, not a user")
    named = counts if set(counts) != {""} else {}
    return Trace(
        name=path.stem,
        format=known.name,
        source=known.source,
        classes=tuple(
            SloClass(name=name or "unnamed", share_fraction=count / rows.requests) for name, count in named.items()
        ),
        dropped=rows.dropped,
        contradictions=rows.contradictions,
        _rows=rows,
        _connection=connection,
    )
