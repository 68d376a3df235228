"""Finds decisions whose end was never logged, by comparing the pickers' in-flight counts with Envoy's open requests.

A decision leaks if the client disconnects while Envoy waits for a picker, or if the picker answers too late. A single
comparison proves nothing, because requests start and end between the pickers' count and Envoy's count. If the pickers'
count exceeds Envoy's in several consecutive comparisons, the surplus consists of leaked decisions.
"""

from collections import deque
from collections.abc import Iterable
from math import ceil
from typing import Final

from penstock.gateway.picker.in_flight import InFlightRequest
from penstock.routing.records import Records

COMPARISONS: Final = 5
OLD_S: Final = 3.0
"""Minimum age, in seconds, at which a decision can count as leaked. A younger request may not be open in Envoy yet."""


class LeakedPicks:
    """Surplus of the pickers' in-flight count over Envoy's in the last comparisons, for each endpoint."""

    def __init__(self, endpoints: int) -> None:
        self._surpluses: list[deque[int]] = [deque(maxlen=COMPARISONS) for _ in range(endpoints)]
        self._compared_s = [0.0] * endpoints

    def surplus(self, endpoint: int, active_s: float, active: int, in_flight: Records, number: int) -> int:
        """Return how many decisions of picker `number` for an endpoint have leaked.

        `active` is Envoy's number of open requests at the time `active_s`. `in_flight` has one count per picker.
        """
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
    """Return the tickets of an endpoint's oldest requests sent before `before_s`, at most `count` tickets."""
    tickets: list[int] = []
    for ticket, flight in flights:
        if len(tickets) == count:
            break
        if flight.endpoint == endpoint and flight.sent_s < before_s:
            tickets.append(ticket)
    return tickets
