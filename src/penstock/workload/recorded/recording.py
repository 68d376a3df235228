"""What was asked before? Recorded requests, in memory or read again block by block."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from penstock.workload.randomness import NATIVE_BLOCK
from penstock.workload.requests import Int32s, Requests
from penstock.workload.slo import SloClass

CountProgress = Callable[[int], None]
"""Told how many requests or trials are done."""


class Recording(Protocol):
    """Requests that happened, from the first at 0 s; every pass over the blocks yields the same."""

    @property
    def name(self) -> str:
        """What to call it."""

    @property
    def source(self) -> str:
        """What to cite."""

    @property
    def requests(self) -> int:
        """How many."""

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""

    @property
    def segment_tokens(self) -> Int32s | None:
        """Length of every segment that prompts share, as each block repeats it; None where sharing is not known."""

    @property
    def classes(self) -> tuple[SloClass, ...]:
        """Kinds of requests told apart, with their shares."""

    def blocks(self) -> Iterator[Requests]:
        """Yield the requests in order of arrival."""


def mean_rate_per_s(recording: Recording) -> float | None:
    """Mean rate of the arrivals; None where they do not span any time."""
    return (recording.requests - 1) / recording.span_s if recording.span_s > 0 else None


def told(blocks: Iterator[Requests], progress: CountProgress | None) -> Iterator[Requests]:
    """Pass blocks on and tell `progress` how many requests have passed."""
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
        """How many."""
        return len(self.columns)

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return float(self.columns.arrival_s[-1] - self.columns.arrival_s[0]) if len(self.columns) else 0.0

    @property
    def segment_tokens(self) -> Int32s | None:
        """Length of every segment that prompts share."""
        return None if self.columns.prefixes is None else self.columns.prefixes.segment_tokens

    def blocks(self) -> Iterator[Requests]:
        """Yield the requests in order of arrival."""
        for start in range(0, len(self.columns), NATIVE_BLOCK):
            yield self.columns.rows(start, start + NATIVE_BLOCK)
