"""What was really asked? Public traces and your own, read from CSV, JSONL or Parquet in bounded memory.

The layout is recognised from the columns: the Azure LLM inference traces of 2023 and 2024, Mooncake with its prefix
hashes, BurstGPT, or the plain schema; columns that other tools write are guessed, or named by whoever reads it:

    arrival_s       seconds, 0 or more, from any origin                required
    input_tokens    tokens of the prompt, at least 1                   required
    output_tokens   tokens generated, at least 1                       required
    class           which promise the request is served under          optional, any text
    session         turns of one conversation have the same            optional, any text
    prefix          requests with the same begin with the same text    optional, any text
    prefix_tokens   how long that text is; the shortest one counts     required with prefix

A turn continues the turn before it in its session (same prefix) when its prompt is at least as long as that prompt and
its answer together; else the history was cut and only the prefix is shared. Rows may be in any order. A row that
cannot be used is counted under its reason and left out, and so are lines that a quote nobody closes made part of
another row; whoever works with the trace refuses it where that is more than one in a hundred (`require_whole`).
Blocks of a Mooncake prompt are shared when their hash id is seen at least twice; an id that follows different ids, or
has different lengths, ends the path before it and is counted. The trace does not hash answers, so what a reply adds to
the cache is not known from it.
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
"""Of a trace's rows: beyond it the rest need not be what was asked for."""
_NS = 1e9


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """A recording on disk, sorted and checked; blocks are read from it as often as needed."""

    name: str
    classes: tuple[SloClass, ...]
    """Named in the trace, with the shares they have there and nothing promised."""
    _rows: Ingested = field(repr=False)
    _database: Database = field(repr=False)

    @property
    def format(self) -> str:
        """Whose layout it has."""
        return self._rows.format.name

    @property
    def source(self) -> str:
        """What to cite."""
        return self._rows.format.source

    @property
    def mapping(self) -> Mapping[str, str]:
        """Which column was read as what; empty where the layout is a known one."""
        return self._rows.format.columns if self._rows.format.mapped else {}

    @property
    def requests(self) -> int:
        """How many can be used."""
        return self._rows.requests

    @property
    def dropped(self) -> Mapping[str, int]:
        """Rows left out, by reason."""
        return self._rows.dropped

    @property
    def time_hint(self) -> str:
        """What to try where arrivals could not be read as times; else empty."""
        return self._rows.time_hint

    @property
    def contradictions(self) -> int:
        """Hash ids seen after different prompts, or with different lengths; what is shared ends before them."""
        return self._rows.contradictions

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


def kept_rows(kept: int, dropped: Mapping[str, int]) -> str:
    """Say how many rows of a trace can be used, and why others cannot."""
    counted = ", ".join(f"{count:,} ({reason})" for reason, count in dropped.items())
    return f"{kept:,} of {kept + sum(dropped.values()):,} can be used" + (f"; left out: {counted}" if counted else "")


def require_whole(trace: Trace) -> None:
    """Refuse a trace of which more than a few rows could not be read; requests that failed are no fault of it."""
    unreadable = sum(count for reason, count in trace.dropped.items() if reason != FAILED)
    if unreadable > MAX_UNREADABLE_FRACTION * (trace.requests + sum(trace.dropped.values())):
        said = kept_rows(trace.requests, trace.dropped)
        raise TraceError(
            f"{trace.name} rows: {said}{trace.time_hint}; more than {MAX_UNREADABLE_FRACTION:.0%} lost is no trace of "
            "what was asked: mend or remove those rows"
        )


def read_trace(path: Path, *, progress: ByteProgress | None = None, columns: Mapping[str, str] | None = None) -> Trace:
    """Read a trace; `progress` is told the bytes done and the bytes in all.

    `columns` says which column is arrival, input and output where they have names of their own.

    Rows are kept in a private database that grows onto disk beyond a gigabyte. What must fit memory is the tree of
    shared segments alone.
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
