"""Defines the record of how a request ended, from which receipts, bills and metrics are made. It holds no text."""

import json
from collections.abc import Callable, Mapping, Sequence
from math import isnan, nan
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from penstock.routing.records import Records

Counted = Literal["engine", "bytes", "expected"]
"""Where a count of tokens comes from: the engine, an estimate from bytes, or what was expected before."""


class RequestOutcome(NamedTuple):
    """How one request ended."""

    ended_unix_s: float
    tenant: str
    """Name of the tenant; empty if the request was anonymous."""
    model: str
    slo_class: str
    pool: str
    """Pool that served the request; empty if the request was refused."""
    endpoint: str
    status: int
    failed: bool
    """Whether the response was 5xx, a refusal (3xx, 401, 403, 429) or broke off. Failed requests pay nothing."""
    duration_s: float
    """Seconds from the sending to the endpoint to the end."""
    waited_s: float
    """Seconds for which the gateway held the request before that."""
    ttft_s: float | None
    """Seconds from the sending to the first piece of a stream; None if it was not seen."""
    request_bytes: int
    input_tokens: int
    cached_tokens: int
    prompt_from: Counted
    output_tokens: int
    tokens_from: Counted
    response_bytes: int | None
    """Bytes of the response; None if they were not seen, so that `output_tokens` is what the picker expected."""
    streamed: bool
    kept: bool | None
    """Whether the request met its SLO; None if that was not seen, or if it has none."""

    @property
    def sent_unix_s(self) -> float:
        """Time at which the request was sent to its endpoint."""
        return self.ended_unix_s - self.duration_s

    @property
    def prompt_counted(self) -> bool:
        """Whether the engine counted the tokens of the prompt. Otherwise they are estimated."""
        return self.prompt_from == "engine"

    @property
    def output_counted(self) -> bool:
        """Whether the engine counted the tokens of the response. Otherwise they are estimated."""
        return self.tokens_from == "engine"

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "RequestOutcome":
        """Read the fields of an outcome's JSON text. Raise ValueError, KeyError or TypeError if a field is wrong."""
        if fields["kept"] not in {True, False, None}:
            raise ValueError
        values = (None if fields[key] is None and optional else read(fields[key]) for key, read, optional in _FIELDS)
        outcome = RequestOutcome._make(values)
        counts = (outcome.request_bytes, outcome.input_tokens, outcome.cached_tokens, outcome.output_tokens)
        if not (0 <= outcome.duration_s < outcome.ended_unix_s) or min(counts) < 0:
            raise ValueError
        return outcome


def column_types(annotations: Mapping[str, Any]) -> np.dtype[np.void]:
    """Return the types of a row of an array that has the fields of a NamedTuple."""
    return np.dtype([(name, _TYPES.get(kind, "O")) for name, kind in annotations.items()])


_TYPES: Final = {float: "f8", float | None: "f8", int: "i8", int | None: "i8", bool: "?", bool | None: "i1"}
_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {"f": float, "i": int, "b": bool, "O": str}
OUTCOME: Final = column_types(RequestOutcome.__annotations__)
"""A `RequestOutcome` as a row of an array. `_UNSEEN` has the values that stand for None."""
_UNSEEN: Final = {"ttft_s": nan, "response_bytes": -1, "kept": -1}
_FIELDS: Final = [
    (name.removeprefix("slo_"), bool if name == "kept" else _READERS[OUTCOME[name].kind], name in _UNSEEN)
    for name in RequestOutcome._fields
]
"""Name of each field in a line of receipts, the function that reads it, and whether it may be null."""
_LINE: Final = ", ".join(f'"{key}": %s' for key, _, _ in _FIELDS)


def outcome_rows(outcomes: Sequence[RequestOutcome]) -> Records:
    """Return outcomes as an array of `OUTCOME`."""
    rows = np.zeros(len(outcomes), OUTCOME)
    for name, values in zip(RequestOutcome._fields, zip(*outcomes, strict=True), strict=False):
        rows[name] = [_UNSEEN[name] if value is None else value for value in values]
    return rows


def outcome_lines(rows: Records) -> list[str]:
    """Return the JSON texts of the outcomes in an array of `OUTCOME`, as `RequestOutcome.from_json` reads them."""
    columns = zip(*(_json_texts(rows[name]) for name in RequestOutcome._fields), strict=True)
    return [f"{{{_LINE % column}}}" for column in columns]


def _json_texts(column: Records) -> list[str]:
    values = column.tolist()
    if column.dtype == np.float64:
        return ["null" if isnan(value) else repr(round(value, 6)) for value in values]
    if column.dtype == np.int64:
        return ["null" if value < 0 else str(value) for value in values]
    few = [None if value == -1 else bool(value) for value in values] if column.dtype == np.int8 else values
    texts = {value: json.dumps(value) for value in set(few)}
    return [texts[value] for value in few]
