"""What does a workload look like? Count, rate, burstiness, lengths and sharing, in one pass over its blocks."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

import numpy as np

from penstock.workload.histogram import TokenHistogram, no_tokens
from penstock.workload.requests import Prefixes, Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSummary:
    """The lengths of prompts or of answers."""

    total: int
    mean: float
    p50: int
    p90: int
    p99: int
    longest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSummary:
    """What prompts have in common."""

    shared_fraction: float
    """Prompt tokens on a shared path, of all prompt tokens."""
    reusable_fraction: float
    """Prompt tokens that an earlier request already had: what a prefix cache that forgets nothing would save."""
    segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSummary:
    """One look at a workload."""

    requests: int
    duration_s: float
    """From the first arrival to the last; 0 in a closed loop."""
    rate_per_s: float | None
    """None where no time passes."""
    gap_cv: float | None
    """Standard deviation of the gaps over their mean: 1 for Poisson, above it bursty."""
    input_tokens: TokenSummary
    output_tokens: TokenSummary
    sharing: SharingSummary | None
    """None where nothing is known to be shared."""
    requests_by_class: tuple[int, ...]


def describe(blocks: Iterable[Requests]) -> WorkloadSummary | None:
    """Summarise the blocks of a workload, None if it is empty. Holds distinct lengths and a byte per segment."""
    inputs, outputs = no_tokens(), no_tokens()
    gaps, sharing, classes = _Gaps(), _Sharing(), np.zeros(256, np.int64)
    for block in blocks:
        inputs, outputs = inputs.with_column(block.input_tokens), outputs.with_column(block.output_tokens)
        gaps.add(block)
        classes += np.bincount(block.slo_class, minlength=256)
        if block.prefixes is not None:
            sharing.add(block.prefixes)
    if not inputs.count:
        return None
    return WorkloadSummary(
        requests=inputs.count,
        duration_s=gaps.duration_s,
        rate_per_s=(inputs.count - 1) / gaps.duration_s if gaps.duration_s > 0 else None,
        gap_cv=gaps.cv(inputs.count - 1),
        input_tokens=_summary(inputs),
        output_tokens=_summary(outputs),
        sharing=sharing.summary(inputs.total_tokens),
        requests_by_class=tuple(classes[: np.flatnonzero(classes)[-1] + 1].tolist()),
    )


def _summary(tokens: TokenHistogram) -> TokenSummary:
    return TokenSummary(
        total=tokens.total_tokens,
        mean=tokens.total_tokens / tokens.count,
        p50=tokens.percentile(0.5),
        p90=tokens.percentile(0.9),
        p99=tokens.percentile(0.99),
        longest=int(tokens.tokens[-1]),
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


class _Sharing:
    def __init__(self) -> None:
        self._seen = np.zeros(0, np.bool_)
        self._any = False
        self._shared_tokens = 0
        self._new_tokens = 0

    def add(self, prefixes: Prefixes) -> None:
        self._any = True
        tokens = prefixes.segment_tokens
        missing = len(tokens) - len(self._seen)
        if missing > 0:
            # Room for twice as many, or a table that grows with every block is copied with every block.
            self._seen = np.concatenate([self._seen, np.zeros(missing + len(tokens), np.bool_)])
        self._shared_tokens += int(prefixes.shared_tokens().sum())
        # What a request leaves behind is known before another begins with it: only a first visit computes a segment.
        self._seen[prefixes.own[prefixes.own >= 0]] = True
        visited = np.unique(prefixes.path)
        self._new_tokens += int(tokens[visited[~self._seen[visited]]].sum(dtype=np.int64))
        self._seen[visited] = True

    def summary(self, input_tokens: int) -> SharingSummary | None:
        if not self._any:
            return None
        return SharingSummary(
            shared_fraction=self._shared_tokens / input_tokens,
            reusable_fraction=(self._shared_tokens - self._new_tokens) / input_tokens,
            segments=int(self._seen.sum()),
        )
