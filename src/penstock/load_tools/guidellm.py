"""Reads result files of guidellm.

guidellm's `time_per_output_token_ms` is the latency of the whole request divided by its tokens. TPOT is its
`inter_token_latency_ms`.
"""

from datetime import UTC, datetime

from penstock.load_tools.load_run import CountedBy, LatencyStatistics, LoadRun, RequestRecord, TokenLength
from penstock.load_tools.read_statistics import (
    MILLISECONDS,
    SECONDS,
    from_first_start,
    latency_of,
)
from penstock.reading.json_tree import JsonTree

_REPEATED_GAPS = (
    "guidellm 0.8 draws the same gaps in each of its worker processes, so arrivals of its `poisson` profile are not "
    "Poisson: take the rate from the start times."
)
_CLOSED = {"concurrent", "synchronous", "throughput"}


def is_guidellm(document: JsonTree) -> bool:
    """Return whether a document is a report of guidellm."""
    return "benchmarks" in document and document.find("metadata", "guidellm_version") is not None


def read_guidellm(document: JsonTree) -> tuple[LoadRun, ...]:
    """Read every benchmark of a report of guidellm."""
    version = document.text("metadata", "guidellm_version")
    return tuple(_read(one, version, number) for number, one in enumerate(document.at("benchmarks").items(), 1))


def _read(benchmark: JsonTree, version: str, number: int) -> LoadRun:
    metrics, strategy = benchmark.at("metrics"), benchmark.at("config", "strategy")
    totals, kind = metrics.at("request_totals"), strategy.text("type_")
    closed = kind in _CLOSED
    data = benchmark.find("config", "requests", "data", 0)
    return LoadRun(
        tool="guidellm",
        tool_version=version,
        where=f"{benchmark.where} benchmark {number}",
        duration_s=benchmark.number("duration", low=1e-9),
        completed=totals.whole("successful"),
        failed=totals.whole("errored"),
        asked_requests=_request_limit(benchmark),
        users=_users(strategy, kind) if closed else None,
        asked_rate_per_s=None if closed else strategy.number_or_none("rate", low=1e-9),
        input_length=TokenLength(
            mean=metrics.number("prompt_token_count", "successful", "mean"),
            counted_by=CountedBy.SERVER,
            asked=None if data is None else data.number_or_none("prompt_tokens"),
        ),
        output_length=TokenLength(
            mean=metrics.number("output_token_count", "successful", "mean"), counted_by=CountedBy.SERVER
        ),
        ttft=_latency(metrics.at("time_to_first_token_ms", "successful"), MILLISECONDS),
        tpot=_latency(metrics.at("inter_token_latency_ms", "successful"), MILLISECONDS),
        request_latency=_latency(metrics.at("request_latency", "successful"), SECONDS),
        output_tokens_per_s=metrics.number("output_tokens_per_second", "successful", "mean"),
        model=benchmark.text_or_none("config", "backend", "model"),
        started=datetime.fromtimestamp(benchmark.number("start_time", high=1e11), UTC),
        records=_records(benchmark),
        cautions=(_REPEATED_GAPS,) if kind == "poisson" else (),
    )


def _request_limit(benchmark: JsonTree) -> int | None:
    count = benchmark.find("config", "constraints", "max_requests", "args", "count")
    return None if count is None else count.whole()


def _users(strategy: JsonTree, kind: str) -> int:
    if kind == "synchronous":
        return 1
    return strategy.whole("streams" if "streams" in strategy else "max_concurrency", low=1)


def _latency(table: JsonTree, unit_s: float) -> LatencyStatistics:
    return latency_of(table.number("mean"), lambda name: table.number_or_none("percentiles", name), unit_s)


def _records(benchmark: JsonTree) -> tuple[RequestRecord, ...]:
    listed = benchmark.find("requests", "successful")
    if listed is None:
        return ()
    return from_first_start(
        RequestRecord(
            start_s=request.number("request_start_time"),
            input_tokens=request.whole("prompt_tokens"),
            output_tokens=request.whole("output_tokens"),
            ttft_s=request.number("time_to_first_token_ms") * MILLISECONDS,
            latency_s=request.number("request_latency"),
        )
        for request in listed.items()
        if "time_to_first_token_ms" in request
    )
