"""Counts a picker's decisions in plain Python and copies them to shared memory at intervals.

Writing a field in shared memory at each decision would cost a microsecond.
"""

from collections.abc import Mapping
from typing import Final

from penstock.routing.records import Records

_BY_ENDPOINT: Final = ("picked", "answered", "failed", "moved", "struck", "prompt_bytes", "predicted_ttft_s")


class PickCounters:
    """Counters of one picker. Some counters have a value per endpoint, and the others count for the whole fleet."""

    def __init__(self, endpoints: int) -> None:
        self.picked, self.answered, self.failed, self.moved, self.struck = ([0] * endpoints for _ in range(5))
        self.in_flight, self.prompt_bytes = [0] * endpoints, [0] * endpoints
        self.predicted_ttft_s = [0.0] * endpoints
        self.decisions = self.refused = self.invalid = self.held = 0
        self.unknown_tickets = self.dropped_flights = 0
        self.decide_s = 0.0

    def count_sent(self, endpoint: int, prompt_bytes: int, ttft_s: float) -> None:
        """Count a request that is sent to an endpoint. `ttft_s` is the request's predicted TTFT."""
        self.picked[endpoint] += 1
        self.in_flight[endpoint] += 1
        self.prompt_bytes[endpoint] += prompt_bytes
        self.predicted_ttft_s[endpoint] += ttft_s

    def count_ended(self, endpoint: int, *, failed: bool, moved: bool) -> None:
        """Count an ended request.

        `endpoint` is the first choice; `moved` is true if another endpoint served the request.
        """
        self.answered[endpoint] += 1
        self.in_flight[endpoint] -= 1
        self.failed[endpoint] += failed
        self.moved[endpoint] += moved

    def carry_over(self, before: "PickCounters", new_index: Mapping[int, int | None]) -> None:
        """Take over `before`, the counts from before a fleet reload.

        `new_index` maps each old endpoint index to the new index, or to None if the endpoint was removed.
        """
        for name in _BY_ENDPOINT:
            old_counts, new_counts = getattr(before, name), getattr(self, name)
            for old, new in new_index.items():
                if new is not None:
                    new_counts[new] = old_counts[old]
        self.decisions, self.refused, self.invalid = before.decisions, before.refused, before.invalid
        self.unknown_tickets, self.dropped_flights = before.unknown_tickets, before.dropped_flights
        self.decide_s, self.held = before.decide_s, before.held

    def write(self, counts: Records, state: Records) -> None:
        """Copy the counts to shared memory for the other processes."""
        counts["picked"], counts["ended"], counts["failed"], counts["moved"] = (
            self.picked,
            self.answered,
            self.failed,
            self.moved,
        )
        counts["struck"], counts["in_flight"], counts["prompt_bytes"] = self.struck, self.in_flight, self.prompt_bytes
        counts["predicted_ttft_s"] = self.predicted_ttft_s
        state["decisions"], state["decide_s"] = self.decisions, self.decide_s
        state["refused"], state["invalid"], state["held"] = self.refused, self.invalid, self.held
        state["unknown_tickets"], state["dropped_flights"] = self.unknown_tickets, self.dropped_flights
