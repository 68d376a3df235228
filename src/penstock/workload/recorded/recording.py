"""Defines recordings: past requests that are held in memory or read from disk block by block."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from penstock.workload.randomness import NATIVE_BLOCK
from penstock.workload.requests import Int32s, Requests
from penstock.workload.slo import SloClass

CountProgress = Callable[[int], None]
"""Progress callback: number of requests or trials done."""


class Recording(Protocol):
    """A sequence of past requests; the first request arrives at 0 s.

    Every pass over the blocks yields the same requests.
    """

    @property
    def name(self) -> str:
        """Display name."""

    @property
    def source(self) -> str:
        """Citation."""

    @property
    def requests(self) -> int:
        """Number of requests."""

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""

    @property
    def segment_tokens(self) -> Int32s | None:
        """Length in tokens of every shared segment, the same for all blocks; None if sharing is unknown."""

    @property
    def classes(self) -> tuple[SloClass, ...]:
        """SLO classes, with their shares."""

    def blocks(self) -> Iterator[Requests]:
        """Yield the requests in order of arrival."""


def mean_rate_per_s(recording: Recording) -> float | None:
    """Return the mean arrival rate in requests per second; None if all requests arrive at the same time."""
    return (recording.requests - 1) / recording.span_s if recording.span_s > 0 else None


def with_progress(blocks: Iterator[Requests], progress: CountProgress | None) -> Iterator[Requests]:
    """Yield the blocks, and report to `progress` the number of requests yielded so far."""
    done = 0
    for block in blocks:
        yield block
        done += len(block)
        if progress is not None:
            progress(done)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Records:
    """A recording held in memory."""

    name: str
    source: str
    columns: Requests
    classes: tuple[SloClass, ...] = field(default=())

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.columns)

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return float(self.columns.arrival_s[-1] - self.columns.arrival_s[0]) if len(self.columns) else 0.0

    @property
    def segment_tokens(self) -> Int32s | None:
        """Length in tokens of every shared segment."""
        return None if self.columns.prefixes is None else self.columns.prefixes.segment_tokens

    def blocks(self) -> Iterator[Requests]:
        """Yield the requests in order of arrival."""
        for start in range(0, len(self.columns), NATIVE_BLOCK):
            yield self.columns.rows(start, start + NATIVE_BLOCK)
