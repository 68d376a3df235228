"""Reads result files of SGLang's serving benchmark (`sglang.bench_serving`, `sglang.benchmark.serving`)."""

from penstock.load_tools.load_run import CountedBy, LoadRun, TokenLength
from penstock.load_tools.read_statistics import (
    MILLISECONDS,
    closed_loop_users,
    finite_rate,
    latency_of_keys,
    most_in_flight,
)
from penstock.reading.json_tree import JsonTree

_LENGTHS_ASKED = (
    "SGLang's benchmark reports the lengths that it asked for, not those that the server counted; the chat template "
    "adds a few tokens to each prompt."
)
_NO_STARTS = "The file has no start times, so the arrivals are those of an ideal closed loop or Poisson process."


def is_sglang_bench(document: JsonTree) -> bool:
    """Return whether a document is one line of a result file of SGLang's benchmark."""
    return all(key in document for key in ("mean_e2e_latency_ms", "mean_ttft_ms", "total_throughput", "dataset_name"))


def read_sglang_bench(document: JsonTree) -> LoadRun:
    """Read one line of a result file of SGLang's benchmark."""
    completed, total_output = document.whole("completed"), document.number("total_output_tokens")
    duration_s = document.number("duration", low=1e-9)
    rate = finite_rate(document, "request_rate")
    return LoadRun(
        tool="sglang",
        where=document.where,
        duration_s=duration_s,
        completed=completed,
        failed=_count_failures(document),
        users=closed_loop_users(document, rate),
        asked_rate_per_s=rate,
        most_in_flight=most_in_flight(document, rate),
        input_length=TokenLength(
            mean=document.number("total_input_tokens") / max(1, completed),
            counted_by=CountedBy.ASKED,
            asked=document.number_or_none("random_input_len"),
        ),
        output_length=TokenLength(
            mean=total_output / max(1, completed),
            counted_by=CountedBy.ASKED,
            asked=document.number_or_none("random_output_len"),
        ),
        ttft=latency_of_keys(document, "{}_ttft_ms", MILLISECONDS, median="median"),
        tpot=latency_of_keys(document, "{}_tpot_ms", MILLISECONDS, median="median"),
        request_latency=latency_of_keys(document, "{}_e2e_latency_ms", MILLISECONDS, median="median"),
        output_tokens_per_s=total_output / duration_s,
        model=document.text_or_none("server_info", "served_model_name"),
        engine="sglang" if "server_info" in document else None,
        engine_version=document.text_or_none("server_info", "version"),
        accepted_tokens=document.number_or_none("accept_length"),
        cautions=(_LENGTHS_ASKED, _NO_STARTS),
    )


def _count_failures(document: JsonTree) -> int:
    errors = document.find("errors")
    return 0 if errors is None else sum(bool(entry.value) for entry in errors.items())
