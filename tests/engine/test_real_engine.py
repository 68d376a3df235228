"""A real vLLM on this machine's CPU beside the simulator: about four minutes.

PENSTOCK_VLLM names the Python of an environment with vLLM, as `tools/install_vllm.sh` builds it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.calibration import Fit
from engine.comparison import compare, simulate_part, steps_before_the_first_token
from engine.record import SHAPE, TIGHT, overload, steady
from engine.recording import Recording, line_up, record
from engine.server import Server, serve

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    python = os.environ.get("PENSTOCK_VLLM")
    if not python:
        pytest.skip("PENSTOCK_VLLM does not name the Python of an environment with vLLM")
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("binding the engine to a core and watching it needs Linux")
    with serve(python, TIGHT, shape=SHAPE) as running:
        yield running


def tolerance(recording: Recording) -> float:
    """A fifth, and what the machine's own speed moved meanwhile: a neighbour's work is not the simulator's error."""
    return 0.2 + recording.unrest_fraction()


@pytest.mark.parametrize("seed", [31, 32])
def test_a_line_of_requests_takes_exactly_the_steps_preemptions_and_hits_of_the_engine(
    server: Server, seed: int
) -> None:
    (trace,) = overload(seed=seed, parts=1)
    part = line_up(server, SHAPE, trace)
    simulated = simulate_part(part, TIGHT, server.num_blocks() - 1, Fit(step_s=1.0))
    assert part.counts.preemptions > 5
    assert simulated.steps - steps_before_the_first_token(part, TIGHT) == part.counts.steps
    assert simulated.preemptions == part.counts.preemptions
    assert simulated.prefix_hit_tokens == part.counts.prefix_hit_tokens


def test_latencies_of_a_steady_load_are_those_of_the_engine(server: Server) -> None:
    recording = record(server, TIGHT, SHAPE, steady(seed=10, parts=3, rate_per_s=4.0))
    ratios = compare(recording)
    assert ratios.ttft_p50 == pytest.approx(1, abs=tolerance(recording))
    assert ratios.tpot_p50 == pytest.approx(1, abs=tolerance(recording))
    assert ratios.prefix_hit_tokens == pytest.approx(1, abs=0.2)


def test_preemptions_and_latencies_of_an_overload_are_those_of_the_engine(server: Server) -> None:
    recording = record(server, TIGHT, SHAPE, overload(seed=20, parts=3))
    assert sum(part.counts.preemptions for part in recording.parts) > 10
    ratios = compare(recording)
    assert ratios.preemptions == pytest.approx(1, abs=0.2)
    assert ratios.prefix_hit_tokens == pytest.approx(1, abs=0.2)
    assert ratios.ttft_p50 == pytest.approx(1, abs=tolerance(recording))
    assert ratios.tpot_p50 == pytest.approx(1, abs=tolerance(recording))
