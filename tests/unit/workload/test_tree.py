import numpy as np
import pytest

from penstock.workload.prefixes.tree import grow_tree, join_chains, keep_rooted, spell_paths


def int32(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, np.int32)


def test_depth_counts_the_segments_from_the_root() -> None:
    tree = grow_tree(int32(-1, 0, 1, 1, -1, 3), int32(1, 1, 1, 1, 1, 1))
    assert tree.depth.tolist() == [1, 2, 3, 3, 1, 4]


def test_a_long_chain_is_as_deep_as_it_is_long() -> None:
    length = 100_000
    tree = grow_tree(np.arange(-1, length - 1, dtype=np.int32), np.ones(length, np.int32))
    assert tree.depth.tolist() == list(range(1, length + 1))


def test_parents_may_have_larger_ids_than_their_children() -> None:
    tree = grow_tree(int32(2, -1, 1), int32(5, 6, 7))
    prefixes = tree.prefixes(int32(0, -1, 2), int32(-1, -1, -1))
    assert prefixes.path.tolist() == [1, 2, 0, 1, 2]
    assert prefixes.path_start.tolist() == [0, 3, 3, 5]


def test_segments_in_a_circle_are_an_error() -> None:
    with pytest.raises(ValueError, match="form a cycle"):
        grow_tree(int32(1, 2, 0, -1), int32(1, 1, 1, 1))


def test_paths_of_nothing_are_empty() -> None:
    starts, path = spell_paths(int32(), int32(), int32(-1, -1))
    assert starts.tolist() == [0, 0, 0]
    assert path.tolist() == []


def test_nodes_that_every_visitor_passes_together_become_one_segment() -> None:
    # 0 - 1 - 2 - 3 with a branch 1 - 4; five requests pass 0 and 1, three go on to 2 and 3, two to 4.
    tree, segment = join_chains(int32(-1, 0, 1, 2, 1), np.array([8, 8, 8, 3, 5]), np.array([5, 5, 3, 3, 2]))
    assert segment.tolist() == [0, 0, 1, 1, 2]
    assert tree.tokens.tolist() == [16, 11, 5]
    assert tree.parent.tolist() == [-1, 0, 0]


def test_a_branch_as_popular_as_its_parent_is_the_only_one() -> None:
    # One of the five ends at 0: 1 is passed by four and stays a segment of its own.
    tree, _ = join_chains(int32(-1, 0), np.array([8, 8]), np.array([5, 4]))
    assert len(tree) == 2


def test_what_hangs_from_nothing_is_dropped_with_all_below_it() -> None:
    # 10 is a root; 20 - 21 hang from an id that is absent; 30 and 31 follow each other.
    ids, parent, kept = keep_rooted(np.array([10, 11, 20, 21, 30, 31]), np.array([-1, 10, 99, 20, 31, 30]))
    assert ids.tolist() == [10, 11]
    assert parent.tolist() == [-1, 0]
    assert kept.tolist() == [0, 1]
    assert keep_rooted(np.empty(0, np.int64), np.empty(0, np.int64))[0].tolist() == []
