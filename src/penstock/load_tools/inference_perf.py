"""Reads result files of inference-perf. Times are in seconds.

`schedule_delay` is lateness only in an open loop. In a closed loop, requests wait for their turn by construction.
"""

from collections.abc import Sequence

from penstock.load_tools.load_run import CountedBy, LoadRun, RequestRecord, TokenLength
from penstock.load_tools.read_statistics import SECONDS, from_first_start, latency_of_table
from penstock.reading.json_tree import JsonTree

_RANDOM_GAPS = "inference-perf's `constant` load has exponential gaps that are scaled to the duration of the stage."


def is_inference_perf(document: JsonTree) -> bool:
    """Return whether a document is a lifecycle report of inference-perf."""
    return all(key in document for key in ("benchmark_time_seconds", "load_summary", "successes"))


def read_inference_perf(
    document: JsonTree, config: JsonTree | None = None, requests: Sequence[JsonTree] = ()
) -> LoadRun:
    """Read the report of one stage. `config` is the configuration of the run, and `requests` the listed requests."""
    successes, load = document.at("successes"), document.at("load_summary")
    closed = "concurrency" in load
    prompts = successes.at("prompt_tokens" if "prompt_tokens" in successes else "prompt_len")
    answers = successes.at("output_tokens" if "output_tokens" in successes else "output_len")
    total, cached = prompts.number_or_none("total"), prompts.number_or_none("cached")
    return LoadRun(
        tool="inference-perf",
        where=document.where,
        duration_s=document.number("benchmark_time_seconds", low=1e-9),
        completed=successes.whole("count"),
        failed=document.whole("failures", "count") if "failures" in document else 0,
        asked_requests=load.whole("count"),
        users=load.whole("concurrency", low=1) if closed else None,
        asked_rate_per_s=None if closed else load.number_or_none("requested_rate", low=1e-9),
        input_length=TokenLength(
            mean=prompts.number("mean"), counted_by=CountedBy.SERVER, asked=_asked_length(config, "input_distribution")
        ),
        output_length=TokenLength(
            mean=answers.number("mean"), counted_by=CountedBy.SERVER, asked=_asked_length(config, "output_distribution")
        ),
        ttft=latency_of_table(successes.at("latency", "time_to_first_token"), SECONDS, median="median"),
        tpot=latency_of_table(successes.at("latency", "time_per_output_token"), SECONDS, median="median"),
        request_latency=latency_of_table(successes.at("latency", "request_latency"), SECONDS, median="median"),
        output_tokens_per_s=successes.number("throughput", "output_tokens_per_sec"),
        model=None if config is None else config.text_or_none("server", "model_name"),
        engine=None if config is None else config.text_or_none("server", "type"),
        cached_prompt_fraction=None if cached is None or not total else cached / total,
        lateness_s=None if closed else load.number_or_none("schedule_delay", "mean", low=-1e9),
        records=from_first_start([record for one in requests if (record := _record(one)) is not None]),
        cautions=(_RANDOM_GAPS,) if config is not None and config.text_or_none("load", "type") == "constant" else (),
    )


def _asked_length(config: JsonTree | None, name: str) -> float | None:
    return None if config is None else config.number_or_none("data", name, "mean")


def _record(request: JsonTree) -> RequestRecord | None:
    times = request.find("info", "response_metrics", "output_token_times")
    if "error" in request or times is None or times.find(0) is None:
        return None
    usage = request.find("info", "response_metrics", "server_usage")
    answer = request.at("info", "response_metrics")
    start_s = request.number("start_time")
    return RequestRecord(
        start_s=start_s,
        input_tokens=usage.whole("prompt_tokens") if usage is not None else request.whole("info", "input_tokens"),
        output_tokens=usage.whole("completion_tokens") if usage is not None else answer.whole("output_tokens"),
        ttft_s=times.number(0) - start_s,
        latency_s=request.number("end_time") - start_s,
    )
