"""Reads and writes llm-d's Benchmark Report 0.2.1.

A report is one point of one run. Units are part of the document, and this module refuses units that it does not know.
A report of guidellm states the latency per token of the whole request as TPOT, so the inter-token latency is taken.
"""

from collections.abc import Mapping
from typing import Any, Final

from penstock.load_tools.load_run import CountedBy, LatencyStatistics, LoadRun, TokenLength
from penstock.load_tools.read_statistics import latency_of_table
from penstock.reading.json_tree import JsonTree

VERSION: Final = "0.2.1"
_UNITS: Final[Mapping[str, float]] = {"ms": 1e-3, "s": 1.0, "ms/token": 1e-3, "s/token": 1.0}
_TOOLS: Final = {"vllm": "vllm-benchmark"}
_UNKNOWN: Final = "unknown"
_NO_COUNTER = "The report does not say who counted the tokens."


def is_benchmark_report(document: JsonTree) -> bool:
    """Return whether a document is a Benchmark Report."""
    return document.find("run", "uid") is not None and document.find("results") is not None


def read_benchmark_report(document: JsonTree) -> LoadRun:
    """Read a Benchmark Report. A report without latencies and rates is an error."""
    measured = document.at("results", "request_performance", "aggregate")
    latency, requests = measured.at("latency"), measured.at("requests")
    load = document.find("scenario", "load", "standardized")
    stack = document.find("scenario", "stack", 0, "standardized")
    tool = "unknown" if load is None else load.text_or_none("tool") or "unknown"
    total = requests.whole("total")
    failed = requests.whole("failures") if "failures" in requests else 0
    completed = total - failed - (requests.whole("incomplete") if "incomplete" in requests else 0)
    request_rate = measured.number("throughput", "request_rate", "mean", low=1e-12)
    tpot = "inter_token_latency" if tool == "guidellm" and "inter_token_latency" in latency else "time_per_output_token"
    return LoadRun(
        tool=next((ours for ours, theirs in _TOOLS.items() if theirs == tool), tool),
        tool_version=_text_if_known(None if load is None else load.text_or_none("tool_version")),
        where=document.where,
        duration_s=completed / request_rate,
        completed=completed,
        failed=failed,
        asked_requests=total,
        users=None if load is None or "concurrency" not in load else load.whole("concurrency", low=1),
        asked_rate_per_s=None if load is None else load.number_or_none("rate_qps", low=1e-12),
        input_length=_length(requests, load, "input"),
        output_length=_length(requests, load, "output"),
        ttft=_latency(latency.at("time_to_first_token")),
        tpot=_latency(latency.at(tpot)),
        request_latency=_latency(latency.at("request_latency")) if "request_latency" in latency else None,
        output_tokens_per_s=measured.number("throughput", "output_token_rate", "mean"),
        model=_text_if_known(None if stack is None else stack.text_or_none("model", "name")),
        engine=_text_if_known(None if stack is None else stack.text_or_none("tool")),
        engine_version=_text_if_known(None if stack is None else stack.text_or_none("tool_version")),
        accelerator=_text_if_known(None if stack is None else stack.text_or_none("accelerator", "model")),
        devices=None if stack is None or not stack.number_or_none("accelerator", "count") else _devices(stack),
        cautions=(_NO_COUNTER,),
    )


def benchmark_report(run: LoadRun, uid: str) -> dict[str, Any]:
    """Return the Benchmark Report of a run, with times in seconds and lengths as served."""
    load: dict[str, Any] = {
        "tool": _TOOLS.get(run.tool, run.tool),
        "tool_version": run.tool_version or _UNKNOWN,
        "source": "unknown",
        "input_seq_len": {"distribution": "other", "value": run.input_length.mean},
        "output_seq_len": {"distribution": "other", "value": run.output_length.mean},
    }
    if run.users is not None:
        load["concurrency"] = run.users
    if run.asked_rate_per_s is not None:
        load["rate_qps"] = run.asked_rate_per_s
    latency = {
        "time_to_first_token": _statistics(run.ttft, "s"),
        "time_per_output_token": _statistics(run.tpot, "s/token"),
    }
    if run.request_latency is not None:
        latency["request_latency"] = _statistics(run.request_latency, "s")
    requests = {
        "total": run.completed + run.failed,
        "failures": run.failed,
        "input_length": {"units": "count", "mean": run.input_length.mean},
        "output_length": {"units": "count", "mean": run.output_length.mean},
    }
    throughput = {
        "output_token_rate": {"units": "tokens/s", "mean": run.output_tokens_per_s},
        "request_rate": {"units": "queries/s", "mean": run.requests_per_s},
    }
    measured = {"requests": requests, "latency": latency, "throughput": throughput}
    report: dict[str, Any] = {
        "version": VERSION,
        "run": {"uid": uid},
        "scenario": {
            "stack": [{"metadata": {"label": "server", "cfg_id": uid}, "standardized": _stack(run), "native": {}}],
            "load": {"metadata": {}, "standardized": load, "native": {}},
        },
        "results": {"request_performance": {"aggregate": measured}},
    }
    if run.started is not None:
        report["run"]["time"] = {"start": run.started.isoformat(), "duration": f"PT{run.duration_s:.6f}S"}
    return report


def _stack(run: LoadRun) -> dict[str, Any]:
    """Return the measured server. The report demands every field."""
    return {
        "kind": "inference_engine",
        "tool": run.engine or _UNKNOWN,
        "tool_version": run.engine_version or _UNKNOWN,
        "role": "replica",
        "replicas": 1,
        "model": {"name": run.model or _UNKNOWN},
        "accelerator": {"model": run.accelerator or _UNKNOWN, "count": run.devices or 0, "parallelism": {}},
    }


def _statistics(latency: LatencyStatistics, units: str) -> dict[str, Any]:
    values = {"p50": latency.p50_s, "p90": latency.p90_s, "p95": latency.p95_s, "p99": latency.p99_s}
    stated = {name: value for name, value in values.items() if value is not None}
    return {"units": units, "mean": latency.mean_s, **stated}


def _latency(table: JsonTree) -> LatencyStatistics:
    units = table.text("units")
    if units not in _UNITS:
        raise table.at("units").error(f"must be one of {', '.join(_UNITS)}")
    return latency_of_table(table, _UNITS[units])


def _length(requests: JsonTree, load: JsonTree | None, side: str) -> TokenLength:
    asked = None if load is None else load.number_or_none(f"{side}_seq_len", "value")
    served = requests.number_or_none(f"{side}_length", "mean")
    if served is not None:
        return TokenLength(mean=served, counted_by=CountedBy.UNKNOWN, asked=asked)
    if asked is None:
        raise requests.at(f"{side}_length").error("is missing")
    return TokenLength(mean=asked, counted_by=CountedBy.ASKED, asked=asked)


def _devices(stack: JsonTree) -> int:
    """Return the accelerators of one replica. The report counts those of all replicas."""
    return stack.whole("accelerator", "count") // (stack.whole("replicas", low=1) if "replicas" in stack else 1)


def _text_if_known(text: str | None) -> str | None:
    """Return a text, or None if the report says that it is unknown."""
    return None if text == _UNKNOWN else text
