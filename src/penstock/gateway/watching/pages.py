"""What does a metrics page say? The few lines a router needs, read straight from vLLM's or SGLang's page."""

import math
import re
from dataclasses import dataclass
from typing import Final

_MOST: Final = 1e15
_LABEL: Final = re.compile(rb'(\w+)="([^"\n]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class PageReport:
    """One endpoint at one moment. Sums are since it started; a sum it does not publish stays 0."""

    running: int
    waiting: int
    kv_used_tokens: int
    kv_tokens: int
    """0 where it does not say."""
    ttft: tuple[float, float]
    """Seconds, and of how many requests."""
    itl: tuple[float, float]
    output: tuple[float, float]
    prompt_tokens: float

    @property
    def most(self) -> float:
        """The largest of its figures."""
        counts = (self.running, self.waiting, self.kv_used_tokens, self.kv_tokens, self.prompt_tokens)
        return max(*counts, *self.ttft, *self.itl, *self.output)


def read_page(page: bytes) -> PageReport | None:
    """Read a page of either engine; None where it is neither, or says what cannot be."""
    page = b"\n" + page
    report = None
    if b"\nvllm:num_requests_running" in page:
        report = _vllm(page)
    elif b"\nsglang:num_running_reqs" in page:
        report = _sglang(page)
    # Lines that can be each may add up to what cannot.
    return report if report is not None and report.most < _MOST else None


def _vllm(page: bytes) -> PageReport | None:
    running, waiting = _values(page, b"vllm:num_requests_running"), _values(page, b"vllm:num_requests_waiting")
    usage = _values(page, b"vllm:kv_cache_usage_perc") or _values(page, b"vllm:gpu_cache_usage_perc")
    if not running or not waiting:
        return None
    kv_tokens = sum(_kv_tokens(labels) for labels in _lines(page, b"vllm:cache_config_info"))
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
    )


def _sglang(page: bytes) -> PageReport | None:
    running, waiting = _values(page, b"sglang:num_running_reqs"), _values(page, b"sglang:num_queue_reqs")
    if not running or not waiting:
        return None
    # Every tensor-parallel rank publishes the same figures; data-parallel ranks have pages of their own.
    used, capacity = _values(page, b"sglang:num_used_tokens"), _values(page, b"sglang:max_total_num_tokens")
    return PageReport(
        running=int(max(running)),
        waiting=int(max(waiting)),
        kv_used_tokens=int(max(used, default=0.0)),
        kv_tokens=int(max(capacity, default=0.0)),
        ttft=_sum_and_count(page, b"sglang:time_to_first_token_seconds"),
        itl=_sum_and_count(page, b"sglang:inter_token_latency_seconds"),
        output=_sum_and_count(page, b"sglang:generation_tokens_histogram"),
        prompt_tokens=sum(_values(page, b"sglang:prompt_tokens_total")),
    )


def _lines(page: bytes, name: bytes) -> list[bytes]:
    """Everything behind a name, line by line."""
    found, start = [], b"\n" + name
    at = page.find(start)
    while at >= 0:
        end = page.find(b"\n", at + 1)
        line = page[at + len(start) : end if end >= 0 else len(page)]
        if line[:1] in {b"{", b" "}:
            found.append(line)
        at = page.find(start, at + len(start))
    return found


def _values(page: bytes, name: bytes) -> list[float]:
    """The values of a metric that can be: finite and not negative."""
    values = []
    for line in _lines(page, name):
        try:
            value = float(line[line.rfind(b"}") + 1 :].split()[0])
        except (ValueError, IndexError):
            continue
        if math.isfinite(value) and 0 <= value < _MOST:
            values.append(value)
    return values


def _sum_and_count(page: bytes, name: bytes) -> tuple[float, float]:
    return sum(_values(page, name + b"_sum")), sum(_values(page, name + b"_count"))


def _kv_tokens(labels: bytes) -> int:
    """Tokens the cache holds, as vLLM's configuration says."""
    told = {key: value for key, value in _LABEL.findall(labels) if value.isdigit() and len(value) < 15}  # noqa: PLR2004
    if b"kv_cache_size_tokens" in told:
        return int(told[b"kv_cache_size_tokens"])
    return int(told.get(b"num_gpu_blocks", b"0")) * int(told.get(b"block_size", b"0"))
