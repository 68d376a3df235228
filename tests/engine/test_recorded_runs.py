"""What a real vLLM did with a trace, and what the simulator says it does: recorded runs, replayed offline.

The recordings were chosen among repetitions by how little the machine's speed moved between calibrations.
"""

from pathlib import Path

import pytest

from engine.comparison import compare
from engine.recording import read

RUNS = Path(__file__).resolve().parent.parent / "data" / "vllm_cpu_runs"


@pytest.mark.parametrize("name", ["steady", "overload"])
def test_median_latencies_are_within_a_fifth_of_the_real_engine(name: str) -> None:
    ratios = compare(read(RUNS / f"{name}.json"))
    assert ratios.ttft_p50 == pytest.approx(1, abs=0.2)
    assert ratios.tpot_p50 == pytest.approx(1, abs=0.2)


def test_prefix_hits_are_those_of_the_real_engine_when_nothing_is_evicted() -> None:
    assert compare(read(RUNS / "steady.json")).prefix_hit_tokens == 1


def test_counts_under_cache_pressure_are_within_a_tenth_of_the_real_engine() -> None:
    recording = read(RUNS / "overload.json")
    assert sum(part.counts.preemptions for part in recording.parts) > 50
    ratios = compare(recording)
    assert ratios.preemptions == pytest.approx(1, abs=0.1)
    assert ratios.prefix_hit_tokens == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("name", ["steady", "overload"])
def test_a_recording_keeps_what_it_read(name: str, tmp_path: Path) -> None:
    recording = read(RUNS / f"{name}.json")
    recording.write(tmp_path / "again.json")
    assert read(tmp_path / "again.json") == recording
    assert (RUNS / f"{name}.json").stat().st_size < 300_000
