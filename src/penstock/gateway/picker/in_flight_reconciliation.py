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

LOOKS: Final = 5
OLD_S: Final = 3.0
"""Age in seconds. A younger decision may not have reached its endpoint yet."""


class LeakedPicks:
    """Surplus of the last comparisons, per endpoint."""

    def __init__(self, endpoints: int) -> None:
        self._excess: list[deque[int]] = [deque(maxlen=LOOKS) for _ in range(endpoints)]
        self._looked_s = [0.0] * endpoints

    def surplus(self, endpoint: int, active_s: float, active: int, in_flight: Records, number: int) -> int:
        """Return how many decisions of picker `number` leaked at an endpoint. `in_flight` is by picker."""
        if active_s <= self._looked_s[endpoint]:
            return 0
        self._looked_s[endpoint] = active_s
        total, mine = int(in_flight.sum()), int(in_flight[number])
        looks = self._excess[endpoint]
        looks.append(total - active)
        if len(looks) < LOOKS or min(looks) <= 0 or mine <= 0:
            return 0
        surplus = ceil(min(looks) * mine / total)
        looks.clear()
        return min(surplus, mine)


def oldest(flights: Iterable[tuple[int, InFlightRequest]], endpoint: int, before_s: float, count: int) -> list[int]:
    """Return the tickets of an endpoint's oldest decisions: at most `count`, all sent before `before_s`."""
    found: list[int] = []
    for ticket, flight in flights:
        if len(found) == count:
            break
        if flight.endpoint == endpoint and flight.sent_s < before_s:
            found.append(ticket)
    return found
