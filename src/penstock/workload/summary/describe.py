"""Summarises a workload in one pass over its blocks: count, rate, burstiness, lengths and sharing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np

from penstock.workload.recorded.recording import CountProgress, with_progress
from penstock.workload.recorded.trace import Trace
from penstock.workload.requests import Float64s, Prefixes, Requests
from penstock.workload.summary.histogram import TokenHistogram, no_tokens
from penstock.workload.summary.length_fit import LogNormalFit, fit_log_normal
from penstock.workload.summary.minutes import Minutes

_COLUMNS: Final = 256
_FIRST_WIDTH_S: Final = 2.0**-4


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSummary:
    """The lengths of prompts or of answers, in tokens."""

    total: int
    mean: float
    p50: int
    p90: int
    p99: int
    shortest: int
    longest: int
    by_length: tuple[int, ...]
    """Number of requests per length bin, from 1 token up to the longest length; four bins per doubling of length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSummary:
    """Summary of the prompt tokens that requests share."""

    shared_fraction: float
    """Share of prompt tokens that are on a shared path."""
    reusable_fraction: float
    """Share of prompt tokens that repeat an earlier request's prefix; a prefix cache without eviction would serve these
    tokens."""
    segments: int
    continued: int
    """Number of requests whose prompt and answer form the beginning of a later prompt."""
    mean_turns: float | None
    """Mean number of requests per conversation; None if no request is known to continue another request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalCounts:
    """Number of requests in each of several equal intervals of time, from the first arrival on."""

    width_s: float
    requests: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSummary:
    """Summary of a workload."""

    requests: int
    duration_s: float
    """Seconds from the first arrival to the last; 0 in a closed loop."""
    rate_per_s: float | None
    """Mean request rate; None if all requests arrive at the same time."""
    busiest_minute_per_s: float | None
    gap_cv: float | None
    """Standard deviation of the gaps between arrivals, divided by the mean gap: 1 for Poisson, higher for bursty
    arrivals."""
    arrivals: ArrivalCounts
    input_tokens: TokenSummary
    output_tokens: TokenSummary
    sharing: SharingSummary | None
    """Summary of shared prompt tokens; None if sharing is unknown."""
    requests_by_class: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """Summary of a trace, including the rows left out."""

    name: str
    format: str
    source: str
    dropped: Mapping[str, int]
    """Maps each reason for leaving out rows to the number of such rows."""
    contradictions: int
    """Number of inconsistent hash ids. A shared path of prompt blocks ends before an inconsistent id."""
    class_fractions: Mapping[str, float]
    """Maps SLO class to its share of the requests; empty if the trace has no classes."""
    requests: WorkloadSummary
    log_normal: LogNormalFit


def describe_trace(trace: Trace, *, progress: CountProgress | None = None) -> TraceSummary:
    """Summarise a trace and fit its lengths, in two passes.

    `progress` is called with the number of requests read so far, over both passes.
    """
    summary = describe(with_progress(trace.blocks(), progress))
    if summary is None:
        raise ValueError("the trace has no requests; reading an empty trace should have failed")
    later = None if progress is None else lambda done: progress(trace.requests + done)
    return TraceSummary(
        name=trace.name,
        format=trace.format,
        source=trace.source,
        dropped=trace.dropped,
        contradictions=trace.contradictions,
        class_fractions={item.name: item.share_fraction for item in trace.classes},
        requests=summary,
        log_normal=fit_log_normal(trace, progress=later),
    )


def describe(blocks: Iterable[Requests]) -> WorkloadSummary | None:
    """Return a summary of a workload's blocks; None if there are no requests.

    Memory use grows with the number of distinct lengths, and by one byte per segment.
    """
    inputs, outputs = no_tokens(), no_tokens()
    gaps, minutes, columns = _Gaps(), Minutes(), _Columns()
    sharing, classes = SharingCount(), np.zeros(256, np.int64)
    for block in blocks:
        inputs, outputs = inputs.with_column(block.input_tokens), outputs.with_column(block.output_tokens)
        gaps.add(block)
        minutes.add(block.arrival_s)
        columns.add(block.arrival_s)
        classes += np.bincount(block.slo_class, minlength=256)
        if block.prefixes is not None:
            sharing.add(block.prefixes)
    if not inputs.count:
        return None
    return WorkloadSummary(
        requests=inputs.count,
        duration_s=gaps.duration_s,
        rate_per_s=(inputs.count - 1) / gaps.duration_s if gaps.duration_s > 0 else None,
        busiest_minute_per_s=minutes.busiest_per_s,
        gap_cv=gaps.cv(inputs.count - 1),
        arrivals=columns.counts(),
        input_tokens=_summary(inputs),
        output_tokens=_summary(outputs),
        sharing=sharing.summary(inputs.count, inputs.total_tokens),
        requests_by_class=tuple(classes[: np.flatnonzero(classes)[-1] + 1].tolist()),
    )


def _summary(tokens: TokenHistogram) -> TokenSummary:
    return TokenSummary(
        total=tokens.total_tokens,
        mean=tokens.total_tokens / tokens.count,
        p50=tokens.percentile(0.5),
        p90=tokens.percentile(0.9),
        p99=tokens.percentile(0.99),
        shortest=int(tokens.tokens[0]),
        longest=int(tokens.tokens[-1]),
        by_length=tokens.by_length(),
    )


class _Gaps:
    def __init__(self) -> None:
        self._first_s: float | None = None
        self._last_s = 0.0
        self._squares = 0.0

    @property
    def duration_s(self) -> float:
        return 0.0 if self._first_s is None else self._last_s - self._first_s

    def add(self, block: Requests) -> None:
        if not len(block):
            return
        if self._first_s is None:
            self._first_s = self._last_s = float(block.arrival_s[0])
        gaps = np.diff(block.arrival_s, prepend=self._last_s)
        self._squares += float(gaps @ gaps)
        self._last_s = float(block.arrival_s[-1])

    def cv(self, count: int) -> float | None:
        if not (count and self.duration_s > 0):
            return None
        mean = self.duration_s / count
        return sqrt(max(0.0, self._squares / count - mean**2)) / mean


class _Columns:
    """Arrival counts in a fixed number of equal intervals.

    When arrivals outgrow the table, neighbouring intervals are merged.
    """

    def __init__(self) -> None:
        self._first_s: float | None = None
        self._width_s = _FIRST_WIDTH_S
        self._requests = np.zeros(_COLUMNS, np.int64)
        self._last = 0

    def add(self, arrival_s: Float64s) -> None:
        if not len(arrival_s):
            return
        if self._first_s is None:
            self._first_s = float(arrival_s[0])
        since_s = arrival_s - self._first_s
        while since_s[-1] >= self._width_s * _COLUMNS:
            self._requests = np.pad(self._requests.reshape(-1, 2).sum(axis=1), (0, _COLUMNS // 2))
            self._width_s *= 2
        column = (since_s / self._width_s).astype(np.int64)
        self._requests += np.bincount(column, minlength=_COLUMNS)
        self._last = int(column[-1])

    def counts(self) -> ArrivalCounts:
        return ArrivalCounts(width_s=self._width_s, requests=tuple(self._requests[: self._last + 1].tolist()))


class SharingCount:
    """A counter of shared prompt tokens, updated block by block."""

    def __init__(self) -> None:
        self._seen = np.zeros(0, np.bool_)
        self._any = False
        self._shared_tokens = 0
        self._new_tokens = 0
        self._continued = 0

    def add(self, prefixes: Prefixes) -> None:
        """Add the prefixes of the next block."""
        self._any = True
        tokens = prefixes.segment_tokens
        missing = len(tokens) - len(self._seen)
        if missing > 0:
            # Allocate twice as many: a table that grew with every block would be copied with every block.
            self._seen = np.concatenate([self._seen, np.zeros(missing + len(tokens), np.bool_)])
        self._shared_tokens += int(prefixes.shared_tokens().sum())
        self._continued += int((prefixes.own >= 0).sum())
        # A request's own segment is computed before another begins with it, so only the first visit computes a segment.
        self._seen[prefixes.own[prefixes.own >= 0]] = True
        visited = np.unique(prefixes.path)
        self._new_tokens += int(tokens[visited[~self._seen[visited]]].sum(dtype=np.int64))
        self._seen[visited] = True

    def summary(self, requests: int, input_tokens: int) -> SharingSummary | None:
        """Return the sharing summary; None if the trace has no sharing information."""
        if not self._any:
            return None
        return SharingSummary(
            shared_fraction=self._shared_tokens / input_tokens,
            reusable_fraction=(self._shared_tokens - self._new_tokens) / input_tokens,
            segments=int(self._seen.sum()),
            continued=self._continued,
            # A conversation of n turns has n - 1 continued turns.
            mean_turns=requests / (requests - self._continued) if 0 < self._continued < requests else None,
        )
