from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from penstock.errors import UsageError
from penstock.workload import (
    AsRecorded,
    ClosedLoop,
    Fixed,
    Gamma,
    Poisson,
    Prefixes,
    Records,
    SloClass,
    SystemPrompts,
    Workload,
)
from penstock.workload.recorded.recording import mean_rate_per_s
from penstock.workload.recorded.splice import repeat
from workloads import as_bytes, joined, paths, recorded

THREE = recorded([0.0, 1.0, 4.0], [10, 20, 30], [1, 2, 3])
SHARED = Records(
    name="shared",
    source="a test",
    columns=replace(
        THREE.columns,
        prefixes=Prefixes(
            segment_tokens=np.array([8, 4], np.int32),
            path_start=np.array([0, 1, 2, 4]),
            path=np.array([0, 0, 0, 1], np.int32),
            own=np.array([-1, 1, -1], np.int32),
        ),
    ),
)


def replayed(recording: Records, requests: int, rate_per_s: float | None = None) -> list[float]:
    workload = Workload(name="replay", arrivals=AsRecorded(), lengths=recording)
    blocks = workload.blocks(seed=1, requests=requests, rate_per_s=rate_per_s, block_requests=2)
    return [float(at) for at in joined(blocks).arrival_s]


def test_a_recording_is_replayed_as_it_was() -> None:
    assert replayed(THREE, 3) == [0.0, 1.0, 4.0]


def test_past_its_end_a_recording_starts_again_one_mean_gap_later() -> None:
    # Mean gap 4 / 2 = 2 s, so a pass takes 6 s.
    assert replayed(THREE, 8) == [0, 1, 4, 6, 7, 10, 12, 13]


def test_another_rate_compresses_time_alone() -> None:
    assert mean_rate_per_s(THREE) == 2 / 4
    assert replayed(THREE, 4, rate_per_s=1.0) == [0.0, 0.5, 2.0, 3.0]
    faster = Workload(name="replay", arrivals=AsRecorded(), lengths=THREE).blocks(seed=1, requests=3, rate_per_s=1.0)
    assert joined(faster).input_tokens.tolist() == [10, 20, 30]


def test_recorded_requests_can_arrive_at_other_times_in_their_order() -> None:
    poisson = Poisson(rate_per_s=2.0)
    again = joined(Workload(name="x", arrivals=poisson, lengths=THREE).blocks(seed=1, requests=7))
    drawn = joined(
        Workload(name="y", arrivals=poisson, lengths=Fixed(input_tokens=1, output_tokens=1)).blocks(seed=1, requests=7)
    )
    assert again.input_tokens.tolist() == [10, 20, 30, 10, 20, 30, 10]
    assert again.arrival_s.tobytes() == drawn.arrival_s.tobytes()


def test_users_of_a_closed_loop_can_send_recorded_requests() -> None:
    workload = Workload(name="x", arrivals=ClosedLoop(users=2, think_s=1.5), lengths=THREE)
    assert (workload.users, workload.think_s, workload.rate_per_s) == (2, 1.5, None)
    assert not joined(workload.blocks(seed=1, requests=5)).arrival_s.any()


def test_every_pass_has_segments_of_its_own_unless_they_are_kept() -> None:
    renewed = joined(islice(repeat(SHARED), 3))
    assert paths(renewed) == [[0], [0], [0, 1], [2], [2], [2, 3], [4], [4], [4, 5]]
    assert renewed.prefixes is not None
    assert renewed.prefixes.own.tolist() == [-1, 1, -1, -1, 3, -1, -1, 5, -1]
    assert renewed.prefixes.segment_tokens.tolist() == [8, 4] * 3
    kept = joined(islice(repeat(SHARED, renew_segments=False), 3))
    assert paths(kept) == [[0], [0], [0, 1]] * 3


def test_an_offline_batch_arrives_at_once() -> None:
    assert replayed(AT_ONCE, 3) == [0.0, 0.0, 0.0]


def test_classes_are_drawn_by_their_shares() -> None:
    classes = (SloClass(name="chat", share_fraction=0.25), SloClass(name="batch", share_fraction=0.75))
    drawn = Workload(
        name="x", arrivals=Poisson(rate_per_s=1), lengths=Fixed(input_tokens=1, output_tokens=1), classes=classes
    )
    replayed = Workload(name="x", arrivals=AsRecorded(), lengths=THREE, classes=classes)
    for workload in (drawn, replayed):
        chosen = joined(workload.blocks(seed=1, requests=40_000)).slo_class
        assert np.bincount(chosen) / 40_000 == pytest.approx([0.25, 0.75], abs=4 * (0.25 * 0.75 / 40_000) ** 0.5)


def test_recorded_classes_stay_with_their_requests() -> None:
    classes = (SloClass(name="a", share_fraction=2 / 3), SloClass(name="b", share_fraction=1 / 3))
    columns = replace(THREE.columns, slo_class=np.array([0, 1, 0], np.uint8))
    recording = Records(name="classes", source="", columns=columns, classes=classes)
    workload = Workload(name="x", arrivals=AsRecorded(), lengths=recording, classes=classes)
    assert joined(workload.blocks(seed=1, requests=6)).slo_class.tolist() == [0, 1, 0, 0, 1, 0]
    with pytest.raises(UsageError, match="has 2 classes"):
        Workload(name="x", arrivals=AsRecorded(), lengths=recording)


def test_asking_for_fewer_gives_the_beginning_of_more() -> None:
    workload = Workload(
        name="x",
        arrivals=Gamma(cv=2, rate_per_s=3),
        lengths=Fixed(input_tokens=4, output_tokens=2),
        sharing=SystemPrompts(prompts=9, tokens=16),
    )
    more = joined(workload.blocks(seed=1, requests=70_000))
    fewer = joined(workload.blocks(seed=1, requests=66_000))
    assert as_bytes(more.rows(0, 66_000)) == as_bytes(fewer)


def test_no_requests_is_no_blocks() -> None:
    workload = Workload(name="x", arrivals=Poisson(rate_per_s=1), lengths=Fixed(input_tokens=1, output_tokens=1))
    assert list(workload.blocks(seed=0, requests=0)) == []


ONE = Fixed(input_tokens=1, output_tokens=1)
AT_ONCE = recorded([0.0, 0.0], [1, 1], [1, 1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Workload(name="x", arrivals=Poisson(), lengths=ONE).blocks(seed=1, requests=1),
        lambda: Workload(name="x", arrivals=Poisson(), lengths=ONE).blocks(seed=1, requests=1, rate_per_s=0.0),
        lambda: Workload(name="x", arrivals=Poisson(), lengths=ONE).blocks(seed=1, requests=-1, rate_per_s=1.0),
        lambda: Workload(name="x", arrivals=Poisson(), lengths=ONE).blocks(seed=-1, requests=1, rate_per_s=1.0),
        lambda: Workload(name="x", arrivals=ClosedLoop(users=1), lengths=ONE).blocks(
            seed=1, requests=1, rate_per_s=1.0
        ),
        lambda: Workload(name="x", arrivals=AsRecorded(), lengths=ONE).blocks(seed=1, requests=1, rate_per_s=1.0),
        lambda: Workload(name="x", arrivals=AsRecorded(), lengths=AT_ONCE).blocks(seed=1, requests=1, rate_per_s=1.0),
        lambda: Workload(name="x", arrivals=AsRecorded(), lengths=THREE, sharing=SystemPrompts(prompts=1, tokens=1)),
        lambda: Workload(name="x", arrivals=Poisson(), lengths=ONE, classes=(SloClass(name="a", share_fraction=0.5),)),
        lambda: list(repeat(recorded([], [], []))),
    ],
)
def test_a_workload_that_cannot_be_meant_is_refused(make: object) -> None:
    with pytest.raises(UsageError) as caught:
        make()  # type: ignore[operator]
    assert "\n" not in str(caught.value)
