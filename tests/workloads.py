"""What tests of workloads hold every stream of requests to."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.workload import LogNormal, Records, Requests
from penstock.workload.requests import concatenate

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHAT = LogNormal(input_median_tokens=600, input_sigma=1.0, output_median_tokens=150, output_sigma=0.8, correlation=0.2)


def as_bytes(requests: Requests) -> bytes:
    """Everything a request is made of, except how long the table of segments had grown."""
    columns: list[NDArray[Any]] = [
        requests.arrival_s,
        requests.input_tokens,
        requests.output_tokens,
        requests.slo_class,
    ]
    if requests.prefixes is not None:
        columns += [requests.prefixes.path_start, requests.prefixes.path, requests.prefixes.own]
        columns += [requests.prefixes.segment_tokens[requests.prefixes.path]]
    return b"|".join(column.tobytes() for column in columns)


def joined(blocks: Iterable[Requests]) -> Requests:
    return concatenate(list(blocks))


def recorded(arrival_s: list[float], input_tokens: list[int], output_tokens: list[int]) -> Records:
    columns = Requests(
        arrival_s=np.array(arrival_s, np.float64),
        input_tokens=np.array(input_tokens, np.int32),
        output_tokens=np.array(output_tokens, np.int32),
        slo_class=np.zeros(len(arrival_s), np.uint8),
    )
    return Records(name="recorded", source="a test", columns=columns)


def paths(requests: Requests) -> list[list[int]]:
    prefixes = requests.prefixes
    assert prefixes is not None
    return [
        prefixes.path[prefixes.path_start[row] : prefixes.path_start[row + 1]].tolist() for row in range(len(requests))
    ]


def assert_prefixes_are_a_causal_tree(requests: Requests) -> None:
    """A segment has one parent; what a request leaves behind is as long as it was and is only used later."""
    prefixes = requests.prefixes
    assert prefixes is not None
    parent: dict[int, int] = {}
    left_behind_by: dict[int, int] = {}
    for row, path in enumerate(paths(requests)):
        before = -1
        for segment in path:
            assert parent.setdefault(segment, before) == before
            before = segment
        own = int(prefixes.own[row])
        shared = int(prefixes.segment_tokens[path].sum())
        assert shared <= requests.input_tokens[row]
        if own >= 0:
            assert own not in parent, "used before it was written"
            parent[own] = before
            left_behind_by[own] = row
            whole = int(requests.input_tokens[row]) + int(requests.output_tokens[row])
            assert prefixes.segment_tokens[own] == whole - shared
