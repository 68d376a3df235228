"""Binds the compiled routing policy to the arrays of one picker. The simulator runs the same policy."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from penstock.routing import picker_calls
from penstock.routing.picker_calls import PickerTable
from penstock.routing.records import Records, new_request

_CALLS: Final[tuple[Any, ...]] = (
    picker_calls.rank,
    picker_calls.count_arrival,
    picker_calls.count_refusal,
    picker_calls.refresh,
    picker_calls.sent,
    picker_calls.first_token,
    picker_calls.finished,
    picker_calls.lost,
    picker_calls.record_departure,
    picker_calls.begin_report,
    picker_calls.reported,
    picker_calls.divide,
)


class PolicyArrays:
    """Arrays that the policy reads and writes for one request.

    The arrays are allocated once and reused for every request.
    """

    def __init__(self, endpoints: int, max_chosen: int) -> None:
        self.request = new_request()
        self.request_bytes = self.request.view(np.uint8).data
        self.hits = np.zeros(endpoints, np.int64)
        """Number of prompt tokens that each endpoint is expected to have in its prefix cache."""
        self.order = np.zeros(max_chosen, np.int64)
        self.harms = np.zeros(endpoints)


class CompiledPolicy:
    """The policy's functions, bound to the arrays of a picker.

    Each call passes only the arguments that change from request to request.
    """

    rank: Callable[[], int]
    count_arrival: Callable[[], None]
    count_refusal: Callable[[], None]
    refresh: Callable[[int, float], None]
    sent: Callable[[int, int], None]
    first_token: Callable[[int, float], None]
    finished: Callable[[int, int, float], None]
    lost: Callable[[int, float], None]
    record_departure: Callable[[int, float], None]
    begin_report: Callable[[int, int, float], None]
    reported: Callable[[int, int, float], int]
    divide: Callable[[int, int], None]

    def __init__(self, table: PickerTable) -> None:
        self._bind(table)

    def _bind(self, table: PickerTable) -> None:
        self._table, self.flights = table, table.flights
        for call in _CALLS:
            setattr(self, call.__name__, call.bind(table))

    def use_flights(self, flights: Records) -> None:
        """Bind the functions to another array of requests in flight."""
        self._bind(self._table._replace(flights=flights))

    def rank_among(self, endpoints: Records) -> int:
        """Rank endpoints like `rank`, but read the records `endpoints` instead of the picker's endpoint records."""
        return picker_calls.rank(self._table._replace(endpoints=endpoints))
