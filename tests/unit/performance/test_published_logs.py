"""KV-cache sizes against published start-up logs of real servers; each log's address is in tests/data."""

import statistics

import pytest

from penstock.catalog import load_accelerator
from published_logs import LOGS, error, predicted, tokens_as_logged


def errors(vendor: str) -> list[float]:
    return [error(log) for log in LOGS if load_accelerator(log["accelerator"]).vendor == vendor]


def test_there_are_enough_logs_of_both_vendors() -> None:
    assert len(errors("amd")) >= 15
    assert len(errors("nvidia")) >= 30
    assert all(log["url"].startswith("https://") for log in LOGS)


@pytest.mark.parametrize("vendor", ["amd", "nvidia"])
def test_kv_cache_sizes_are_reproduced(vendor: str) -> None:
    found = [abs(error) for error in errors(vendor)]
    assert sum(1 for error in found if error <= 0.08) >= 10
    assert statistics.median(found) <= 0.04


def test_most_logs_lie_within_the_stated_range() -> None:
    inside = 0
    for log in LOGS:
        result = predicted(log)
        assert result.capacity is not None
        shown = tokens_as_logged(result)
        scale = shown / result.capacity.tokens if result.capacity.tokens else 1.0
        inside += result.capacity.low_tokens * scale <= log["kv_tokens"] <= result.capacity.high_tokens * scale
    assert inside / len(LOGS) >= 0.75
