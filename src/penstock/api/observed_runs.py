"""Reads what a running gateway's endpoints have served, as runs that can correct predictions.

The gateway's metrics page names its endpoints. Each endpoint counts its requests, tokens and times since it started.
The difference of two readings is what the endpoint served between them.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from penstock.api.progress import ProgressListener
from penstock.errors import UsageError
from penstock.gateway.metrics_view import read_view
from penstock.load_tools.load_run import CountedBy, LatencyStatistics, LoadRun, TokenLength
from penstock.parity.http_client import EndpointError, get_text
from penstock.prometheus_text import read_samples

ENOUGH_REQUESTS: Final = 500
_POLL_S: Final = 1.0
_MIN_REQUESTS: Final = 20
"""Requests of one endpoint below which its means are too uncertain."""
_COUNTERS: Final[Mapping[str, Mapping[str, str]]] = {
    "vllm": {
        "prompt_tokens": "vllm:prompt_tokens_total",
        "output_tokens": "vllm:generation_tokens_total",
        "hits": "vllm:prefix_cache_hits_total",
        "queries": "vllm:prefix_cache_queries_total",
        "preemptions": "vllm:num_preemptions_total",
    },
    "sglang": {"prompt_tokens": "sglang:prompt_tokens_total", "output_tokens": "sglang:generation_tokens_total"},
}
_TIMES: Final = {
    "ttft": "time_to_first_token_seconds",
    "itl": "inter_token_latency_seconds",
    "e2e": "e2e_request_latency_seconds",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Counters of one endpoint at one moment."""

    at_s: float
    engine: str
    counts: Mapping[str, float]


def is_gateway(place: str) -> bool:
    """Return whether a place is the address of a metrics page, and not a file."""
    return urlsplit(place).scheme in {"http", "https"}


def observed_runs(url: str, pool: str | None, seconds: float, watch: ProgressListener) -> list[LoadRun]:
    """Watch the endpoints of a gateway's pool until they have served enough requests, or until the time is over.

    Return one run per endpoint that served enough requests for a mean.
    """
    base = url.removesuffix("/metrics").rstrip("/")
    endpoints = _endpoints(base, pool)
    before = {address: _read(address) for address in endpoints}
    ends_s = time.monotonic() + seconds
    while True:
        time.sleep(min(_POLL_S, max(0.0, ends_s - time.monotonic())))
        after = {address: _read(address) for address in endpoints}
        served = sum(_count_served(before[address], after[address]) for address in endpoints)
        watch.progress("counting requests", min(int(served), ENOUGH_REQUESTS), ENOUGH_REQUESTS)
        if served >= ENOUGH_REQUESTS or time.monotonic() >= ends_s:
            break
    found = [_run(address, before[address], after[address]) for address in endpoints]
    usable = [run for run in found if run is not None]
    if not usable:
        raise UsageError(
            f"--from-gateway: no endpoint served {_MIN_REQUESTS} requests in {seconds:g} s; wait longer with --seconds"
        )
    return usable


def _endpoints(base: str, pool: str | None) -> list[str]:
    view = read_view(get_text(base, "/metrics"))
    pools = list(dict.fromkeys(one.pool for one in view.endpoints))
    if not pools:
        raise UsageError(f"{base}/metrics lists no endpoints; give the address of `penstock route --metrics`")
    if pool is None and len(pools) > 1:
        raise UsageError(f"--from-gateway: runs are of one setup; add --pool with one of {', '.join(pools)}")
    chosen = pools[0] if pool is None else pool
    if chosen not in pools:
        raise UsageError(f"--pool: the gateway has no pool '{chosen}'; write one of {', '.join(pools)}")
    return [one.address for one in view.endpoints if one.pool == chosen]


def _read(address: str) -> _Reading:
    """Read the counters of an endpoint."""
    page = get_text(f"http://{address}", "/metrics")
    totals: dict[str, float] = {}
    for sample in read_samples(page):
        totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    engine = next((name for name in _COUNTERS if any(key.startswith(f"{name}:") for key in totals)), None)
    if engine is None:
        raise EndpointError(f"http://{address}/metrics is not a page of vLLM or SGLang")
    counts = {name: totals[key] for name, key in _COUNTERS[engine].items() if key in totals}
    for name, key in _TIMES.items():
        counts |= {f"{name}_{part}": totals.get(f"{engine}:{key}_{part}", 0.0) for part in ("sum", "count")}
    return _Reading(at_s=time.monotonic(), engine=engine, counts=counts)


def _count_served(before: _Reading, after: _Reading) -> float:
    return after.counts["e2e_count"] - before.counts["e2e_count"]


def _run(address: str, before: _Reading, after: _Reading) -> LoadRun | None:
    """Return what an endpoint served between two readings; None if it served too few requests."""
    served = {name: value - before.counts.get(name, 0.0) for name, value in after.counts.items()}
    count, seconds = int(served["e2e_count"]), after.at_s - before.at_s
    if count < _MIN_REQUESTS or served["ttft_count"] <= 0 or served["itl_count"] <= 0:
        return None
    queries = served.get("queries", 0.0)
    return LoadRun(
        tool="gateway",
        where=address,
        duration_s=seconds,
        completed=count,
        failed=0,
        input_length=TokenLength(mean=served["prompt_tokens"] / served["ttft_count"], counted_by=CountedBy.SERVER),
        output_length=TokenLength(mean=1 + served["itl_count"] / served["ttft_count"], counted_by=CountedBy.SERVER),
        ttft=LatencyStatistics(mean_s=served["ttft_sum"] / served["ttft_count"]),
        tpot=LatencyStatistics(mean_s=served["itl_sum"] / served["itl_count"]),
        request_latency=LatencyStatistics(mean_s=served["e2e_sum"] / count),
        output_tokens_per_s=count * (1 + served["itl_count"] / served["ttft_count"]) / seconds,
        engine=after.engine,
        cached_prompt_fraction=served["hits"] / queries if queries > 0 else None,
    )
