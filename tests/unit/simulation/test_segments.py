"""Memory grows with what caches hold, not with how many conversations there were."""

import numpy as np
import pytest

from penstock.simulation import run
from penstock.simulation.loop.segment_places import SegmentPlaces
from penstock.simulation.outcome import Outcome
from penstock.simulation.run_options import Options
from penstock.workload import Conversations, Fixed, Workload
from penstock.workload.synthetic.arrivals import Poisson
from simulated import pool

CHAT = Workload(
    name="chat",
    arrivals=Poisson(),
    lengths=Fixed(input_tokens=200, output_tokens=50),
    sharing=Conversations(mean_turns=5.0, turn_gap_s=20.0, max_history_tokens=4000),
)


def served(requests: int, monkeypatch: pytest.MonkeyPatch, kind: type[SegmentPlaces]) -> tuple[Outcome, int]:
    made: list[SegmentPlaces] = []

    def remember() -> SegmentPlaces:
        made.append(kind())
        return made[-1]

    monkeypatch.setattr(run, "SegmentPlaces", remember)
    blocks = CHAT.blocks(seed=1, requests=requests, rate_per_s=20.0, block_requests=2_000)
    outcome = run.simulate([pool(kv_blocks=2_000, replicas=2)], blocks, options=Options(keep_requests=True))
    return outcome, made[0].size


class Hoarding(SegmentPlaces):
    """Never lets a place go."""

    def _collect(self, *_: object) -> None:
        pass


def test_places_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _, some = served(10_000, monkeypatch, SegmentPlaces)
    _, four_times = served(40_000, monkeypatch, SegmentPlaces)
    _, hoarded = served(40_000, monkeypatch, Hoarding)
    assert four_times <= 2 * some
    assert four_times < hoarded / 2


def test_using_places_again_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    thrifty, _ = served(20_000, monkeypatch, SegmentPlaces)
    hoarded, _ = served(20_000, monkeypatch, Hoarding)
    assert thrifty.served is not None
    assert hoarded.served is not None
    assert thrifty.pools[0].hit_tokens > 0
    assert np.array_equal(thrifty.served.hit_tokens, hoarded.served.hit_tokens)
    assert np.array_equal(thrifty.served.e2e_s, hoarded.served.e2e_s)
