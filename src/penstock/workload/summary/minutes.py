"""Finds the busiest minute of a workload in one pass, without a table of all minutes."""

import numpy as np

from penstock.workload.requests import Float64s

MINUTE_S = 60.0


class Minutes:
    """A counter of requests per whole minute from the first arrival.

    The last minute is not counted, because it is rarely complete.
    """

    def __init__(self) -> None:
        self._first_s: float | None = None
        self._last_s = 0.0
        self._open = 0
        self._open_requests = 0
        self._most_requests = 0

    def add(self, arrival_s: Float64s) -> None:
        """Add the arrivals of the next block of requests to the running counts."""
        if not len(arrival_s):
            return
        if self._first_s is None:
            self._first_s = float(arrival_s[0])
        minutes, requests = np.unique(((arrival_s - self._first_s) / MINUTE_S).astype(np.int64), return_counts=True)
        if minutes[0] == self._open:
            requests[0] += self._open_requests
        else:
            self._most_requests = max(self._most_requests, self._open_requests)
        self._most_requests = max(self._most_requests, int(requests[:-1].max(initial=0)))
        self._open, self._open_requests = int(minutes[-1]), int(requests[-1])
        self._last_s = float(arrival_s[-1])

    @property
    def busiest_per_s(self) -> float | None:
        """Requests per second in the busiest minute; None if all requests arrive at the same time.

        If the arrivals span less than a minute, this is the mean rate of all arrivals.
        """
        span_s = 0.0 if self._first_s is None else self._last_s - self._first_s
        if span_s <= 0:
            return None
        return self._most_requests / MINUTE_S if self._open else self._open_requests / span_s
