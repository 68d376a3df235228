"""Defines the known column layouts of traces. A layout is recognised by its columns, never by the file name."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from penstock.errors import TraceError, UsageError

TimeUnit = Literal["timestamp", "ms", "s", "any"]
"""Unit of arrival times. `any` is detected for each value: a date, or a number whose size implies s, ms, us or ns."""
REQUIRED = ("arrival", "input", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """The column layout of one kind of trace."""

    name: str
    columns: Mapping[str, str]
    """Maps meaning to column name; meanings are arrival, input, output, hash_ids, class, session, prefix and
    prefix_tokens."""
    arrival_unit: TimeUnit
    hash_block_tokens: int = 0
    """Number of prompt tokens per hash id; an id identifies a block of tokens together with all blocks before it."""
    source: str
    """Citation to show with any result from such a trace."""
    mapped: bool = False
    """Whether the layout is unknown, so that the user named the columns or Penstock guessed them; reports say so."""

    @property
    def required(self) -> tuple[str, ...]:
        """Columns that a file of this format must have."""
        return tuple(self.columns[name] for name in REQUIRED)


AZURE = TraceFormat(
    name="Azure LLM inference",
    columns={"arrival": "TIMESTAMP", "input": "ContextTokens", "output": "GeneratedTokens"},
    arrival_unit="timestamp",
    source="Azure LLM inference trace (2023: Splitwise, ISCA 2024; 2024: DynamoLLM, HPCA 2025), "
    "github.com/Azure/AzurePublicDataset, CC-BY 4.0",
)
MOONCAKE = TraceFormat(
    name="Mooncake",
    columns={"arrival": "timestamp", "input": "input_length", "output": "output_length", "hash_ids": "hash_ids"},
    arrival_unit="ms",
    hash_block_tokens=512,  # The trace's README: one id per block of 512 tokens, the last block may be shorter.
    source="Mooncake trace (FAST 2025), github.com/kvcache-ai/Mooncake, Apache-2.0",
)
BURSTGPT = TraceFormat(
    name="BurstGPT",
    columns={"arrival": "Timestamp", "input": "Request tokens", "output": "Response tokens"},
    arrival_unit="s",
    source="BurstGPT trace (arXiv:2401.17644), github.com/HPMLL/BurstGPT",
)
PLAIN = TraceFormat(
    name="plain",
    columns={
        "arrival": "arrival_s",
        "input": "input_tokens",
        "output": "output_tokens",
        "class": "class",
        "session": "session",
        "prefix": "prefix",
        "prefix_tokens": "prefix_tokens",
    },
    arrival_unit="s",
    source="a trace of your own",
)
FORMATS = (AZURE, MOONCAKE, BURSTGPT, PLAIN)


_MEANINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "arrival": (
        "arrivals",
        "arrivaltime",
        "arrival",
        "arrivedat",
        "arrivaltimestamp",
        "timestamp",
        "timestampms",
        "tsms",
        "arrivalms",
        "requesttime",
        "requesttimestamp",
        "requeststart",
        "starttime",
        "startedat",
        "createdat",
        "created",
        "time",
        "times",
        "ts",
        "date",
        "datetime",
    ),
    "input": (
        "inputtokens",
        "prompttokens",
        "numprompttokens",
        "numinputtokens",
        "numprefilltokens",
        "contexttokens",
        "requesttokens",
        "inputlength",
        "inputlen",
        "promptlength",
        "promptlen",
        "isl",
    ),
    "output": (
        "outputtokens",
        "completiontokens",
        "generatedtokens",
        "generationtokens",
        "numoutputtokens",
        "numgenerationtokens",
        "numdecodetokens",
        "responsetokens",
        "outputlength",
        "outputlen",
        "completionlength",
        "osl",
    ),
}
"""Maps meaning to the column names of servers, gateways and benchmarks, in lower case without spaces and dashes."""
_UNIT: Final = "unit"
_IN_MILLISECONDS: Final = re.compile(r"(?:[^A-Za-z]|^)(?:ms|millis|milliseconds)$|(?<=[a-z])Ms$", re.ASCII)
_MAX_CHARACTERS: Final = 500
_NOT_COMMAS: Final = (";", "\t", "|")


def recognise(columns: Collection[str], file_name: str, named: Mapping[str, str] | None = None) -> TraceFormat:
    """Return the known format whose required columns are present, or a format built from named or guessed columns."""
    found = _find_format(columns, file_name, named)
    if found is not None:
        twice = [column for column in found.columns.values() if list(columns).count(column) > 1]
        if twice:
            raise TraceError(
                f"{file_name}: two columns are named '{twice[0][:40]}'; rename the one that should not be read"
            )
        return found
    only = next(iter(columns), "")
    if len(columns) == 1 and (other := next((mark for mark in _NOT_COMMAS if mark in only), None)):
        shown = {"\t": "tabs"}.get(other, repr(other))
        raise TraceError(f"{file_name}: the columns are separated by {shown}; separate them by commas")
    layouts = "; ".join(f"{known.name}: {', '.join(known.required)}" for known in FORMATS)
    shown = ", ".join(repr(column[:40]) for column in list(columns)[:6]) or "none"
    raise TraceError(
        f"{file_name}: the columns {shown} are not those of a known trace ({layouts}); "
        "name the columns: --columns arrival=COLUMN,input=COLUMN,output=COLUMN "
        "(in a plan `columns: {arrival: COLUMN, ...}`)"
    )


def _find_format(columns: Collection[str], file_name: str, named: Mapping[str, str] | None) -> TraceFormat | None:
    if named:
        return _as_named(columns, file_name, named)
    for known in FORMATS:
        if set(known.required) <= set(columns):
            return known
    meant = _guess_columns(columns)
    return _format_from(meant, "any") if set(REQUIRED) <= meant.keys() else None


def parse_columns(text: str) -> dict[str, str]:
    """Parse a column mapping such as `arrival=ts,input=prompt,output=completion`, optionally with `unit=ms`."""
    found: dict[str, str] = {}
    known = (*PLAIN.columns, _UNIT)
    for part in text[:_MAX_CHARACTERS].split(","):
        meaning, _, column = (piece.strip() for piece in part.partition("="))
        if meaning not in known or not column:
            raise UsageError(f"'{part.strip()[:40]}' is not MEANING=COLUMN; meanings are {', '.join(known)}")
        found[meaning] = column
    return found


def _as_named(columns: Collection[str], file_name: str, named: Mapping[str, str]) -> TraceFormat:
    unit = named.get(_UNIT, "any")
    if unit not in get_args(TimeUnit):
        raise UsageError(f"'{unit}' is not a unit of time; write one of {', '.join(get_args(TimeUnit))}")
    meant = {**_guess_columns(columns), **{name: column for name, column in named.items() if name != _UNIT}}
    missing = [name for name in REQUIRED if name not in meant]
    if missing:
        raise TraceError(f"{file_name}: no column is named for {missing[0]}; add {missing[0]}=COLUMN")
    absent = [column for column in meant.values() if column not in columns]
    if absent:
        raise TraceError(f"{file_name}: no column '{absent[0][:40]}'; the columns are {', '.join(list(columns)[:8])}")
    return _format_from(meant, unit)  # type: ignore[arg-type]


def _guess_columns(columns: Collection[str]) -> dict[str, str]:
    """Map each meaning to the column whose name is most specific; meanings without a matching column are left out."""
    plain = {re.sub(r"[^a-z]", "", column.lower()): column for column in reversed(tuple(columns))}
    found = {}
    for meaning, names in _MEANINGS.items():
        column = next((plain[name] for name in names if name in plain), None)
        if column is not None:
            found[meaning] = column
    return found


def _format_from(meant: Mapping[str, str], unit: TimeUnit) -> TraceFormat:
    """Build a format from a column mapping.

    A time column with a name such as `ts_ms` is read in milliseconds, even if its numbers are small.
    """
    told = _IN_MILLISECONDS.search(meant["arrival"]) if unit == "any" else None
    clock: TimeUnit = unit if told is None else "ms"
    return TraceFormat(
        name="columns as named", columns=dict(meant), arrival_unit=clock, source="a trace of your own", mapped=True
    )
