"""How do processes see each other's numbers? Arrays in shared memory, each row written by one process only."""

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from penstock.routing.records import Records

REPORT: Final = np.dtype(
    [
        ("sequence", "u8"),  # odd while the row is being written
        ("reported_s", "f8"),  # CLOCK_MONOTONIC, which all processes share
        ("healthy", "i8"),
        ("running", "i8"),
        ("waiting", "i8"),
        ("kv_used_tokens", "i8"),
        ("kv_tokens", "i8"),  # 0: it did not say
        ("ttft_sum_s", "f8"),
        ("ttft_count", "f8"),
        ("itl_sum_s", "f8"),
        ("itl_count", "f8"),
        ("output_sum", "f8"),
        ("output_count", "f8"),
        ("prompt_tokens", "f8"),
        ("scrapes", "i8"),
        ("failures", "i8"),
        ("active", "i8"),  # requests Envoy has open there; -1: unknown
        ("active_s", "f8"),
        ("other_model", "i8"),  # whether it serves another model than the fleet file says
    ],
    align=True,
)
"""What the scraper last heard of an endpoint."""

COUNTS: Final = np.dtype(
    [
        ("picked", "i8"),
        ("ended", "i8"),
        ("failed", "i8"),  # of the ended: answered 5xx, or cut
        ("moved", "i8"),  # of the ended: served by another than was picked first
        ("in_flight", "i8"),
        ("prompt_bytes", "i8"),
        ("predicted_ttft_s", "f8"),  # summed over what was picked
        ("usd", "f8"),
    ],
    align=True,
)
"""What one picker did with one endpoint."""

_HEARD: Final = tuple(name for name in REPORT.names or () if name != "sequence")
"""All but that a row is new: who reads them waits for the first report on the new fleet."""
_COUNTED: Final = tuple(name for name in COUNTS.names or () if name != "in_flight")

PICKER_STATE: Final = np.dtype(
    [
        ("alive_s", "f8"),  # when it last answered at its own door
        ("decisions", "i8"),
        ("rejected", "i8"),
        ("refused", "i8"),  # not JSON, no such model
        ("decide_s", "f8"),
        ("unknown_tickets", "i8"),
        ("dropped_flights", "i8"),
    ],
    align=True,
)


class EndpointTables(NamedTuple):
    """What is known of a fleet's endpoints."""

    reports: Records
    counts: Records
    """By picker and endpoint."""


def shared_array(path: Path, dtype: np.dtype[np.void], shape: tuple[int, ...]) -> Records:
    """Map an array from a file, made where it is missing or of another size; every process sees the same bytes."""
    size = int(np.prod(shape)) * dtype.itemsize
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(descriptor).st_size != size:
            os.ftruncate(descriptor, size)
        mapped = mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
    return np.frombuffer(mapped, dtype).reshape(shape)


def carry_over(before: Sequence[str], then: EndpointTables, after: Sequence[str], now: EndpointTables) -> None:
    """Fill the tables of a fleet that was read again, for endpoints that were in it before; addresses tell which.

    A picker that has not read it yet has counted no less than it showed; one that has shows its own again, and more.
    """
    was = {address: index for index, address in enumerate(before)}
    kept = [(was[address], index) for index, address in enumerate(after) if address in was]
    old, new = [pair[0] for pair in kept], [pair[1] for pair in kept]
    for name in _COUNTED:
        now.counts[name][:, new] = np.maximum(now.counts[name][:, new], then.counts[name][:, old])
    for name in _HEARD:
        now.reports[name][new] = then.reports[name][old]


def begin_write(rows: Records, index: int) -> None:
    """Mark a row as being written."""
    rows["sequence"][index] += 1


def end_write(rows: Records, index: int) -> None:
    """Mark a row as whole."""
    rows["sequence"][index] += 1


def read_row(rows: Records, index: int) -> np.void | None:
    """Copy a row that nobody is writing; None where somebody is."""
    before = rows["sequence"][index]
    row: np.void = rows[index].copy()
    if before % 2 or rows["sequence"][index] != before:
        return None
    return row
