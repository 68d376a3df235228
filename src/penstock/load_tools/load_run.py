"""Describes one run of a load tool: the load that was applied and what was measured."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum


class CountedBy(Enum):
    """Who counted the tokens of a run."""

    SERVER = "server"
    """The usage that the server reported."""
    CLIENT = "client"
    """The tokenizer of the load tool, which may differ from the server's."""
    ASKED = "asked"
    """The file states only the lengths that were asked for."""
    UNKNOWN = "unknown"
    """The file does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyStatistics:
    """Times of a run's requests in seconds. A statistic that the file does not state is None."""

    mean_s: float
    p50_s: float | None = None
    p90_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLength:
    """Mean number of tokens of a run's prompts or answers."""

    mean: float
    counted_by: CountedBy
    asked: float | None = None
    """Length that the load tool asked for, in the tokens of the load tool; None if the file does not state it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request of a run. `start_s` is relative to the first start of the run."""

    start_s: float
    input_tokens: int
    output_tokens: int
    ttft_s: float
    latency_s: float

    @property
    def tpot_s(self) -> float | None:
        """Return the time per output token after the first; None if the answer has one token."""
        return (self.latency_s - self.ttft_s) / (self.output_tokens - 1) if self.output_tokens > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRun:
    """One run of a load tool against one endpoint."""

    tool: str
    where: str
    """File of the run, and its number in the file if the file has several runs."""
    duration_s: float
    completed: int
    failed: int
    input_length: TokenLength
    output_length: TokenLength
    ttft: LatencyStatistics
    tpot: LatencyStatistics
    output_tokens_per_s: float
    """Output tokens of all requests over the time from the first start to the last end."""
    asked_requests: int | None = None
    users: int | None = None
    """Users of a closed loop; None in an open loop."""
    asked_rate_per_s: float | None = None
    """Requests per second that were asked for in an open loop; None in a closed loop."""
    most_in_flight: int | None = None
    """Requests in flight at which an open loop sends no further one; None without such a limit."""
    request_latency: LatencyStatistics | None = None
    model: str | None = None
    tool_version: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    accelerator: str | None = None
    """Accelerator of the server, in the words of the person who ran the load tool."""
    devices: int | None = None
    started: datetime | None = None
    cached_prompt_fraction: float | None = None
    """Share of prompt tokens that the server found in its prefix cache; None if the file does not state it."""
    accepted_tokens: float | None = None
    """Mean tokens per step of an engine that drafts; None if the file states no drafting."""
    lateness_s: float | None = None
    """Mean delay of the load tool behind its own schedule in an open loop; None if the file does not state it."""
    stopped_early: bool = False
    """Whether the load tool says that the run was cancelled or is incomplete."""
    records: tuple[RequestRecord, ...] = ()
    """Requests that the file lists, in the order of their starts. The file may list fewer than were completed."""
    cautions: tuple[str, ...] = ()
    """Properties of the load tool that bias this run, each as a sentence."""

    @property
    def closed_loop(self) -> bool:
        """Return whether a fixed number of users sent the next request when the last one was answered."""
        return self.users is not None

    @property
    def has_all_records(self) -> bool:
        """Return whether the file lists every completed request, so that its arrivals can be replayed."""
        return self.completed > 0 and len(self.records) >= self.completed

    @property
    def requests_per_s(self) -> float:
        """Return the completed requests per second."""
        return self.completed / self.duration_s

    @property
    def arrivals_per_s(self) -> float | None:
        """Return the rate of the starts that the file lists, or None if it does not list all requests."""
        if not self.has_all_records or len(self.records) < 2:
            return None
        span_s = self.records[-1].start_s - self.records[0].start_s
        return (len(self.records) - 1) / span_s if span_s > 0 else None

    @property
    def applied_rate_per_s(self) -> float:
        """Return the rate at which requests arrived, whatever was asked for.

        Without listed starts, the time in which requests arrived is the duration without the last answer.
        """
        listed = self.arrivals_per_s
        if listed is not None:
            return listed
        answer_s = 0.0 if self.request_latency is None else self.request_latency.mean_s
        span_s = self.duration_s - answer_s
        return self.completed / span_s if span_s > 0 else self.asked_rate_per_s or self.requests_per_s
