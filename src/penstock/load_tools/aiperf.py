"""Reads result files of NVIDIA's aiperf."""

from collections.abc import Sequence
from datetime import datetime

from penstock.load_tools.load_run import CountedBy, LatencyStatistics, LoadRun, RequestRecord, TokenLength
from penstock.load_tools.read_statistics import from_first_start, latency_of_table, unit_of
from penstock.reading.json_tree import JsonTree

_CLIENT_TOKENS = "The file has no usage of the server, so prompt tokens are counted by aiperf's tokenizer."


def is_aiperf(document: JsonTree) -> bool:
    """Return whether a document is a result of aiperf."""
    return "aiperf_version" in document


def read_aiperf(document: JsonTree, requests: Sequence[JsonTree] = ()) -> LoadRun:
    """Read a result of aiperf. `requests` are the lines of `profile_export.jsonl`."""
    completed = document.whole("request_count", "avg")
    phase = document.find("input_config", "phases", 0)
    rate = None if phase is None else phase.number_or_none("rate", low=1e-9)
    limit = None if phase is None or "concurrency" not in phase else phase.whole("concurrency", low=1)
    by_server = "usage_prompt_tokens" in document
    records = from_first_start([record for line in requests if (record := _record(line)) is not None])
    duration = document.at("benchmark_duration")
    return LoadRun(
        tool="aiperf",
        tool_version=document.text("aiperf_version"),
        where=document.where,
        duration_s=duration.number("avg", low=1e-9) * unit_of(duration),
        completed=completed,
        failed=_count_failures(document),
        asked_requests=None if phase is None or "requests" not in phase else phase.whole("requests"),
        users=None if rate is not None else limit,
        asked_rate_per_s=rate,
        most_in_flight=None if rate is None else limit,
        input_length=TokenLength(
            mean=document.number("usage_prompt_tokens" if by_server else "input_sequence_length", "avg"),
            counted_by=CountedBy.SERVER if by_server else CountedBy.CLIENT,
            asked=document.number_or_none("input_config", "datasets", 0, "prompts", "isl", "mean"),
        ),
        output_length=TokenLength(
            mean=document.number(
                "usage_completion_tokens" if "usage_completion_tokens" in document else "output_sequence_length", "avg"
            ),
            counted_by=CountedBy.SERVER if "usage_completion_tokens" in document else CountedBy.CLIENT,
            asked=document.number_or_none("input_config", "datasets", 0, "prompts", "osl", "mean"),
        ),
        ttft=_latency(document, "time_to_first_token"),
        tpot=_latency(document, "inter_token_latency"),
        request_latency=_latency(document, "request_latency"),
        output_tokens_per_s=document.number("output_token_throughput", "avg"),
        model=document.text_or_none("input_config", "models", "items", 0, "name"),
        started=_date(document.text_or_none("start_time")),
        cached_prompt_fraction=_cached_fraction(document),
        stopped_early=_says(document, "was_cancelled", answer=True) or _says(document, "is_complete", answer=False),
        records=records,
        cautions=() if by_server else (_CLIENT_TOKENS,),
    )


def _latency(document: JsonTree, name: str) -> LatencyStatistics:
    table = document.at(name)
    return latency_of_table(table, unit_of(table), mean="avg")


def _says(document: JsonTree, key: str, *, answer: bool) -> bool:
    found = document.find(key)
    return found is not None and found.value is answer


def _count_failures(document: JsonTree) -> int:
    kinds = document.find("error_summary")
    return 0 if kinds is None else int(sum(kind.number_or_none("count") or 1 for kind in kinds.items()))


def _cached_fraction(document: JsonTree) -> float | None:
    cached, total = (
        document.number_or_none("usage_prompt_cache_read_tokens", "avg"),
        document.number_or_none("usage_prompt_tokens", "avg"),
    )
    return None if cached is None or not total else cached / total


def _record(line: JsonTree) -> RequestRecord | None:
    """Return the record of a request that was answered in the measured phase."""
    if line.text_or_none("metadata", "benchmark_phase") not in {None, "profiling"} or "error" in line:
        return None
    metrics = line.at("metrics")
    ttft, latency = metrics.at("time_to_first_token"), metrics.at("request_latency")
    prompt = metrics.find("usage_prompt_tokens") or metrics.at("input_sequence_length")
    return RequestRecord(
        start_s=line.number("metadata", "request_start_ns") * 1e-9,
        input_tokens=prompt.whole("value"),
        output_tokens=metrics.whole("output_sequence_length", "value"),
        ttft_s=ttft.number("value") * unit_of(ttft),
        latency_s=latency.number("value") * unit_of(latency),
    )


def _date(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
