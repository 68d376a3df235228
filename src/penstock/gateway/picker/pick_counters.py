"""Counts a picker's decisions in plain Python and copies them to shared memory at intervals.

Writing a record's field directly costs a microsecond.
"""

from collections.abc import Mapping
from typing import Final

from penstock.routing.records import Records

_BY_ENDPOINT: Final = ("picked", "answered", "failed", "moved", "prompt_bytes", "predicted_ttft_s")


class PickCounters:
    """Counters of one picker, per endpoint and total."""

    def __init__(self, endpoints: int) -> None:
        self.picked, self.answered, self.failed, self.moved = ([0] * endpoints for _ in range(4))
        self.in_flight, self.prompt_bytes = [0] * endpoints, [0] * endpoints
        self.predicted_ttft_s = [0.0] * endpoints
        self.decisions = self.rejected = self.refused = 0
        self.unknown_tickets = self.dropped_flights = 0
        self.decide_s = 0.0

    def sent(self, endpoint: int, prompt_bytes: int, ttft_s: float) -> None:
        """Count a request sent to an endpoint."""
        self.picked[endpoint] += 1
        self.in_flight[endpoint] += 1
        self.prompt_bytes[endpoint] += prompt_bytes
        self.predicted_ttft_s[endpoint] += ttft_s

    def ended(self, endpoint: int, *, failed: bool, moved: bool) -> None:
        """Count an ended request."""
        self.answered[endpoint] += 1
        self.in_flight[endpoint] -= 1
        self.failed[endpoint] += failed
        self.moved[endpoint] += moved

    def carry_over(self, before: "PickCounters", here: Mapping[int, int | None]) -> None:
        """Continue the counts from before a reload. `here` maps old to new indices, None for a removed endpoint."""
        for name in _BY_ENDPOINT:
            was, counts = getattr(before, name), getattr(self, name)
            for old, new in here.items():
                if new is not None:
                    counts[new] = was[old]
        self.decisions, self.rejected, self.refused = before.decisions, before.rejected, before.refused
        self.unknown_tickets, self.dropped_flights = before.unknown_tickets, before.dropped_flights
        self.decide_s = before.decide_s

    def write(self, mine: Records, state: Records) -> None:
        """Copy the counts to shared memory for the other processes."""
        mine["picked"], mine["ended"], mine["failed"], mine["moved"] = (
            self.picked,
            self.answered,
            self.failed,
            self.moved,
        )
        mine["in_flight"], mine["prompt_bytes"] = self.in_flight, self.prompt_bytes
        mine["predicted_ttft_s"] = self.predicted_ttft_s
        state["decisions"], state["decide_s"] = self.decisions, self.decide_s
        state["rejected"], state["refused"] = self.rejected, self.refused
        state["unknown_tickets"], state["dropped_flights"] = self.unknown_tickets, self.dropped_flights
