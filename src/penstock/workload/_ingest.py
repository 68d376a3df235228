"""How does a table become requests? SQL that judges, sorts and links the rows, larger than memory where it must be."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from penstock.workload._table import Progress, TableFile, run, scan_sql
from penstock.workload.errors import TraceError
from penstock.workload.formats import TimeUnit, TraceFormat
from penstock.workload.requests import MAX_TOKENS, Int32s, Int64s
from penstock.workload.tree import SegmentTree, grow_tree, join_chains

if TYPE_CHECKING:
    import duckdb

# Nanoseconds as 64-bit integers, so that no format's clock loses digits before the first arrival is subtracted.
_ARRIVAL_NS: Mapping[TimeUnit, str] = {
    "timestamp": "CASE WHEN isfinite(TRY_CAST(w0 AS TIMESTAMPTZ)) "
    "THEN TRY_CAST(epoch_us(TRY_CAST(w0 AS TIMESTAMPTZ))::HUGEINT * 1000 AS BIGINT) END",
    "ms": "TRY_CAST(round(TRY_CAST(w0 AS DOUBLE) * 1e6) AS BIGINT)",
    "s": "TRY_CAST(round(TRY_CAST(w0 AS DOUBLE) * 1e9) AS BIGINT)",
}

_JUDGE = """
CREATE TABLE arrivals AS
WITH raw AS (
    SELECT row_number() OVER () AS line, {arrival_ns} AS arrival_ns, TRY_CAST(w1 AS DOUBLE) AS input,
        TRY_CAST(w2 AS DOUBLE) AS output, TRY_CAST(w3 AS BIGINT[]) AS hash_ids, w4 AS class, w5 AS session,
        w6 AS prefix, TRY_CAST(w7 AS DOUBLE) AS prefix_tokens,
        w3 IS NOT NULL AND (hash_ids IS NULL OR list_aggregate(hash_ids, 'count') <> len(hash_ids))
            AS bad_hashes
    FROM ({scan})
), judged AS (
    SELECT *, CASE
        WHEN arrival_ns IS NULL THEN 'arrival is not a time'
        WHEN arrival_ns < 0 THEN 'arrival is before zero'
        WHEN input IS NULL OR NOT isfinite(input) OR input <> floor(input) THEN 'input tokens are not a whole number'
        WHEN input < 1 THEN 'no input tokens'
        WHEN output IS NULL OR NOT isfinite(output) OR output <> floor(output)
            THEN 'output tokens are not a whole number'
        WHEN output < 1 THEN 'no output tokens'
        WHEN greatest(input, output) > {max_tokens} THEN 'more tokens than any context holds'
        WHEN bad_hashes THEN 'hash ids are not a list of whole numbers'
        WHEN prefix IS NOT NULL AND coalesce(prefix_tokens < 1 OR prefix_tokens > input
            OR prefix_tokens <> floor(prefix_tokens), true) THEN 'prefix tokens are not between 1 and the input tokens'
    END AS dropped FROM raw
)
SELECT arrival_ns, TRY_CAST(input AS INTEGER) AS input, TRY_CAST(output AS INTEGER) AS output, hash_ids, class, session,
    prefix, TRY_CAST(prefix_tokens AS INTEGER) AS prefix_tokens, dropped
FROM judged ORDER BY dropped IS NOT NULL, arrival_ns, line
"""

# A hash id stands for the prompt up to its end, so it has one parent and one length, or it is not what it claims to be.
_HASHES = """
CREATE TABLE occurrences AS
SELECT rowid AS n, unnest(hash_ids) AS id, generate_subscripts(hash_ids, 1) AS place
FROM arrivals WHERE dropped IS NULL;
CREATE TABLE hashes AS
SELECT o.id, min(coalesce(a.hash_ids[o.place - 1], -1)) AS parent, count(*) AS visits,
    min(least({block}, a.input - {block} * (o.place - 1))) AS tokens,
    o.id >= 0 AND min(coalesce(a.hash_ids[o.place - 1], -1)) = max(coalesce(a.hash_ids[o.place - 1], -1))
        AND tokens >= 1 AND tokens = max(least({block}, a.input - {block} * (o.place - 1))) AS consistent
FROM occurrences o JOIN arrivals a ON a.rowid = o.n GROUP BY o.id HAVING count(*) >= 2;
CREATE TABLE paths AS
SELECT coalesce(a.hash_ids[coalesce(c.first_unshared, len(a.hash_ids) + 1) - 1], -1) AS last, -1 AS own
FROM arrivals a LEFT JOIN (
    SELECT o.n, min(CASE WHEN h.consistent THEN NULL ELSE o.place END) AS first_unshared
    FROM occurrences o LEFT JOIN hashes h USING (id) GROUP BY o.n
) c ON c.n = a.rowid WHERE a.dropped IS NULL ORDER BY a.rowid;
DROP TABLE occurrences;
"""

# A turn continues the one before it in its session when its prompt has room for that prompt and its answer.
_TURNS = """
CREATE TABLE prefix_segments AS
SELECT prefix, min(prefix_tokens) AS tokens, row_number() OVER (ORDER BY min(rowid)) - 1 AS segment
FROM arrivals WHERE dropped IS NULL AND prefix IS NOT NULL GROUP BY prefix HAVING count(*) >= 2;
CREATE TABLE turns AS
WITH linked AS (
    SELECT a.rowid AS n, a.session, a.input + a.output AS total, p.segment AS prefix_segment, p.tokens AS prefix_tokens,
        lag(a.input + a.output) OVER turn AS before,
        a.session IS NOT NULL AND coalesce(a.input >= lag(a.input + a.output) OVER turn, false)
            AND a.prefix IS NOT DISTINCT FROM lag(a.prefix) OVER turn AS continues
    FROM arrivals a LEFT JOIN prefix_segments p USING (prefix) WHERE a.dropped IS NULL
    WINDOW turn AS (PARTITION BY a.session ORDER BY a.rowid)
), continued AS (
    SELECT *, coalesce(lead(continues) OVER (PARTITION BY session ORDER BY n), false) AS continued FROM linked
), owned AS (
    SELECT *, CASE WHEN continued THEN (SELECT count(*) FROM prefix_segments) - 1
        + count(*) FILTER (WHERE continued) OVER (ORDER BY n ROWS UNBOUNDED PRECEDING) END AS own FROM continued
)
SELECT n, own, CASE WHEN continues THEN lag(own) OVER (PARTITION BY session ORDER BY n) ELSE prefix_segment END AS last,
    total - CASE WHEN continues THEN before ELSE coalesce(prefix_tokens, 0) END AS tokens
FROM owned;
CREATE TABLE paths AS SELECT coalesce(last, -1) AS last, coalesce(own, -1) AS own FROM turns ORDER BY n;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What the tables of a connection hold once a file is in them."""

    requests: int
    first_ns: int
    last_ns: int
    dropped: Mapping[str, int]
    class_counts: Mapping[str, int]
    tree: SegmentTree | None
    segment_of_id: "SegmentMap | None"
    contradictions: int
    """Hash ids that follow different parents or have different lengths; paths end before them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SegmentMap:
    """Which segment a hash id became part of."""

    ids: Int64s
    segments: Int32s

    def of(self, ids: Int64s) -> Int32s:
        """Look up ids that are all known, or -1."""
        if not len(self.ids):
            return np.full(len(ids), -1, np.int32)
        found = self.segments[np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)]
        return np.where(ids >= 0, found, -1).astype(np.int32)


def ingest(
    connection: "duckdb.DuckDBPyConnection", file: TableFile, known: TraceFormat, progress: Progress | None
) -> Ingested:
    """Read the file once into sorted tables `arrivals` and, where prompts share, `paths` in the same order."""
    wanted = (*known.required, known.hash_ids, known.slo_class, known.session, known.prefix, known.prefix_tokens)
    query = _JUDGE.format(
        arrival_ns=_ARRIVAL_NS[known.arrival_unit], max_tokens=MAX_TOKENS, scan=scan_sql(file, wanted)
    )
    run(connection, query, file, progress)
    dropped = _dropped(connection, file)
    kept, first, last, hashed, linked = _one(
        connection,
        "SELECT count(*), min(arrival_ns), max(arrival_ns), count(hash_ids), count(session) + count(prefix) "
        "FROM arrivals WHERE dropped IS NULL",
    )
    if not kept:
        reasons = "; ".join(f"{count:,} x {reason}" for reason, count in dropped.items()) or "it has no rows"
        raise TraceError(f"{file.name}: no request to be used: {reasons}")
    tree, segment_of_id, contradictions = None, None, 0
    if hashed:
        tree, segment_of_id, contradictions = _hash_tree(connection, known.hash_block_tokens)
    elif linked:
        tree = _turn_tree(connection)
    return Ingested(
        requests=kept,
        first_ns=first,
        last_ns=last,
        dropped=dropped,
        class_counts=_class_counts(connection),
        tree=tree,
        segment_of_id=segment_of_id,
        contradictions=contradictions,
    )


def _dropped(connection: "duckdb.DuckDBPyConnection", file: TableFile) -> dict[str, int]:
    rows = connection.execute(
        "SELECT dropped, count(*) FROM arrivals WHERE dropped IS NOT NULL GROUP BY dropped ORDER BY 2 DESC, 1"
    ).fetchall()
    counts = {str(reason): int(count) for reason, count in rows}
    if file.container == "csv":
        (malformed,) = _one(connection, "SELECT count(DISTINCT line) FROM reject_errors")
        if malformed:
            counts["malformed line"] = malformed
    return counts


def _class_counts(connection: "duckdb.DuckDBPyConnection") -> dict[str, int]:
    rows = connection.execute(
        "SELECT class, count(*) FROM (SELECT coalesce(class, '') AS class FROM arrivals WHERE dropped IS NULL) "
        "GROUP BY class ORDER BY class LIMIT 257"
    ).fetchall()
    return {str(name): int(count) for name, count in rows}


def _hash_tree(connection: "duckdb.DuckDBPyConnection", block_tokens: int) -> tuple[SegmentTree, SegmentMap, int]:
    """Build the tree of shared blocks; it is held in memory, about 40 bytes for each id seen at least twice."""
    connection.execute(_HASHES.format(block=int(block_tokens)))
    (contradictions,) = _one(connection, "SELECT count(*) FROM hashes WHERE NOT consistent")
    # Only what hangs together from a root is a path: an id under one that contradicts itself is never reached.
    columns = _columns(
        connection,
        """WITH RECURSIVE reached AS (
            SELECT id, parent, visits, tokens FROM hashes WHERE consistent AND parent = -1
            UNION ALL
            SELECT h.id, h.parent, h.visits, h.tokens FROM hashes h JOIN reached r ON h.parent = r.id
            WHERE h.consistent
        ) SELECT * FROM reached ORDER BY id""",
    )
    ids = columns["id"].astype(np.int64)
    parent = np.where(columns["parent"] >= 0, np.searchsorted(ids, columns["parent"]), -1).astype(np.int32)
    tree, segments = join_chains(parent, columns["tokens"].astype(np.int64), columns["visits"].astype(np.int64))
    return tree, SegmentMap(ids=ids, segments=segments), contradictions


def _turn_tree(connection: "duckdb.DuckDBPyConnection") -> SegmentTree:
    """Build the tree of shared prefixes and continued turns; it is held in memory, 12 bytes for each."""
    connection.execute(_TURNS)
    prefixes = _columns(connection, "SELECT tokens FROM prefix_segments ORDER BY segment")
    turns = _columns(
        connection, "SELECT coalesce(last, -1) AS parent, tokens FROM turns WHERE own IS NOT NULL ORDER BY own"
    )
    connection.execute("DROP TABLE turns")
    roots = np.full(len(prefixes["tokens"]), -1, np.int32)
    return grow_tree(
        np.concatenate([roots, turns["parent"].astype(np.int32)]),
        np.concatenate([prefixes["tokens"], turns["tokens"]]).astype(np.int32),
    )


def _columns(connection: "duckdb.DuckDBPyConnection", query: str) -> dict[str, NDArray[Any]]:
    columns: dict[str, NDArray[Any]] = connection.execute(query).fetchnumpy()
    return columns


def _one(connection: "duckdb.DuckDBPyConnection", query: str) -> tuple[int, ...]:
    row = connection.execute(query).fetchone()
    return tuple(row or ())
