"""Finds decisions whose end was never logged, by comparing the pickers' in-flight counts with Envoy's open requests.

A decision leaks if the client disconnects while Envoy waits for a picker, or if the picker answers too late. A single
comparison proves nothing, because requests start and end between the pickers' count and Envoy's count. If the pickers'
count exceeds Envoy's in several consecutive comparisons, the surplus consists of leaked decisions.

All open requests of clients are compared, not those at each endpoint: a request that waits for its model is at no
endpoint yet, and one that Envoy has tried elsewhere is at another endpoint than its decision.
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
    """Surplus of the pickers' in-flight count over Envoy's in the last comparisons."""

    def __init__(self) -> None:
        self._surpluses: deque[int] = deque(maxlen=COMPARISONS)
        self.compared_s = 0.0
        """Time of Envoy's count in the last comparison."""

    def surplus(self, counted_s: float, open_requests: int, in_flight: Records, number: int) -> int:
        """Return how many decisions of picker `number` have leaked.

        Envoy had `open_requests` at the time `counted_s`, which is later at each call. `in_flight` has one count per
        picker.
        """
        self.compared_s = counted_s
        total, own = int(in_flight.sum()), int(in_flight[number])
        self._surpluses.append(total - open_requests)
        if len(self._surpluses) < COMPARISONS or min(self._surpluses) <= 0 or own <= 0:
            return 0
        surplus = ceil(min(self._surpluses) * own / total)
        self._surpluses.clear()
        return min(surplus, own)


def oldest(flights: Iterable[tuple[int, InFlightRequest]], at: Records, before_s: float, count: int) -> list[int]:
    """Return the tickets of the oldest requests sent before `before_s`, at most `count` tickets.

    `at` says of each endpoint whether its requests are considered.
    """
    tickets: list[int] = []
    for ticket, flight in flights:
        if len(tickets) == count:
            break
        if at[flight.endpoint] and flight.sent_s < before_s:
            tickets.append(ticket)
    return tickets
