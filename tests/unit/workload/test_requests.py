from dataclasses import replace

import numpy as np
import pytest

from penstock.workload import Prefixes, Requests
from penstock.workload.requests import concatenate, no_requests
from workloads import paths


def block(rows: int = 3, *, start_s: float = 0.0, prefixes: Prefixes | None = None) -> Requests:
    return Requests(
        arrival_s=start_s + np.arange(rows, dtype=np.float64),
        input_tokens=np.full(rows, 100, np.int32),
        output_tokens=np.full(rows, 10, np.int32),
        slo_class=np.zeros(rows, np.uint8),
        prefixes=prefixes,
    )


def tree() -> Prefixes:
    # 0 is a system prompt of 40 tokens; 1 and 2 follow it.
    return Prefixes(
        segment_tokens=np.array([40, 30, 20], np.int32),
        path_start=np.array([0, 2, 2, 4]),
        path=np.array([0, 1, 0, 2], np.int32),
        own=np.array([-1, -1, -1], np.int32),
    )


def test_shared_tokens_are_the_sum_of_the_path() -> None:
    assert tree().shared_tokens().tolist() == [40 + 30, 0, 40 + 20]


def test_a_range_of_rows_keeps_their_paths() -> None:
    cut = block(prefixes=tree()).rows(1, 3)
    assert paths(cut) == [[], [0, 2]]


def test_rows_by_number_keep_their_paths() -> None:
    taken = block(prefixes=tree()).take(np.array([0, 2]))
    assert paths(taken) == [[0, 1], [0, 2]]
    assert taken.arrival_s.tolist() == [0.0, 2.0]


def test_joining_what_was_cut_gives_it_back() -> None:
    whole = block(prefixes=tree())
    again = concatenate([whole.rows(0, 1), whole.rows(1, 1), whole.rows(1, 3)])
    assert paths(again) == paths(whole)
    assert again.arrival_s.tolist() == whole.arrival_s.tolist()
    assert len(concatenate([])) == len(no_requests()) == 0


def test_the_later_block_knows_more_segments() -> None:
    later = replace(tree(), segment_tokens=np.array([40, 30, 20, 10], np.int32))
    both = concatenate([block(prefixes=tree()), block(start_s=3, prefixes=later)]).prefixes
    assert both is not None
    assert len(both.segment_tokens) == 4
    assert both.path.tolist() == [0, 1, 0, 2, 0, 1, 0, 2]


def test_blocks_with_and_without_prefixes_are_not_of_one_workload() -> None:
    with pytest.raises(ValueError, match="or no block may have"):
        concatenate([block(), block(start_s=3, prefixes=tree())])


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("arrival_s", np.array([1.0, 0.0, 2.0]), "ascending"),
        ("arrival_s", np.array([-1.0, 0.0, 2.0]), "ascending"),
        ("arrival_s", np.array([0.0, 1.0, np.nan]), "ascending"),
        ("arrival_s", np.array([0.0, 1.0, np.inf]), "finite"),
        ("arrival_s", np.array([0, 1, 2]), "float64"),
        ("input_tokens", np.array([0, 1, 1], np.int32), "at least one prompt token"),
        ("output_tokens", np.array([1, 1, 0], np.int32), "one output token"),
        ("output_tokens", np.array([1, 1], np.int32), "3 rows"),
        ("slo_class", np.zeros((3, 1), np.uint8), "one-dimensional"),
    ],
)
def test_a_block_that_contradicts_itself_cannot_be_made(column: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(block(), **{column: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("path", np.array([0, 1, 0, 3], np.int32), "outside"),
        ("path", np.array([0, 1, 0, -1], np.int32), "outside"),
        ("own", np.array([-2, 0, 0], np.int32), "outside"),
        ("own", np.array([3, 0, 0], np.int32), "outside"),
        ("segment_tokens", np.array([40, 0, 20], np.int32), "at least one token"),
        ("path_start", np.array([0, 2, 1, 4]), "must not decrease"),
        ("path_start", np.array([0, 2, 2, 3]), "from 0 to 4"),
    ],
)
def test_prefixes_that_contradict_themselves_cannot_be_made(column: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(tree(), **{column: value})  # type: ignore[arg-type]


def test_a_prompt_is_at_least_as_long_as_what_it_begins_with() -> None:
    long = replace(tree(), segment_tokens=np.array([40, 61, 20], np.int32))
    with pytest.raises(ValueError, match="longer than the whole prompt"):
        block(prefixes=long)
