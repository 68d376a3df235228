from dataclasses import replace

import numpy as np
import pytest

from penstock.workload import ClosedLoop, Conversations, Fixed, Poisson, Prefixes, Records, Workload, describe
from penstock.workload.summary.histogram import no_tokens
from penstock.workload.summary.minutes import Minutes
from workloads import recorded


def test_a_summary_is_what_one_would_count_by_hand() -> None:
    recording = recorded([0.0, 1.0, 1.0, 5.0], [10, 20, 30, 40], [4, 3, 2, 1])
    summary = describe(recording.blocks())
    assert summary is not None
    assert (summary.requests, summary.duration_s, summary.rate_per_s) == (4, 5.0, 3 / 5)
    # Gaps 1, 0, 4: mean 5/3, mean square 17/3.
    assert summary.gap_cv == pytest.approx((17 / 3 - (5 / 3) ** 2) ** 0.5 / (5 / 3))
    assert (summary.input_tokens.total, summary.input_tokens.mean, summary.input_tokens.longest) == (100, 25.0, 40)
    assert (summary.input_tokens.p50, summary.input_tokens.p90) == (20, 40)
    assert summary.output_tokens.p50 == 2
    assert summary.sharing is None
    assert summary.requests_by_class == (4,)


def test_reusable_tokens_are_those_somebody_already_had() -> None:
    prefixes = Prefixes(
        segment_tokens=np.array([8, 4, 5], np.int32),
        path_start=np.array([0, 1, 2, 4, 6]),
        path=np.array([0, 0, 0, 1, 0, 2], np.int32),
        own=np.array([-1, 1, -1, -1], np.int32),
    )
    base = recorded([0, 1, 2, 3], [10, 10, 20, 20], [1, 2, 1, 1])
    recording = Records(name="x", source="", columns=replace(base.columns, prefixes=prefixes))
    summary = describe(recording.columns.rows(row, row + 1) for row in range(4))
    assert summary is not None
    assert summary.sharing is not None
    # On a path: 8 + 8 + 12 + 13 of 60. First visits compute 8 (segment 0) and 5 (segment 2); segment 1 was written by
    # the second request.
    assert summary.sharing.shared_fraction == pytest.approx(41 / 60)
    assert summary.sharing.reusable_fraction == pytest.approx((41 - 8 - 5) / 60)
    assert summary.sharing.segments == 3
    whole = describe([recording.columns])
    assert whole == summary


def test_in_a_conversation_all_of_the_history_is_reusable() -> None:
    workload = Workload(
        name="x",
        arrivals=Poisson(rate_per_s=1),
        lengths=Fixed(input_tokens=10, output_tokens=5),
        sharing=Conversations(mean_turns=1e12, turn_gap_s=1, max_history_tokens=40),
    )
    summary = describe(workload.blocks(seed=1, requests=300))
    assert summary is not None
    assert summary.sharing is not None
    # Prompts of 10, 25 and 40 tokens, of which 0, 15 and 30 are history.
    assert summary.sharing.reusable_fraction == summary.sharing.shared_fraction == pytest.approx(45 / 75)


def test_a_closed_loop_has_no_rate_and_nothing_has_no_summary() -> None:
    workload = Workload(name="x", arrivals=ClosedLoop(users=2), lengths=Fixed(input_tokens=1, output_tokens=1))
    summary = describe(workload.blocks(seed=1, requests=10))
    assert summary is not None
    assert (summary.rate_per_s, summary.gap_cv, summary.duration_s) == (None, None, 0.0)
    assert describe([]) is None


def test_percentiles_are_exact_whatever_the_blocks() -> None:
    values = np.random.default_rng(1).integers(1, 5000, 10_000).astype(np.int32)
    histogram = no_tokens()
    for part in np.array_split(values, 7):
        histogram = histogram.with_column(part)
    assert histogram.count == 10_000
    assert histogram.total_tokens == int(values.sum())
    for fraction in (0.01, 0.5, 0.9, 0.99, 1.0):
        assert histogram.percentile(fraction) == np.quantile(values, fraction, method="inverted_cdf")


def test_cells_of_lengths_hold_every_request_at_its_quarter_of_an_octave() -> None:
    # 1 token is cell 0, 2 are cell 4 x 1, 3 are floor(4 x 1.585), 1,024 are cell 4 x 10.
    cells = no_tokens().with_column(np.array([1, 2, 3, 3, 1024], np.int32)).by_length()
    assert len(cells) == 41
    assert {cell: count for cell, count in enumerate(cells) if count} == {0: 1, 4: 1, 6: 2, 40: 1}


def test_the_busiest_minute_is_a_whole_one_however_blocks_are_cut() -> None:
    # 3 in the first minute, 6 in the third, 9 in the one that is not over.
    arrivals = np.array([0.0, 1.0, 59.9, *[121.0] * 6, *[240.5] * 9])
    for cuts in ([], [1, 2, 5, 9, 12], list(range(1, len(arrivals)))):
        minutes = Minutes()
        for part in np.split(arrivals, cuts):
            minutes.add(part)
        assert minutes.busiest_per_s == 6 / 60


def test_less_than_a_minute_has_the_rate_of_what_there_is() -> None:
    minutes = Minutes()
    assert minutes.busiest_per_s is None
    minutes.add(np.array([7.0]))
    assert minutes.busiest_per_s is None
    minutes.add(np.array([17.0, 27.0]))
    assert minutes.busiest_per_s == 3 / 20


def test_arrivals_over_time_keep_every_request_however_long_it_takes() -> None:
    for span_s in (0.5, 100.0, 1e9):
        recording = recorded([0.0, span_s / 4, span_s / 4, span_s], [1] * 4, [1] * 4)
        summary = describe(recording.blocks())
        assert summary is not None
        counts = summary.arrivals
        assert sum(counts.requests) == 4
        assert len(counts.requests) <= 256
        assert counts.requests[0] == counts.requests[-1] == 1
        assert counts.requests[int(span_s / 4 / counts.width_s)] == 2
        assert (len(counts.requests) - 1) * counts.width_s <= span_s < len(counts.requests) * counts.width_s


def test_turns_are_counted_where_a_request_is_continued() -> None:
    prefixes = Prefixes(
        segment_tokens=np.array([5, 5], np.int32),
        path_start=np.array([0, 0, 1, 3, 3]),
        path=np.array([0, 0, 1], np.int32),
        own=np.array([0, 1, -1, -1], np.int32),
    )
    recording = recorded([0.0, 1.0, 2.0, 3.0], [4, 9, 14, 4], [1] * 4)
    summary = describe([replace(recording.columns, prefixes=prefixes)])
    assert summary is not None
    assert summary.sharing is not None
    # One conversation of three turns and one of one.
    assert (summary.sharing.continued, summary.sharing.mean_turns) == (2, 4 / 2)
