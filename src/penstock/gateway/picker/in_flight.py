"""Stores the requests in flight in one array.

The rows of the array are read and written with `struct`, because numpy is slow for single fields. Reading or writing
one field of a record through numpy takes a third of a microsecond, and a decision needs about thirty fields. Creating a
numpy record takes a microsecond. `struct` reads or writes a whole record in the time that numpy needs for one field.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from penstock.routing.records import FLIGHT, Record, Records

_FIRST_PLACES: Final = 256


def struct_of(dtype: np.dtype[np.void]) -> Struct:
    """Return a Struct with the memory layout of a record of floats and integers."""
    kinds = [dtype[name].str for name in dtype.names or ()]
    packed = Struct("=" + "".join({"<f8": "d", "<i8": "q"}[kind] for kind in kinds))
    if packed.size != dtype.itemsize:
        raise TypeError(f"{dtype} has gaps")
    return packed


_FLIGHT: Final = struct_of(FLIGHT)


class InFlightRequest(NamedTuple):
    """A request in flight: one row of an array with the dtype `FLIGHT`, which documents each field."""

    endpoint: int
    sent_s: float
    first_s: float
    input_tokens: int
    uncached_tokens: int
    expected_output_tokens: int
    slo_class: int
    prompt_s: float
    ttft_s: float
    decode_s: float
    waited_s: float
    ttft_limit_s: float
    tpot_limit_s: float
    e2e_limit_s: float


class InFlightRequests:
    """Table of the requests in flight. A ticket is the number by which a picker finds a request in the table."""

    def __init__(self) -> None:
        self.rows: Records = np.zeros(_FIRST_PLACES, FLIGHT)
        self._bytes = self.rows.view(np.uint8).data
        self._free = list(range(_FIRST_PLACES))
        self._places: dict[int, int] = {}

    def __contains__(self, ticket: int) -> bool:
        return ticket in self._places

    def add(self, ticket: int) -> int:
        """Allocate a row for a request and return its index."""
        if not self._free:
            before, old = len(self.rows), self.rows
            self.rows = np.zeros(2 * before, FLIGHT)  # exactly the same dtype, which np.concatenate would not keep
            self.rows[:before] = old
            self._bytes = self.rows.view(np.uint8).data
            self._free.extend(range(before, 2 * before))
        place = self._places[ticket] = self._free.pop()
        return place

    def place(self, ticket: int) -> int | None:
        """Return the row index of a request, or None if the request is not in flight."""
        return self._places.get(ticket)

    def remove(self, ticket: int) -> int | None:
        """Free a request's row and return the row's index, or None if the request is not in flight.

        The row stays readable until the next `add`.
        """
        place = self._places.pop(ticket, None)
        if place is not None:
            self._free.append(place)
        return place

    def at(self, place: int) -> InFlightRequest:
        """Return the request in the row with the index `place`."""
        return InFlightRequest._make(_FLIGHT.unpack_from(self._bytes, place * _FLIGHT.size))

    def all(self) -> Iterator[tuple[int, InFlightRequest]]:
        """Yield the ticket and the record of each request in flight, oldest request first."""
        for ticket, place in self._places.items():
            yield ticket, self.at(place)

    def adopt(self, ticket: int, flight: InFlightRequest, endpoint: int) -> None:
        """Add a request that was in flight before a fleet reload. `endpoint` is the new index of the endpoint."""
        place = self.add(ticket)
        record: Record = flight._replace(endpoint=endpoint)
        self.rows[place] = tuple(record)
