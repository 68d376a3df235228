"""What a real vLLM did with a trace, and what the simulator says it does: recorded runs, replayed offline.

Steady: arrivals the engine can follow, a roomy cache. Overload: three times what it can serve, a tight cache. Lined up:
the requests of the overload wait in the queue before the first step, so that no count depends on the machine's speed.
Each was chosen among repetitions by how little the machine's speed moved between calibrations.
"""

from pathlib import Path

import pytest

from engine.calibration import Fit
from engine.comparison import compare, simulate_part, steps_before_the_first_token
from engine.recording import read

RUNS = Path(__file__).resolve().parent.parent / "data" / "vllm_cpu_runs"
NAMES = ["steady", "overload", "lined_up"]


@pytest.mark.parametrize("name", NAMES)
def test_median_latencies_are_within_a_fifth_of_the_real_engine(name: str) -> None:
    ratios = compare(read(RUNS / f"{name}.json"))
    assert ratios.ttft_p50 == pytest.approx(1, abs=0.2)
    assert ratios.tpot_p50 == pytest.approx(1, abs=0.2)


def test_prefix_hits_are_exactly_those_of_the_real_engine_when_nothing_is_evicted() -> None:
    assert compare(read(RUNS / "steady.json")).prefix_hit_tokens == 1


def test_counts_under_cache_pressure_are_within_a_tenth_of_the_real_engine() -> None:
    recording = read(RUNS / "overload.json")
    assert sum(part.counts.preemptions for part in recording.parts) > 50
    ratios = compare(recording)
    assert ratios.preemptions == pytest.approx(1, abs=0.1)
    assert ratios.prefix_hit_tokens == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("step_s", [1.0, 0.001])
def test_what_was_lined_up_takes_exactly_the_steps_preemptions_and_hits_of_the_real_engine(step_s: float) -> None:
    recording = read(RUNS / "lined_up.json")
    for part in recording.parts:
        simulated = simulate_part(part, recording.settings, recording.num_blocks, Fit(step_s=step_s))
        assert simulated.steps - steps_before_the_first_token(part, recording.settings) == part.counts.steps
        assert simulated.preemptions == part.counts.preemptions > 10
        assert simulated.prefix_hit_tokens == part.counts.prefix_hit_tokens > 1000


@pytest.mark.parametrize("name", NAMES)
def test_the_client_saw_what_the_engine_says_it_did(name: str) -> None:
    for part in read(RUNS / f"{name}.json").parts:
        gaps = sum(part.trace.output_tokens) - len(part.trace)
        assert sum(part.e2e_s) - sum(part.ttft_s) == pytest.approx(part.counts.decode_sum_s, rel=0.02)
        # An event with two tokens is one gap to the engine's front end.
        assert part.counts.itl_count == pytest.approx(gaps, rel=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_small_and_keeps_what_it_read(name: str, tmp_path: Path) -> None:
    recording = read(RUNS / f"{name}.json")
    recording.write(tmp_path / "again.json")
    assert read(tmp_path / "again.json") == recording
    assert (RUNS / f"{name}.json").stat().st_size < 300_000
