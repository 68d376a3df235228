"""Converts a trace table into requests with SQL that validates, sorts and links rows. The table may exceed memory."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.errors import TraceError
from penstock.workload.prefixes.tree import SegmentTree, grow_tree, join_chains, keep_rooted
from penstock.workload.recorded._database import ByteProgress, Database
from penstock.workload.recorded._lines import Lines, count_lines
from penstock.workload.recorded._table_file import TableFile
from penstock.workload.recorded.trace_formats import REQUIRED, TimeUnit, TraceFormat, recognise
from penstock.workload.requests import MAX_CLASSES, MAX_TOKENS, Int32s, Int64s

# Nanoseconds as 64-bit integers, so that no format's clock loses digits before the first arrival is subtracted.
_ARRIVAL_NS: Mapping[TimeUnit, str] = {
    "timestamp": "CASE WHEN isfinite(TRY_CAST(raw_arrival AS TIMESTAMPTZ)) "
    "THEN TRY_CAST(epoch_us(TRY_CAST(raw_arrival AS TIMESTAMPTZ))::HUGEINT * 1000 AS BIGINT) END",
    "ms": "TRY_CAST(round(TRY_CAST(raw_arrival AS DOUBLE) * 1e6) AS BIGINT)",
    "s": "TRY_CAST(round(TRY_CAST(raw_arrival AS DOUBLE) * 1e9) AS BIGINT)",
}
# Seconds since 1970 have ten digits, and more digits mean a finer clock: no trace spans three thousand years.
_ANY_NS = (
    "CASE WHEN TRY_CAST(raw_arrival AS DOUBLE) IS NULL THEN {timestamp} "
    "ELSE TRY_CAST(round(TRY_CAST(raw_arrival AS DOUBLE) * CASE WHEN TRY_CAST(raw_arrival AS DOUBLE) < 1e11 THEN 1e9 "
    "WHEN TRY_CAST(raw_arrival AS DOUBLE) < 1e14 THEN 1e6 WHEN TRY_CAST(raw_arrival AS DOUBLE) < 1e17 THEN 1e3 "
    "ELSE 1 END) AS BIGINT) END"
).format(timestamp=_ARRIVAL_NS["timestamp"])

# Optional columns, and the expression that reads each.
_OPTIONAL = {
    "hash_ids": "TRY_CAST(raw_hash_ids AS BIGINT[])",
    "class": "raw_class::VARCHAR",
    "session": "raw_session::VARCHAR",
    "prefix": "raw_prefix::VARCHAR",
    "prefix_tokens": "TRY_CAST(raw_prefix_tokens AS DOUBLE)",
}
_LINKS = ("session", "prefix", "prefix_tokens")

NO_TIME = "arrival is not a time"
FAILED = "no output tokens"
"""Reason for leaving out a request that got no answer. Such a request is real traffic, not an error in the file."""
SWALLOWED = "inside a quote that is not closed"

_NOT_WHOLE = "{0} IS NULL OR NOT isfinite({0}) OR {0} <> floor({0})"
_JUDGEMENTS = (
    (NO_TIME, "arrival_ns IS NULL"),
    ("arrival is before zero", "arrival_ns < 0"),
    ("input tokens are not a whole number", _NOT_WHOLE.format("input")),
    ("input tokens below zero", "input < 0"),
    ("no input tokens", "input < 1"),
    ("output tokens are not a whole number", _NOT_WHOLE.format("output")),
    ("output tokens below zero", "output < 0"),
    (FAILED, "output < 1"),
    ("more tokens than any context holds", f"greatest(input, output) > {MAX_TOKENS}"),
)
_JUDGEMENTS_OF_OPTIONAL = {
    "hash_ids": (
        "hash ids are not a list of whole numbers",
        "raw_hash_ids IS NOT NULL AND (hash_ids IS NULL OR list_aggregate(hash_ids, 'count') <> len(hash_ids))",
    ),
    "prefix_tokens": (
        "prefix tokens are not between 1 and the input tokens",
        f"prefix IS NOT NULL AND ({_NOT_WHOLE.format('prefix_tokens')} OR prefix_tokens < 1 OR prefix_tokens > input)",
    ),
}

_HINT_ROWS = 1000

_JUDGE = """
CREATE TABLE arrivals AS
WITH typed AS (
    SELECT *, row_number() OVER () AS line, {arrival_ns} AS arrival_ns, TRY_CAST(raw_input AS DOUBLE) AS input,
        TRY_CAST(raw_output AS DOUBLE) AS output{typed}
    FROM ({scan})
), judged AS (
    SELECT *, (CASE {cases} ELSE 0 END)::UTINYINT AS dropped FROM typed
)
SELECT arrival_ns, TRY_CAST(input AS INTEGER) AS input, TRY_CAST(output AS INTEGER) AS output, dropped{kept}
FROM judged ORDER BY dropped > 0, arrival_ns, line
"""

# A hash id identifies the prompt up to its end, so it must have one parent and one length to be consistent.
_HASHES = """
CREATE TABLE occurrences AS
SELECT n, id, place, coalesce(hash_ids[place - 1], -1) AS parent,
    least({block}, input - {block} * (place - 1)) AS tokens
FROM (
    SELECT rowid AS n, input, hash_ids, unnest(hash_ids) AS id, generate_subscripts(hash_ids, 1) AS place
    FROM arrivals WHERE dropped = 0
);
CREATE TABLE hashes AS
SELECT id, min(parent) AS parent, count(*) AS visits, min(tokens) AS tokens,
    id >= 0 AND min(tokens) >= 1 AND min(parent) = max(parent) AND min(tokens) = max(tokens) AS consistent
FROM occurrences GROUP BY id HAVING count(*) >= 2;
CREATE TABLE paths AS
SELECT coalesce(a.hash_ids[coalesce(c.first_unshared, len(a.hash_ids) + 1) - 1], -1) AS last, -1 AS own
FROM arrivals a LEFT JOIN (
    SELECT o.n, min(CASE WHEN h.consistent THEN NULL ELSE o.place END) AS first_unshared
    FROM occurrences o LEFT JOIN hashes h USING (id) GROUP BY o.n
) c ON c.n = a.rowid WHERE a.dropped = 0 ORDER BY a.rowid;
DROP TABLE occurrences;
ALTER TABLE arrivals DROP hash_ids;
"""

# A turn continues the previous turn of its session if its prompt is long enough for that prompt and its answer. The id
# of a prefix segment is its number. The id of a turn's segment is its row number plus the number of prefixes.
_TURNS = """
CREATE TABLE prefix_segments AS
SELECT prefix, min(prefix_tokens)::INTEGER AS tokens, row_number() OVER (ORDER BY min(rowid)) - 1 AS segment
FROM arrivals WHERE dropped = 0 AND prefix IS NOT NULL GROUP BY prefix HAVING count(*) >= 2;
CREATE TABLE paths AS
WITH rows AS (
    SELECT a.rowid AS n, a.session, a.input, a.input + a.output AS total, a.prefix, p.segment AS prefix_segment,
        coalesce(p.tokens, 0) AS prefix_tokens, (SELECT count(*) FROM prefix_segments) AS prefixes
    FROM arrivals a LEFT JOIN prefix_segments p USING (prefix) WHERE a.dropped = 0
), turns AS (
    SELECT *, lag(n) OVER turn AS before, lag(total) OVER turn AS history,
        input >= lag(total) OVER turn AND prefix IS NOT DISTINCT FROM lag(prefix) OVER turn AS continues,
        lead(input) OVER turn >= total AND prefix IS NOT DISTINCT FROM lead(prefix) OVER turn AS continued
    FROM rows WHERE session IS NOT NULL WINDOW turn AS (PARTITION BY session ORDER BY n)
), linked AS (
    SELECT n, CASE WHEN continues THEN prefixes + before ELSE prefix_segment END AS last,
        CASE WHEN continued THEN prefixes + n END AS own,
        total - CASE WHEN continues THEN history ELSE prefix_tokens END AS tokens
    FROM turns
    UNION ALL SELECT n, prefix_segment, NULL, NULL FROM rows WHERE session IS NULL
)
SELECT coalesce(last, -1) AS last, coalesce(own, -1) AS own, tokens FROM linked ORDER BY n;
ALTER TABLE arrivals DROP session;
ALTER TABLE arrivals DROP prefix;
ALTER TABLE arrivals DROP prefix_tokens;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """Summary of the ingested tables `arrivals` and `paths`; `paths` exists only if prompts share segments."""

    format: TraceFormat
    requests: int
    first_ns: int
    last_ns: int
    dropped: Mapping[str, int]
    class_counts: Mapping[str, int] | None
    """Number of requests by class; None if the table has no classes."""
    tree: SegmentTree | None
    segment_of_id: "SegmentMap | None"
    contradictions: int
    time_hint: str
    """Suggestion for the user if arrival times could not be parsed; otherwise empty."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SegmentMap:
    """A map from ids in the trace file to segments. Ids are ascending."""

    ids: Int64s
    segments: Int32s

    def of(self, ids: Int64s) -> Int32s:
        """Return the segment of each id; -1 for the id -1. Every other id must be in the map."""
        if not len(self.ids):
            return np.full(len(ids), -1, np.int32)
        found = self.segments[np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)]
        return np.where(ids >= 0, found, -1).astype(np.int32)


def ingest(database: Database, progress: ByteProgress | None, named: Mapping[str, str] | None = None) -> Ingested:
    """Read the trace file once into sorted tables."""
    file = database.file
    columns = file.columns
    if columns is None:
        columns = database.names("SELECT * FROM read_parquet(?) LIMIT 0", [file.literal_path])
    known = recognise(columns, file.name, named)
    # The first JSON object need not have the columns of later ones.
    optional = _optional(known, set(known.columns.values()) if file.container == "jsonl" else set(columns))
    dropped = _judge(database, known, columns, optional, progress)
    kept, first, last = database.row(
        "SELECT count(*), min(arrival_ns), max(arrival_ns) FROM arrivals WHERE dropped = 0"
    )
    hint = _time_hint(database, known, columns) if NO_TIME in dropped else ""
    if not kept:
        counted = "; ".join(f"{count:,} x {reason}" for reason, count in dropped.items()) or "it has no rows"
        raise TraceError(f"{file.name}: no request can be used: {counted}{hint}")
    tree, segment_of_id, contradictions = None, None, 0
    if "hash_ids" in optional and _any(database, "hash_ids"):
        tree, segment_of_id, contradictions = _hash_tree(database, known.hash_block_tokens)
    elif "session" in optional and _any(database, "session", "prefix"):
        tree, segment_of_id = _turn_tree(database)
    return Ingested(
        format=known,
        requests=kept,
        first_ns=first,
        last_ns=last,
        dropped=dropped,
        class_counts=_class_counts(database) if "class" in optional and _any(database, "class") else None,
        tree=tree,
        segment_of_id=segment_of_id,
        contradictions=contradictions,
        time_hint=hint,
    )


def _optional(known: TraceFormat, present: Collection[str]) -> tuple[str, ...]:
    """Return the optional columns to keep. If a column that links requests is kept, all such columns are kept."""
    there = {name for name, column in known.columns.items() if column in present}
    if there & {"session", "prefix"}:
        there |= set(_LINKS)
    return tuple(name for name in _OPTIONAL if name in there)


def _judge(
    database: Database,
    known: TraceFormat,
    columns: Sequence[str],
    optional: Sequence[str],
    progress: ByteProgress | None,
) -> dict[str, int]:
    """Read, validate and sort every row. Map each reason for leaving rows out to the number of such rows."""
    file = database.file
    lines = count_lines(file) if file.container == "csv" else Lines(mixed_ends=False, written=None)
    judgements = [
        *_JUDGEMENTS,
        *(_JUDGEMENTS_OF_OPTIONAL[name] for name in optional if name in _JUDGEMENTS_OF_OPTIONAL),
    ]
    query = _JUDGE.format(
        arrival_ns=_ANY_NS if known.arrival_unit == "any" else _ARRIVAL_NS[known.arrival_unit],
        typed="".join(f", {_OPTIONAL[name]} AS {name}" for name in optional),
        kept="".join(f", {name}" for name in optional) + ("" if lines.written is None else ", breaks"),
        cases=" ".join(f"WHEN {when} THEN {code}" for code, (_, when) in enumerate(judgements, start=1)),
        scan=_scan(file, lines, columns, {name: known.columns.get(name) for name in (*REQUIRED, *optional)}),
    )
    if progress is None:
        database.run(query, [file.literal_path])
    else:
        database.watch(query, [file.literal_path], progress)
    rows = database.rows("SELECT dropped, count(*) FROM arrivals WHERE dropped > 0 GROUP BY dropped ORDER BY 2 DESC, 1")
    counts = {judgements[code - 1][0]: int(count) for code, count in rows}
    return counts | (_lost_lines(database, lines) if file.container == "csv" else {})


def _lost_lines(database: Database, lines: Lines) -> dict[str, int]:
    """Count the lines of a CSV file that did not become a row, by reason.

    A lost line is malformed, or an unclosed quote made it part of a field of another row.
    """
    (malformed,) = database.row("SELECT count(DISTINCT line) FROM reject_errors")
    counts = {"malformed line": int(malformed)}
    if lines.written is not None:
        # A field of a kept row may contain line breaks of its own.
        (rows, breaks) = database.row("SELECT count(*), coalesce(sum(breaks) FILTER (dropped = 0), 0) FROM arrivals")
        counts[SWALLOWED] = lines.written - 1 - rows - int(breaks) - malformed
        database.run("ALTER TABLE arrivals DROP breaks")
    return {reason: count for reason, count in counts.items() if count > 0}


def _time_hint(database: Database, known: TraceFormat, columns: Sequence[str]) -> str:
    """Suggest how to read arrival times that the layout cannot parse: dates, or a unit finer than seconds."""
    if known.arrival_unit == "any":
        return ""
    column = known.columns["arrival"]
    scan = _scan(database.file, Lines(mixed_ends=True, written=None), columns, {"arrival": column})
    counted = "count({}) FROM (SELECT raw_arrival FROM ({}) LIMIT {})"
    tried = database.rows(
        f"SELECT {counted.format(_ANY_NS, scan, _HINT_ROWS)}",
        [database.file.literal_path],
    )
    return f"; dates and milliseconds are read with --columns arrival={column},unit=any" if tried[0][0] else ""


def _scan(file: TableFile, lines: Lines, columns: Sequence[str], wanted: Mapping[str, str | None]) -> str:
    """Return the SQL that reads the wanted columns as `raw_...`; an absent column is null.

    The path is a bound parameter, and no text of the file becomes part of the query. Columns of a CSV file are named by
    number, and columns of other files by the names in `trace_formats`.
    """
    compression = "gzip" if file.gzipped else "uncompressed"
    present = {column for column in wanted.values() if column is not None and column in columns}
    if file.container == "csv":
        types = ", ".join(f"'c{index}': 'VARCHAR'" for index in range(len(columns)))
        source = (
            f"read_csv(?, columns = {{{types}}}, auto_detect = false, skip = {file.blank_lines}, header = true, "
            f"delim = ',', quote = '\"', escape = '\"', compression = '{compression}', store_rejects = true"
            f"{', strict_mode = false' if lines.mixed_ends else ''})"
        )
        names = {column: f"c{columns.index(column)}" for column in present}
    elif file.container == "jsonl":
        present = {column for column in wanted.values() if column is not None}
        types = ", ".join(f"'{column}': 'VARCHAR'" for column in sorted(present))
        source = (
            f"read_json(?, columns = {{{types}}}, format = 'newline_delimited', compression = '{compression}', "
            "ignore_errors = true)"
        )
        names = {column: f'"{column}"' for column in present}
    else:
        source, names = "read_parquet(?)", {column: f'"{column}"' for column in present}
    picked = ", ".join(f"{names.get(column or '', 'NULL')} AS raw_{name}" for name, column in wanted.items())
    if lines.written is not None:
        breaks = (f"coalesce(len(regexp_extract_all(c{index}, '[\\r\\n]\\s*')), 0)" for index in range(len(columns)))
        picked += f", {' + '.join(breaks)} AS breaks"
    return f"SELECT {picked} FROM {source}"  # noqa: S608 - see above


def _any(database: Database, *names: str) -> bool:
    counted = " + ".join(f"count({name})" for name in names)
    (count,) = database.row(f"SELECT {counted} FROM arrivals WHERE dropped = 0")  # noqa: S608 - names from this module
    return bool(count)


def _class_counts(database: Database) -> dict[str, int]:
    (distinct,) = database.row("SELECT count(DISTINCT coalesce(class, '')) FROM arrivals WHERE dropped = 0")
    if distinct > MAX_CLASSES:
        raise TraceError(
            f"{database.file.name}: the trace has {distinct:,} classes, but at most {MAX_CLASSES} are supported; use "
            "one class per SLO, not per user"
        )
    rows = database.rows(
        "SELECT coalesce(class, '') AS name, count(*) FROM arrivals WHERE dropped = 0 GROUP BY name ORDER BY name"
    )
    return {str(name): int(count) for name, count in rows}


def _hash_tree(database: Database, block_tokens: int) -> tuple[SegmentTree, SegmentMap, int]:
    """Build the tree of shared prompt blocks.

    The tree takes about 40 bytes of memory per hash id seen at least twice.
    """
    database.run(_HASHES.format(block=int(block_tokens)))
    (contradictions,) = database.row("SELECT count(*) FROM hashes WHERE NOT consistent")
    columns = database.columns("SELECT id, parent, visits, tokens FROM hashes WHERE consistent ORDER BY id")
    # A descendant of an inconsistent id has no path to a root, so no prompt reaches it.
    ids, parent, kept = keep_rooted(columns["id"].astype(np.int64), columns["parent"].astype(np.int64))
    tokens, visits = columns["tokens"].astype(np.int64)[kept], columns["visits"].astype(np.int64)[kept]
    tree, segments = join_chains(parent, tokens, visits)
    return tree, SegmentMap(ids=ids, segments=segments), contradictions


def _turn_tree(database: Database) -> tuple[SegmentTree, SegmentMap]:
    """Build the tree of shared prefixes and continued turns. The tree takes 24 bytes of memory per prefix or turn."""
    database.run(_TURNS)
    prefixes = database.columns("SELECT tokens FROM prefix_segments ORDER BY segment")["tokens"]
    turns = database.columns("SELECT own, last, tokens FROM paths WHERE own >= 0 ORDER BY own")
    ids = np.concatenate([np.arange(len(prefixes)), turns["own"]]).astype(np.int64)
    segment_of_id = SegmentMap(ids=ids, segments=np.arange(len(ids), dtype=np.int32))
    parent = np.concatenate([np.full(len(prefixes), -1, np.int32), segment_of_id.of(turns["last"].astype(np.int64))])
    tree = grow_tree(parent, np.concatenate([prefixes, turns["tokens"]]).astype(np.int32))
    return tree, segment_of_id
