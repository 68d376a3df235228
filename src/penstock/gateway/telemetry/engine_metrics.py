"""Parses the metrics that a router needs from the metrics page of vLLM or SGLang."""

import math
import re
from dataclasses import dataclass
from typing import Final

_MAX_VALUE: Final = 1e15
_LABEL: Final = re.compile(rb'(\w+)="([^"\n]*)"')
_DP_RANK: Final = re.compile(rb'\bdp_rank="(\d{1,6})"')
_MODEL: Final = re.compile(rb'\bmodel_name="([^"\n]{1,256})"')
_DIGITS: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class PageReport:
    """State of one endpoint at one moment.

    Each sum covers the time since the start of the engine; a sum that the engine does not publish is 0.
    """

    running: int
    waiting: int
    kv_used_tokens: int
    kv_tokens: int
    """KV cache size in tokens; 0 if the engine does not publish it."""
    ttft: tuple[float, float]
    """Sum of the TTFT of all requests in seconds, and the number of requests."""
    itl: tuple[float, float]
    output: tuple[float, float]
    prompt_tokens: float
    generated_tokens: float = 0.0
    """Output tokens, with those of requests that have not ended or whose client left."""
    models: frozenset[str] = frozenset()
    """Names of the served models. If a model has several names, the metrics page has only the first name."""

    @property
    def largest(self) -> float:
        """The largest number in this report."""
        counts = (self.running, self.waiting, self.kv_used_tokens, self.kv_tokens)
        return max(*counts, self.prompt_tokens, self.generated_tokens, *self.ttft, *self.itl, *self.output)


def read_page(page: bytes) -> PageReport | None:
    """Parse the metrics page of vLLM or SGLang.

    Return None for any other page, or if the page has impossible values.
    """
    page = b"\n" + page
    report = None
    if b"\nvllm:num_requests_running" in page:
        report = _vllm(page)
    elif b"\nsglang:num_running_reqs" in page:
        report = _sglang(page)
    # The values of single lines may be plausible, but their sum impossible.
    return report if report is not None and report.largest < _MAX_VALUE else None


def _vllm(page: bytes) -> PageReport | None:
    running, waiting = _values(page, b"vllm:num_requests_running"), _values(page, b"vllm:num_requests_waiting")
    usage = _values(page, b"vllm:kv_cache_usage_perc") or _values(page, b"vllm:gpu_cache_usage_perc")
    if not running or not waiting:
        return None
    kv_tokens = _vllm_kv_tokens(_lines(page, b"vllm:cache_config_info"))
    used = sum(min(1.0, each) for each in usage) / len(usage) * kv_tokens if usage else 0.0
    return PageReport(
        running=int(sum(running)),
        waiting=int(sum(waiting)),
        kv_used_tokens=int(used),
        kv_tokens=kv_tokens,
        ttft=_sum_and_count(page, b"vllm:time_to_first_token_seconds"),
        itl=_sum_and_count(page, b"vllm:inter_token_latency_seconds"),
        output=_sum_and_count(page, b"vllm:request_generation_tokens"),
        prompt_tokens=sum(_values(page, b"vllm:prompt_tokens_total")),
        generated_tokens=sum(_values(page, b"vllm:generation_tokens_total")),
        models=_models(page, b"vllm:num_requests_running"),
    )


def _sglang(page: bytes) -> PageReport | None:
    running, waiting = _values(page, b"sglang:num_running_reqs"), _values(page, b"sglang:num_queue_reqs")
    if not running or not waiting:
        return None
    return PageReport(
        running=_sum_of_ranks(page, b"sglang:num_running_reqs"),
        waiting=_sum_of_ranks(page, b"sglang:num_queue_reqs"),
        kv_used_tokens=_sum_of_ranks(page, b"sglang:num_used_tokens"),
        kv_tokens=_sum_of_ranks(page, b"sglang:max_total_num_tokens"),
        ttft=_sum_and_count(page, b"sglang:time_to_first_token_seconds"),
        itl=_sum_and_count(page, b"sglang:inter_token_latency_seconds"),
        output=_sum_and_count(page, b"sglang:generation_tokens_histogram"),
        prompt_tokens=sum(_values(page, b"sglang:prompt_tokens_total")),
        generated_tokens=sum(_values(page, b"sglang:generation_tokens_total")),
        models=_models(page, b"sglang:num_running_reqs"),
    )


def _sum_of_ranks(page: bytes, name: bytes) -> int:
    """Return the sum of a metric over all data-parallel ranks. The value of a rank is the largest value on its lines.

    SGLang publishes all data-parallel ranks of one address on one page, and the label `dp_rank` names the rank. All
    tensor-parallel ranks of a data-parallel rank publish the same value. Lines with a priority label count only that
    priority, so the largest value is the total of the data-parallel rank.
    """
    largest: dict[bytes, float] = {}
    for line in _lines(page, name):
        match, value = _DP_RANK.search(line), _value(line)
        rank = match[1] if match else b""
        if value is not None:
            largest[rank] = max(value, largest.get(rank, 0.0))
    return int(sum(largest.values()))


def _models(page: bytes, name: bytes) -> frozenset[str]:
    matches = (_MODEL.search(line) for line in _lines(page, name))
    return frozenset(match[1].decode("utf-8", "replace") for match in matches if match)


def _lines(page: bytes, name: bytes) -> list[bytes]:
    """Return the text after the metric's name, for each line of a metric."""
    lines, start = [], b"\n" + name
    at = page.find(start)
    while at >= 0:
        end = page.find(b"\n", at + 1)
        line = page[at + len(start) : end if end >= 0 else len(page)]
        if line[:1] in {b"{", b" "}:
            lines.append(line)
        at = page.find(start, at + len(start))
    return lines


def _values(page: bytes, name: bytes) -> list[float]:
    """Return a metric's plausible values, which are finite, not negative, and not too large."""
    return [value for line in _lines(page, name) if (value := _value(line)) is not None]


def _value(line: bytes) -> float | None:
    try:
        value = float(line[line.rfind(b"}") + 1 :].split()[0])
    except (ValueError, IndexError):
        return None
    return value if math.isfinite(value) and 0 <= value < _MAX_VALUE else None


def _sum_and_count(page: bytes, name: bytes) -> tuple[float, float]:
    return sum(_values(page, name + b"_sum")), sum(_values(page, name + b"_count"))


def _vllm_kv_tokens(lines: list[bytes]) -> int:
    """Return the KV cache size of all ranks in tokens, from vLLM's configuration metric.

    vLLM publishes one line per data-parallel rank. The label `kv_cache_size_tokens` is the size of the line's rank, but
    `num_gpu_blocks` is the total of all ranks (v1/engine/core_client.py). Some versions of vLLM publish only
    `num_gpu_blocks`.
    """
    of_one, of_all = 0, 0
    for line in lines:
        labels = {key: int(value) for key, value in _LABEL.findall(line) if value.isdigit() and len(value) < _DIGITS}
        of_one += labels.get(b"kv_cache_size_tokens", 0)
        of_all = max(of_all, labels.get(b"num_gpu_blocks", 0) * labels.get(b"block_size", 0))
    return of_one or of_all
