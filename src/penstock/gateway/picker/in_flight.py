"""Which requests are on their way? One array with a place for each, and bytes in and out of it without numpy's detours.

To read or write one field of a record through numpy takes a third of a microsecond and to make a record a whole one; a
decision needs some thirty of them. `struct` packs and unpacks a whole record in that time.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from penstock.routing.records import FLIGHT, Record, Records

_FIRST_PLACES: Final = 256


def struct_of(dtype: np.dtype[np.void]) -> Struct:
    """How a record of floats and integers lies in memory."""
    kinds = [dtype[name].str for name in dtype.names or ()]
    packed = Struct("=" + "".join({"<f8": "d", "<i8": "q"}[kind] for kind in kinds))
    if packed.size != dtype.itemsize:
        raise TypeError(f"{dtype} has gaps")
    return packed


_FLIGHT: Final = struct_of(FLIGHT)


class InFlightRequest(NamedTuple):
    """What FLIGHT says of one request; `FLIGHT` has the meanings."""

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


class InFlightRequests:
    """Requests on their way, by ticket."""

    def __init__(self) -> None:
        self.rows: Records = np.zeros(_FIRST_PLACES, FLIGHT)
        self._bytes = self.rows.view(np.uint8).data
        self._free = list(range(_FIRST_PLACES))
        self._places: dict[int, int] = {}

    def __contains__(self, ticket: int) -> bool:
        return ticket in self._places

    def opened(self, ticket: int) -> int:
        """Return a place for a request."""
        if not self._free:
            before, old = len(self.rows), self.rows
            self.rows = np.zeros(2 * before, FLIGHT)  # of the very same type, unlike what numpy concatenates
            self.rows[:before] = old
            self._bytes = self.rows.view(np.uint8).data
            self._free.extend(range(before, 2 * before))
        place = self._places[ticket] = self._free.pop()
        return place

    def place(self, ticket: int) -> int | None:
        """Where a request is; None where it is over."""
        return self._places.get(ticket)

    def closed(self, ticket: int) -> int | None:
        """Give a request's place back; what it says can be read until the next one is opened."""
        place = self._places.pop(ticket, None)
        if place is not None:
            self._free.append(place)
        return place

    def at(self, place: int) -> InFlightRequest:
        """What a place says."""
        return InFlightRequest._make(_FLIGHT.unpack_from(self._bytes, place * _FLIGHT.size))

    def all(self) -> Iterator[tuple[int, InFlightRequest]]:
        """Every request, oldest first."""
        for ticket, place in self._places.items():
            yield ticket, self.at(place)

    def adopt(self, ticket: int, flight: InFlightRequest, endpoint: int) -> None:
        """Go on with a request of before, at an endpoint that has another number now."""
        place = self.opened(ticket)
        record: Record = flight._replace(endpoint=endpoint)
        self.rows[place] = tuple(record)
