"""Which decisions led nowhere? What pickers count in flight, held against what Envoy has open.

A client that leaves while Envoy waits for a picker, or a picker that answers too late, leaves a decision that no log
line ends. One look proves nothing, because requests come and go between two counts; what every one of several looks has
too much is not there.
"""

from collections import deque
from collections.abc import Iterable
from math import ceil
from typing import Final

from penstock.gateway.picker.in_flight import InFlightRequest
from penstock.routing.records import Records

LOOKS: Final = 5
OLD_S: Final = 3.0
"""A decision younger than this may not have reached its endpoint yet."""


class LeakedPicks:
    """The last looks at each endpoint."""

    def __init__(self, endpoints: int) -> None:
        self._excess: list[deque[int]] = [deque(maxlen=LOOKS) for _ in range(endpoints)]
        self._looked_s = [0.0] * endpoints

    def surplus(self, endpoint: int, active_s: float, active: int, in_flight: Records, number: int) -> int:
        """How many decisions of picker `number` about an endpoint led nowhere; `in_flight` is by picker."""
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
    """The tickets of an endpoint's oldest decisions, no more than `count` and none that is young."""
    found: list[int] = []
    for ticket, flight in flights:
        if len(found) == count:
            break
        if flight.endpoint == endpoint and flight.sent_s < before_s:
            found.append(ticket)
    return found
