"""Reads result files of evalscope's `perf` command. Its keys are prose with a unit."""

from collections.abc import Sequence

from penstock.load_tools.load_run import CountedBy, LatencyStatistics, LoadRun, TokenLength
from penstock.load_tools.read_statistics import MILLISECONDS, SECONDS, latency_of
from penstock.reading.json_tree import JsonTree


def is_evalscope(document: JsonTree) -> bool:
    """Return whether a document is the summary of `evalscope perf`."""
    return "Avg TTFT (ms)" in document and "Success Requests" in document


def read_evalscope(
    document: JsonTree, arguments: JsonTree | None = None, percentiles: Sequence[JsonTree] = ()
) -> LoadRun:
    """Read `benchmark_summary.json`, with `benchmark_args.json` and `benchmark_percentile.json` of the same folder."""
    rate = document.number_or_none("Request Rate (req/s)", low=-1.0)
    open_loop = rate is not None and rate > 0
    by_percentile = {one.text("Percentiles"): one for one in percentiles}
    return LoadRun(
        tool="evalscope",
        where=document.where,
        duration_s=document.number("Test Duration (s)", low=1e-9),
        completed=document.whole("Success Requests"),
        failed=document.whole("Failed Requests"),
        asked_requests=document.whole("Total Requests"),
        users=None if open_loop else document.whole("Concurrency", low=1),
        asked_rate_per_s=rate if open_loop else None,
        input_length=TokenLength(
            mean=document.number("Avg Input Tokens"),
            counted_by=CountedBy.SERVER,
            asked=_asked_length(arguments, "min_prompt_length", "max_prompt_length"),
        ),
        output_length=TokenLength(
            mean=document.number("Avg Output Tokens"),
            counted_by=CountedBy.SERVER,
            asked=_asked_length(arguments, "min_tokens", "max_tokens"),
        ),
        ttft=_latency(document, "Avg TTFT (ms)", by_percentile, "TTFT (ms)", MILLISECONDS),
        tpot=_latency(document, "Avg TPOT (ms)", by_percentile, "TPOT (ms)", MILLISECONDS),
        request_latency=_latency(document, "Avg Latency (s)", by_percentile, "Latency (s)", SECONDS),
        output_tokens_per_s=document.number("Output Throughput (tok/s)"),
        model=None if arguments is None else arguments.text_or_none("model"),
    )


def _asked_length(arguments: JsonTree | None, low: str, high: str) -> float | None:
    """Return the length that was asked for, if it was one length."""
    if arguments is None:
        return None
    least, most = arguments.number_or_none(low), arguments.number_or_none(high)
    return least if least is not None and least == most else None


def _latency(
    document: JsonTree, mean: str, by_percentile: dict[str, JsonTree], name: str, unit_s: float
) -> LatencyStatistics:
    def value(percentile: str) -> float | None:
        row = by_percentile.get(f"{percentile.removeprefix('p')}%")
        return None if row is None else row.number_or_none(name)

    return latency_of(document.number(mean), value, unit_s)
