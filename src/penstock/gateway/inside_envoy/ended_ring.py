"""Reads the records of ended requests that the module inside Envoy writes into shared memory.

Each worker thread has a ring. The module never waits: a record that finds its ring full is counted and dropped. There
is one reader. What it has not read before it is restarted is still in the rings.
"""

from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from penstock.gateway.state.shared_tables import memory_fence, shared_array
from penstock.routing.records import Records

RING_RECORDS: Final = 2048
STREAMED, GENERATES, FAILED, MOVED, REFUSED, LEFT, OWN_LIMITS = (1 << bit for bit in range(7))
"""Bits of `flags`.

In this order: the client asked for a stream; the path generates tokens; the response was 5xx, a refusal or broke off;
another endpoint than the first choice served it; the module answered itself; the client left before the end;
the client asked for tighter limits than its class has.
"""


class RingRecord(NamedTuple):
    """A request that has ended or was refused. Times are seconds of CLOCK_MONOTONIC."""

    generation: int
    """Generation of the fleet in which `name` and `slo_class` count."""
    name: int
    """Index of the requested model or adapter in `RoutedFleet.names`; -1 if it is unknown."""
    slo_class: int
    """Index in `RoutedFleet.classes`; -1 if there is none."""
    tenant_bucket: int
    flags: int
    status: int
    tries: int
    choices: int
    prompt_bytes: int
    """Bytes of the whole request body."""
    input_tokens: int
    """Estimated from the bytes."""
    cached_tokens: int
    """Tokens of the prompt that were expected in the cache of the endpoint that served the request."""
    expected_output_tokens: int
    pieces: int
    """Events of a stream."""
    response_bytes: int
    counted_prompt: int
    """This and the next two: tokens as the engine wrote in the response; -1 if it did not."""
    counted_cached: int
    counted_output: int
    sent_s: float
    first_s: float
    """Time of the first piece of a stream; 0 if there was none."""
    ended_s: float
    waited_s: float
    """Seconds for which the request was held before it was sent."""
    ttft_limit_s: float
    """This and the next two: infinity if there is no limit."""
    tpot_limit_s: float
    e2e_limit_s: float
    predicted_ttft_s: float
    predicted_decode_s: float
    """Predicted step at the first token, without corrections."""
    endpoint: bytes
    """Address of the endpoint that served the request; empty if none did."""
    tenant: bytes
    """Tenant as the access rules or the client's header name it; empty if they do not."""


_BYTES: Final = {"endpoint": 64, "tenant": 128}


def _record(text: str) -> np.dtype[np.void]:
    kinds = {int: "i8", float: "f8"}
    fields = RingRecord.__annotations__.items()
    sized = [(name, text.format(_BYTES[name]) if name in _BYTES else kinds[kind]) for name, kind in fields]
    return np.dtype(sized, align=True)


ENDED: Final = _record("({},)u1")
"""A `RingRecord` as the module writes it."""
_READ: Final = _record("S{}")
"""The same record, whose bytes are read without their padding."""
RING_HEAD: Final = np.dtype([("posted", "u8"), ("taken", "u8"), ("dropped", "u8"), ("unused", "u8", (5,))], align=True)
"""Position of the next record to write, position of the next record to read, and records that found the ring full."""


class EndedRing:
    """The rings of all worker threads of a gateway, as seen by the one reader."""

    def __init__(self, folder: Path, workers: int) -> None:
        size = workers * (RING_HEAD.itemsize + RING_RECORDS * ENDED.itemsize)
        whole = shared_array(folder / "ended.table", np.dtype([("byte", "u1")]), (size,)).view(np.uint8)
        at = workers * RING_HEAD.itemsize
        self._heads: Records = whole[:at].view(RING_HEAD)
        self._records: Records = whole[at:].view(_READ).reshape(workers, RING_RECORDS)

    @property
    def dropped(self) -> int:
        """Number of records that found their ring full since the gateway started."""
        return int(self._heads["dropped"].sum())

    def drain(self) -> Records:
        """Return a copy of all records that were not read yet, by worker and in order, and free their places.

        The fields of the array are those of `RingRecord`.
        """
        found = []
        for head, records in zip(self._heads, self._records, strict=True):
            posted, taken = int(head["posted"]), int(head["taken"])
            if posted > taken:
                memory_fence()  # records are written before `posted`, and may be overwritten after `taken`
                found.append(records[np.arange(taken, posted) % RING_RECORDS])
                memory_fence()
                head["taken"] = posted
        return np.concatenate(found) if found else np.zeros(0, _READ)
