"""A trace becomes a few buckets that keep its tokens and its peak."""

from dataclasses import replace

import numpy as np
import pytest

from penstock.errors import UsageError
from penstock.planning.spec.trace_lengths import BUCKETS, trace_lengths
from penstock.workload.requests import Prefixes, Requests


def requests(arrival_s: list[float], input_tokens: list[int], output_tokens: list[int]) -> Requests:
    return Requests(
        arrival_s=np.array(arrival_s, np.float64),
        input_tokens=np.array(input_tokens, np.int32),
        output_tokens=np.array(output_tokens, np.int32),
        slo_class=np.zeros(len(arrival_s), np.uint8),
        prefixes=None,
    )


def test_buckets_keep_the_tokens_and_the_shares() -> None:
    generator = np.random.default_rng(0)
    inputs = generator.integers(1, 9000, 500)
    outputs = generator.integers(1, 900, 500)
    block = requests(sorted(generator.uniform(0, 600, 500)), list(inputs), list(outputs))
    seen = trace_lengths([block])
    assert 1 < len(seen.shares) <= BUCKETS
    assert sum(share.fraction for share in seen.shares) == pytest.approx(1)
    kept = sum(share.fraction * share.bucket.input_tokens for share in seen.shares)
    assert kept == pytest.approx(inputs.mean(), rel=0.01)
    lengths = [share.bucket.input_tokens for share in seen.shares]
    assert lengths == sorted(lengths)


def test_buckets_have_the_rows_of_the_trace() -> None:
    generator = np.random.default_rng(1)
    inputs, outputs = generator.integers(1, 9000, 500), generator.integers(1, 900, 500)
    seen = trace_lengths([requests(sorted(generator.uniform(0, 600, 500)), list(inputs), list(outputs))])
    kept = np.concatenate([share.bucket.pairs for share in seen.shares])
    assert sorted(map(tuple, kept.tolist())) == sorted(zip(inputs.tolist(), outputs.tolist(), strict=True))
    for share in seen.shares:
        assert share.bucket.pairs.mean(axis=0) == pytest.approx(
            (share.bucket.input_tokens, share.bucket.output_tokens), abs=0.5
        )
        assert len(share.bucket.pairs) == pytest.approx(500 * share.fraction)
        assert share.bucket.longest_tokens == share.bucket.pairs.sum(axis=1).max()


def test_a_model_sees_no_longer_prompts_and_answers_up_to_its_context() -> None:
    seen = trace_lengths([requests([0.0, 30.0, 60.0, 90.0], [100, 900, 1000, 5000], [10, 500, 10, 10])])
    assert seen.longer_than(1000) == pytest.approx(0.75)
    kept = seen.within(1000)
    assert sorted(tuple(pair) for share in kept.shares for pair in share.bucket.pairs.tolist()) == [
        (100, 10),
        (900, 100),
    ]
    assert sum(share.fraction for share in kept.shares) == pytest.approx(1)
    assert kept.within(1000) == kept
    assert seen.within(6000) == seen
    assert seen.within(50).shares == ()


def test_of_a_long_trace_an_even_sample_is_kept() -> None:
    generator, rows = np.random.default_rng(2), 250_000
    inputs = generator.lognormal(7, 1, rows).astype(np.int32) + 1
    outputs = generator.lognormal(5, 1, rows).astype(np.int32) + 1
    arrivals = np.sort(generator.uniform(0, 6000, rows))
    whole = Requests(
        arrival_s=arrivals,
        input_tokens=inputs,
        output_tokens=outputs,
        slo_class=np.zeros(rows, np.uint8),
        prefixes=None,
    )
    seen = trace_lengths([whole])
    assert sum(len(share.bucket.pairs) for share in seen.shares) == 100_000
    kept = np.concatenate([share.bucket.pairs for share in seen.shares])
    assert kept.mean(axis=0) == pytest.approx((inputs.mean(), outputs.mean()), rel=0.02)
    assert trace_lengths([whole.rows(at, at + 9_999) for at in range(0, rows, 9_999)]) == seen


def test_ten_minutes_of_longer_requests_are_told() -> None:
    """A thousand requests in each of three stretches; answers of the second are three times as long."""
    arrivals = [600.0 * n / 1000 for n in range(3000)]
    outputs = [100] * 1000 + [300] * 1000 + [100] * 1000
    whole = requests(arrivals, [500] * 3000, outputs)
    assert trace_lengths([whole]).longer_at_times == pytest.approx((1.0, 300 / (500 / 3)))
    assert trace_lengths([whole.rows(at, at + 77) for at in range(0, 3000, 77)]) == trace_lengths([whole])
    few = trace_lengths([whole.rows(600, 1400)])
    assert few.longer_at_times == (1.0, 1.0), "too few to tell"


def test_the_peak_is_the_busiest_whole_minute() -> None:
    arrivals = [float(second) for second in range(0, 180, 10)] + [60.5] * 30
    seen = trace_lengths([requests(sorted(arrivals), [100] * 48, [10] * 48)])
    assert seen.requests_per_s == pytest.approx((6 + 30) / 60)
    assert seen.mean_load_fraction == pytest.approx(48 / 170 / (36 / 60))


def test_cutting_the_trace_into_blocks_changes_nothing() -> None:
    arrivals, lengths = [float(n) for n in range(200)], list(range(1, 201))
    whole = trace_lengths([requests(arrivals, lengths, lengths)])
    parts = [requests(arrivals[i : i + 7], lengths[i : i + 7], lengths[i : i + 7]) for i in range(0, 200, 7)]
    assert trace_lengths(parts) == whole


def test_a_trace_without_time_has_no_rate() -> None:
    with pytest.raises(UsageError, match="the same arrival time"):
        trace_lengths([requests([0.0, 0.0], [1, 1], [1, 1])])


def test_what_prompts_share_is_told_and_what_nobody_says_is_not_guessed() -> None:
    """Two prompts of 100 tokens begin with the same 80: the second could reuse them, 80 of 200."""
    plain = requests([0.0, 90.0], [100, 100], [10, 10])
    shared = Prefixes(
        segment_tokens=np.array([80], np.int32),
        path_start=np.array([0, 1, 2], np.int64),
        path=np.zeros(2, np.int32),
        own=np.full(2, -1, np.int32),
    )
    assert trace_lengths([plain]).reusable_fraction is None
    assert trace_lengths([replace(plain, prefixes=shared)]).reusable_fraction == pytest.approx(80 / 200)
