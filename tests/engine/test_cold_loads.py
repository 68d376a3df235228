"""How well do the rules for starts and loads say what a real vLLM on one core of a CPU did? Recorded loads.

The files were not in the page cache. An adapter was loaded over HTTP by a running engine.
"""

import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from penstock.catalog.own_accelerator import read_accelerator
from penstock.performance.residency.host_loads import host_loads
from penstock.performance.residency.lora_adapters import adapter_load_s
from penstock.performance.residency.transition_times import start, wake_from_disk

DATA = Path(__file__).resolve().parent.parent / "data"
CORE = read_accelerator(DATA / "vllm_cpu_loops" / "bfloat16.toml")
LOADS = json.loads((DATA / "vllm_cpu_cold_loads.json").read_text(encoding="utf-8"))


def of_kind(kind: str) -> dict[int, list[dict[str, Any]]]:
    found = defaultdict(list)
    for row in LOADS:
        if row["kind"] == kind:
            found[row["bytes"]].append(row)
    return dict(sorted(found.items()))


def test_four_sizes_were_started_and_read_again() -> None:
    sizes = list(of_kind("start"))
    assert sizes == list(of_kind("reload"))
    assert len(sizes) == 4
    assert sizes[0] < 1e8
    assert sizes[-1] > 1.9e9


def test_starts_and_reloads_are_within_a_tenth_of_the_line_through_two_sizes() -> None:
    """The smallest and the largest model tell the line of this host; the two between them test it."""
    for kind, rule in (("start", start), ("reload", wake_from_disk)):
        seconds = {size: median(row["seconds"] for row in found) for size, found in of_kind(kind).items()}
        ends = [(size, seconds[size]) for size in (min(seconds), max(seconds))]
        for size, measured_s in seconds.items():
            found = rule(CORE, "vllm", size, host=host_loads(ends))
            assert found is not None
            assert found.median_s == pytest.approx(measured_s, rel=0.1), size


def test_published_starts_span_those_of_this_host() -> None:
    """The rule without times of the host is a third too long by its median, and all four starts are in P10-P90."""
    for size, (row,) in of_kind("start").items():
        found = start(CORE, "vllm", size)
        assert found is not None
        assert found.low_s < row["seconds"] < found.high_s
        assert row["seconds"] < found.median_s < 1.4 * row["seconds"]


def test_a_reload_reads_slower_than_a_first_load_and_starts_faster_than_a_published_wake() -> None:
    """Why the published rule is wrong here: 0.5 s before bytes move, and the rate of a disk where a load has half."""
    reloads = host_loads([(row["bytes"], row["seconds"]) for found in of_kind("reload").values() for row in found])
    first = host_loads([(row["bytes"], row["loading_s"]) for (row,) in of_kind("start").values()])
    disk_s_per_byte = 1 / median(row["disk_bytes_per_s"] for row in LOADS)
    assert reloads.fixed_s < 0.1
    assert 1.2 < first.s_per_byte / disk_s_per_byte < 1.6
    assert 1.4 < reloads.s_per_byte / first.s_per_byte < 1.8


def test_adapters_of_five_ranks_are_within_a_quarter_of_the_rule_with_the_rate_of_the_disk() -> None:
    rate = median(row["disk_bytes_per_s"] for row in LOADS)
    loads = of_kind("adapter")
    assert len(loads) == 5
    for size, found in loads.items():
        assert len(found) == 3
        measured_s = median(row["seconds"] for row in found)
        assert adapter_load_s(size, disk_bytes_per_s=rate).median == pytest.approx(measured_s, rel=0.25), size
