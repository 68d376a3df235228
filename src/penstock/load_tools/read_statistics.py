"""Reads latencies from the tables in which load tools write their statistics."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from penstock.load_tools.load_run import LatencyStatistics, RequestRecord
from penstock.reading.json_tree import JsonTree

MILLISECONDS: Final = 1e-3
SECONDS: Final = 1.0
SCALE_BY_UNIT: Final[Mapping[str, float]] = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
"""Seconds of each unit of time that a load tool names."""


def latency_of_table(table: JsonTree, unit_s: float, *, mean: str = "mean", median: str = "p50") -> LatencyStatistics:
    """Read a latency from a table whose keys are the statistics."""
    return latency_of_keys(table, "{}", unit_s, mean=mean, median=median)


def latency_of_keys(
    table: JsonTree, pattern: str, unit_s: float, *, mean: str = "mean", median: str = "p50"
) -> LatencyStatistics:
    """Read a latency from keys such as `mean_ttft_ms`. The pattern has a place for the statistic."""

    def value(statistic: str) -> float | None:
        return table.number_or_none(pattern.format(median if statistic == "p50" else statistic))

    return latency_of(table.number(pattern.format(mean)), value, unit_s)


def latency_of(mean: float, percentile: Callable[[str], float | None], unit_s: float) -> LatencyStatistics:
    """Convert the mean and the percentiles `p50` to `p99` of a latency to seconds."""
    p50, p90, p95, p99 = (
        None if (value := percentile(name)) is None else value * unit_s for name in ("p50", "p90", "p95", "p99")
    )
    return LatencyStatistics(mean_s=mean * unit_s, p50_s=p50, p90_s=p90, p95_s=p95, p99_s=p99)


def unit_of(table: JsonTree) -> float:
    """Return the seconds of the unit that a table names under `unit`."""
    name = table.text("unit")
    if name not in SCALE_BY_UNIT:
        raise table.at("unit").error(f"must be one of {', '.join(SCALE_BY_UNIT)}")
    return SCALE_BY_UNIT[name]


def from_first_start(records: Iterable[RequestRecord]) -> tuple[RequestRecord, ...]:
    """Return records in the order of their starts, with starts relative to the first one."""
    ordered = sorted(records, key=lambda record: record.start_s)
    return tuple(replace(record, start_s=record.start_s - ordered[0].start_s) for record in ordered)


def seconds_of_records(records: Sequence[RequestRecord]) -> float:
    """Return the time from the first start to the last end."""
    return max(record.start_s + record.latency_s for record in records) - records[0].start_s


def finite_rate(document: JsonTree, key: str) -> float | None:
    """Return the requests per second of an open loop, or None if the rate is absent or infinite.

    vLLM writes an infinite rate as a text, SGLang as the constant Infinity.
    """
    found = document.find(key)
    if found is None or found.value in ("inf", inf):
        return None
    return found.number(low=1e-9)


def most_in_flight(document: JsonTree, rate_per_s: float | None) -> int | None:
    """Return the requests in flight at which an open loop of vLLM's or SGLang's tool waits; None without a limit."""
    if rate_per_s is None or "max_concurrency" not in document:
        return None
    return document.whole("max_concurrency", low=1)


def closed_loop_users(document: JsonTree, rate_per_s: float | None) -> int | None:
    """Return the users of a closed loop of vLLM's or SGLang's benchmark; None in an open loop.

    Without a limit on concurrency and without a rate, all requests start at once.
    """
    if rate_per_s is not None:
        return None
    return document.whole("max_concurrency", low=1) if "max_concurrency" in document else document.whole("completed")
