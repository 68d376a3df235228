"""Defines arrays in shared memory through which the gateway's processes exchange reports and counters.

Only one process writes each row.
"""

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

import numpy as np

from penstock.errors import UsageError
from penstock.routing.records import CLASSES, Records

REPORT: Final = np.dtype(
    [
        ("sequence", "u8"),  # odd while a process writes the row
        ("reported_s", "f8"),  # CLOCK_MONOTONIC, which all processes share
        ("healthy", "i8"),
        ("running", "i8"),
        ("waiting", "i8"),
        ("kv_used_tokens", "i8"),
        ("kv_tokens", "i8"),  # 0: not published
        ("ttft_sum_s", "f8"),
        ("ttft_count", "f8"),
        ("itl_sum_s", "f8"),
        ("itl_count", "f8"),
        ("output_sum", "f8"),
        ("output_count", "f8"),
        ("prompt_tokens", "f8"),
        ("generated_tokens", "f8"),  # with those of requests whose client left, unlike output_sum
        ("scrapes", "i8"),
        ("failures", "i8"),
        ("active", "i8"),  # open requests in Envoy; -1: unknown
        ("asleep", "i8"),  # these four only on shared devices: 1 if its model sleeps
        ("ready_in_s", "f8"),  # seconds until its model is awake; 0 if it is
        ("wakes", "i8"),
        ("wake_s", "f8"),  # seconds of all wakes
        ("other_model", "i8"),  # 1 if the endpoint serves a model other than the model in the fleet file
    ],
    align=True,
)
"""Row type of the scraper's last report about an endpoint."""

COUNTS: Final = np.dtype(
    [
        ("picked", "i8"),
        ("ended", "i8"),
        ("failed", "i8"),  # of the ended requests: 5xx, a broken connection or a refusal
        ("moved", "i8"),  # of the ended requests: served by another endpoint than the first choice
        ("struck", "i8"),  # tries that this endpoint failed, refused or left silent, and another one answered
        ("in_flight", "i8"),
        ("prompt_bytes", "i8"),
        ("predicted_ttft_s", "f8"),  # summed over all picks
        # These four: observed by a module inside Envoy; 0 otherwise.
        ("first_tokens", "i8"),
        ("ttft_sum_s", "f8"),
        ("decoded_tokens", "i8"),
        ("decode_sum_s", "f8"),
    ],
    align=True,
)
"""Row type of one picker's counters for one endpoint."""

CLIENTS: Final = np.dtype([("open", "i8"), ("counted_s", "f8")])
"""Row type of the requests of clients that Envoy has open, and when they were counted."""

_HEARD: Final = tuple(name for name in REPORT.names or () if name != "sequence")
"""Fields of a report that are copied to a reloaded fleet.

The field `sequence` is not copied, so that readers wait for the first report about the reloaded fleet.
"""
_COUNTED: Final = tuple(name for name in COUNTS.names or () if name != "in_flight")

PICKER_STATE: Final = np.dtype(
    [
        ("alive_s", "f8"),  # last time at which the picker's server answered
        ("decisions", "i8"),
        ("refused", "i8"),  # with 429, because of overload
        ("invalid", "i8"),  # invalid or too long body, or unknown model
        ("decide_s", "f8"),
        ("unknown_tickets", "i8"),
        ("dropped_flights", "i8"),
        ("held", "i8"),
        ("lost_outcomes", "i8"),  # ended requests whose receipts a picker could not write
        ("class_price", "f8", (CLASSES,)),  # factor by which a missed SLO of a class counts more
        ("class_kept", "f8", (CLASSES,)),  # decayed share of the requests of a class that met their SLO
    ],
    align=True,
)


class EndpointTables(NamedTuple):
    """Tables of a fleet's endpoints."""

    reports: Records
    counts: Records
    """Counters of each picker for each endpoint. The first index is the picker, the second the endpoint."""


def shared_array(path: Path, dtype: np.dtype[np.void], shape: tuple[int, ...]) -> Records:
    """Map a shared file into memory, and return it as an array. Create or resize the file if needed."""
    return np.frombuffer(map_reserved(path, int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)


def map_reserved(path: Path, size: int) -> mmap.mmap:
    """Map a shared file of a size into memory. Create or resize it if needed, and reserve its room.

    Whoever writes to a page for which there is no room is killed by SIGBUS.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(descriptor).st_size != size:
            os.ftruncate(descriptor, size)
            _reserve(descriptor, size)
        return mmap.mmap(descriptor, size)
    except OSError as error:
        path.unlink()
        raise UsageError(
            f"{path}: no room for a table of {size / 1e6:.1f} MB ({error.strerror}); enlarge the memory behind "
            f"{path.parent.parent}, or use fewer --workers"
        ) from None
    finally:
        os.close(descriptor)


def _reserve(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):  # not on macOS
        os.posix_fallocate(descriptor, 0, size)


def carry_over(before: Sequence[str], then: EndpointTables, after: Sequence[str], now: EndpointTables) -> None:
    """Copy the rows of endpoints that are in both the old and the reloaded fleet, matched by address.

    Copying never decreases a count. A picker that has not reloaded yet has counted at least as many requests as it
    published. A picker that has reloaded publishes its own counts again.
    """
    was = {address: index for index, address in enumerate(before)}
    kept = [(was[address], index) for index, address in enumerate(after) if address in was]
    old, new = [pair[0] for pair in kept], [pair[1] for pair in kept]
    for name in _COUNTED:
        now.counts[name][:, new] = np.maximum(now.counts[name][:, new], then.counts[name][:, old])
    for name in _HEARD:
        now.reports[name][new] = then.reports[name][old]


_FENCE: Final = Lock()


def memory_fence() -> None:
    """Let no later access to memory be seen before an earlier one, as Arm processors may.

    Releasing a lock waits for earlier accesses, and taking it again comes before later ones.
    """
    for _ in range(2):
        with _FENCE:
            pass


def begin_write(rows: Records, index: int) -> None:
    """Mark a row as being written, by making its sequence number odd."""
    rows["sequence"][index] += 1
    memory_fence()


def end_write(rows: Records, index: int) -> None:
    """Mark a row as complete, by making its sequence number even."""
    memory_fence()
    rows["sequence"][index] += 1


def read_row(rows: Records, index: int) -> np.void | None:
    """Return a copy of a row, or None if a process is writing the row."""
    before = rows["sequence"][index]
    memory_fence()
    row: np.void = rows[index].copy()
    memory_fence()
    if before % 2 or rows["sequence"][index] != before:
        return None
    return row
