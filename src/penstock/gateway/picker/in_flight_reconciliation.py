"""Finds leaked decisions: compares the pickers' in-flight counts with Envoy's open requests.

No log line ends a decision if the client leaves while Envoy waits for a picker, or if the picker answers too late. One
comparison proves nothing, because requests start and end between the two counts. A surplus that is present in each of
several comparisons is a leak.
"""

from collections import deque
from collections.abc import Iterable
from math import ceil
from typing import Final

from penstock.gateway.picker.in_flight import InFlightRequest
from penstock.routing.records import Records

COMPARISONS: Final = 5
OLD_S: Final = 3.0
"""Minimum age in seconds of a leaked decision. A younger one may not have reached its endpoint yet."""


class LeakedPicks:
    """The surplus of decisions in the last comparisons, per endpoint."""

    def __init__(self, endpoints: int) -> None:
        self._surpluses: list[deque[int]] = [deque(maxlen=COMPARISONS) for _ in range(endpoints)]
        self._compared_s = [0.0] * endpoints

    def surplus(self, endpoint: int, active_s: float, active: int, in_flight: Records, number: int) -> int:
        """Return how many decisions of picker `number` leaked at an endpoint. `in_flight` has one count per picker."""
        if active_s <= self._compared_s[endpoint]:
            return 0
        self._compared_s[endpoint] = active_s
        total, own = int(in_flight.sum()), int(in_flight[number])
        surpluses = self._surpluses[endpoint]
        surpluses.append(total - active)
        if len(surpluses) < COMPARISONS or min(surpluses) <= 0 or own <= 0:
            return 0
        surplus = ceil(min(surpluses) * own / total)
        surpluses.clear()
        return min(surplus, own)


def oldest(flights: Iterable[tuple[int, InFlightRequest]], endpoint: int, before_s: float, count: int) -> list[int]:
    """Return the tickets of an endpoint's oldest decisions: at most `count`, all sent before `before_s`."""
    tickets: list[int] = []
    for ticket, flight in flights:
        if len(tickets) == count:
            break
        if flight.endpoint == endpoint and flight.sent_s < before_s:
            tickets.append(ticket)
    return tickets
