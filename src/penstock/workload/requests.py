"""Defines blocks of requests as arrays, one per column, and the parts of prompts that requests share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Uint8s = NDArray[np.uint8]

NO_SEGMENT = -1
MAX_CLASSES = 256
MAX_TOKENS = 2**30 - 1
"""Maximum tokens of a prompt or an answer. Prompt plus answer fits in 32 bits, and no model's context is as long."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prefixes:
    """Shared beginnings of prompts, as paths in a tree of segments.

    Prompt `i` begins with the segments `path[path_start[i] : path_start[i + 1]]`, in that order; the rest of the prompt
    is not shared. A segment always follows the same parent segment. Segments are numbered over the whole workload, so
    the array `segment_tokens` of a block begins with the array of any earlier block.
    """

    segment_tokens: Int32s
    path_start: Int64s
    path: Int32s
    own: Int32s
    """If a later prompt begins with this request's prompt and output: id of the segment with the unshared rest; else
    -1.

    The later prompt may lie beyond the number of requests that the caller asked for.
    """

    def __post_init__(self) -> None:
        _require_dtypes(self, segment_tokens=np.int32, path_start=np.int64, path=np.int32, own=np.int32)
        rows, segments = len(self.own), len(self.segment_tokens)
        if len(self.path_start) != rows + 1 or self.path_start[0] != 0 or self.path_start[-1] != len(self.path):
            raise ValueError(f"path_start must have {rows + 1} entries from 0 to {len(self.path)}")
        if (np.diff(self.path_start) < 0).any():
            raise ValueError("path_start must not decrease")
        if segments and self.segment_tokens.min() < 1:
            raise ValueError("a segment must have at least one token")
        if len(self.path) and not (self.path.min() >= 0 and self.path.max() < segments):
            raise ValueError(f"`path` has a segment index outside 0..{segments - 1}")
        if rows and not (self.own.min() >= NO_SEGMENT and self.own.max() < segments):
            raise ValueError(f"`own` has a segment index outside -1..{segments - 1}")

    def __len__(self) -> int:
        return len(self.own)

    def rows(self, start: int, stop: int) -> "Prefixes":
        """Return a range of rows. The arrays of segments are shared, not copied."""
        starts = self.path_start[start : stop + 1]
        return Prefixes(
            segment_tokens=self.segment_tokens,
            path_start=starts - starts[0],
            path=self.path[starts[0] : starts[-1]],
            own=self.own[start:stop],
        )

    def take(self, rows: Int64s) -> "Prefixes":
        """Return the rows with these indices, in the order given."""
        lengths = np.diff(self.path_start)[rows]
        path_start = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=path_start[1:])
        # Each element of the new path is offset from the start of its row's old path.
        place = np.arange(path_start[-1]) + np.repeat(self.path_start[rows] - path_start[:-1], lengths)
        return Prefixes(
            segment_tokens=self.segment_tokens, path_start=path_start, path=self.path[place], own=self.own[rows]
        )

    def with_offset(self, offset: int, segment_tokens: Int32s) -> "Prefixes":
        """Return the prefixes with every segment id increased by `offset`.

        `segment_tokens` is a table of segment lengths in which the segments of these prefixes begin at `offset`.
        """
        own = np.where(self.own >= 0, self.own + offset, NO_SEGMENT).astype(np.int32)
        return Prefixes(
            segment_tokens=segment_tokens,
            path_start=self.path_start,
            path=(self.path + offset).astype(np.int32),
            own=own,
        )

    def shared_tokens(self) -> Int64s:
        """Return the number of shared tokens of each prompt: the tokens of the segments on its path."""
        total = np.zeros(len(self.path) + 1, np.int64)
        np.cumsum(self.segment_tokens[self.path], out=total[1:])
        shared: Int64s = np.diff(total[self.path_start])
        return shared


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Requests:
    """A block of requests, one array per column, in order of arrival."""

    arrival_s: Float64s
    """Seconds from the start of the workload; all 0 in a closed loop, where users decide the time."""
    input_tokens: Int32s
    output_tokens: Int32s
    slo_class: Uint8s
    """Index into the workload's classes."""
    prefixes: Prefixes | None = None
    """Shared prefixes of the prompts; None if sharing is unknown."""

    def __post_init__(self) -> None:
        _require_dtypes(self, arrival_s=np.float64, input_tokens=np.int32, output_tokens=np.int32, slo_class=np.uint8)
        rows = len(self.arrival_s)
        lengths = {len(self.input_tokens), len(self.output_tokens), len(self.slo_class)}
        if self.prefixes is not None:
            lengths.add(len(self.prefixes))
        if lengths != {rows}:
            raise ValueError(f"every column must have {rows} rows")
        if not rows:
            return
        if not (self.arrival_s[0] >= 0 and self.arrival_s[-1] < np.inf and (np.diff(self.arrival_s) >= 0).all()):
            raise ValueError("arrival_s must be finite, ascending and not negative")
        if self.input_tokens.min() < 1 or self.output_tokens.min() < 1:
            raise ValueError("a request must have at least one prompt token and one output token")
        if self.prefixes is not None and (self.prefixes.shared_tokens() > self.input_tokens).any():
            raise ValueError("the shared segments of a prompt are longer than the whole prompt")

    def __len__(self) -> int:
        return len(self.arrival_s)

    def rows(self, start: int, stop: int) -> "Requests":
        """Return a range of rows. Columns are views."""
        return Requests(
            arrival_s=self.arrival_s[start:stop],
            input_tokens=self.input_tokens[start:stop],
            output_tokens=self.output_tokens[start:stop],
            slo_class=self.slo_class[start:stop],
            prefixes=None if self.prefixes is None else self.prefixes.rows(start, stop),
        )

    def take(self, rows: Int64s) -> "Requests":
        """Return the rows with these indices, which must be ascending."""
        return Requests(
            arrival_s=self.arrival_s[rows],
            input_tokens=self.input_tokens[rows],
            output_tokens=self.output_tokens[rows],
            slo_class=self.slo_class[rows],
            prefixes=None if self.prefixes is None else self.prefixes.take(rows),
        )

    def at(self, arrival_s: Float64s) -> "Requests":
        """Return the same requests at other arrival times."""
        return replace(self, arrival_s=arrival_s)


def no_requests() -> Requests:
    """Return an empty block."""
    return Requests(
        arrival_s=np.empty(0),
        input_tokens=np.empty(0, np.int32),
        output_tokens=np.empty(0, np.int32),
        slo_class=np.empty(0, np.uint8),
    )


def concatenate(blocks: Sequence[Requests]) -> Requests:
    """Join consecutive blocks of one workload. The longest `segment_tokens` of any block has every segment."""
    if len(blocks) == 1:
        return blocks[0]
    if not blocks:
        return no_requests()
    prefixes = [block.prefixes for block in blocks if block.prefixes is not None]
    if prefixes and len(prefixes) != len(blocks):
        raise ValueError("either every block of a workload must have prefixes, or no block may have prefixes")
    return Requests(
        arrival_s=np.concatenate([block.arrival_s for block in blocks]),
        input_tokens=np.concatenate([block.input_tokens for block in blocks]),
        output_tokens=np.concatenate([block.output_tokens for block in blocks]),
        slo_class=np.concatenate([block.slo_class for block in blocks]),
        prefixes=_concatenate_prefixes(prefixes) if prefixes else None,
    )


def _concatenate_prefixes(parts: Sequence[Prefixes]) -> Prefixes:
    before = np.cumsum([0, *(len(part.path) for part in parts)])
    starts = [part.path_start[1:] + offset for part, offset in zip(parts, before[:-1], strict=True)]
    return Prefixes(
        segment_tokens=max((part.segment_tokens for part in parts), key=len),
        path_start=np.concatenate([np.zeros(1, np.int64), *starts]),
        path=np.concatenate([part.path for part in parts]),
        own=np.concatenate([part.own for part in parts]),
    )


def _require_dtypes(value: object, **dtypes: type) -> None:
    for name, dtype in dtypes.items():
        column: NDArray[Any] = getattr(value, name)
        if column.ndim != 1 or column.dtype != dtype:
            raise ValueError(f"{name} must be one-dimensional {dtype.__name__}, not {column.ndim}-d {column.dtype}")
