"""Maintains a picker's state of the fleet: endpoint records, requests in flight, failures and learned values."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

import numpy as np

from penstock.gateway.picker.compiled_policy import CompiledPolicy, PolicyArrays
from penstock.gateway.picker.failure_detector import FailureDetector, has_client_left, has_failed
from penstock.gateway.picker.in_flight import InFlightRequest, InFlightRequests
from penstock.gateway.picker.in_flight_reconciliation import OLD_S, LeakedPicks, oldest
from penstock.gateway.picker.learned_lengths import LearnedLengths
from penstock.gateway.picker.outcome_receipts import ObservedAnswer, OutcomeBook, RequestEnd
from penstock.gateway.picker.pick_counters import PickCounters
from penstock.gateway.picker.readiness import EndpointReadiness
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.state.shared_tables import CLIENTS, read_row
from penstock.routing.picker_calls import PickerTable
from penstock.routing.records import REPORT, Records

_REPORTS_EVERY_S: Final = 0.002
_MIN_TOKEN_S: Final = 1e-6
"""Shortest plausible inter-token latency, in seconds."""
_OK: Final = 200
RUN_TIME_FIELDS: Final = (
    # Learned from reports and responses.
    *("prefill_correction", "decode_correction", "prompts_seen", "answers_seen"),
    *("forgot_s", "forgot_share", "forgot_sent"),
    # Derived from other fields.
    *("tpot_now_s", "stretch", "swing_s", "stall_per_prompt_s", "strain_per_s", "wait_s", "seats_wait_s", "ready_in_s"),
    *("free_tokens", "drain_tokens_per_s", "carry_s", "decode_now_s", "resident_tpot_s"),
    # Reported by the scraper.
    *("reported_s", "running", "waiting", "kv_used_tokens"),
    # Counted by this picker.
    *("others", "residents", "sent", "in_flight", "prefilling", "sent_since_report"),
    *("outstanding_prompt_tokens", "outstanding_prompt_s"),
    *("resident_tokens", "shared_tokens", "resident_output_tokens"),
    *("prompt_load_fraction", "prompt_squares_s", "prompt_load_s"),
    *("in_flight_then", "prefilling_then", "resident_tokens_then", "decoded_tokens", "ended_answers"),
)
"""Fields of an endpoint's record that change at run time. A fleet reload keeps the values of these fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTables:
    """Tables in shared memory that this picker reads and writes."""

    reports: Records
    counts: Records
    """Counters of each picker for each endpoint. The first index is the picker, the second the endpoint."""
    states: Records
    """State of each picker, such as its last heartbeat. The index is the picker."""
    clients: Records = field(default_factory=lambda: np.zeros(1, CLIENTS))
    """Requests of clients that Envoy has open."""


class FleetState:
    """State of the fleet, as known to one picker.

    Scraper reports, Envoy's log lines and predicted events update this state.
    """

    def __init__(
        self,
        fleet: RoutedFleet,
        tables: SharedTables,
        number: int,
        clock: Callable[[], float],
        arrays: PolicyArrays,
    ) -> None:
        self.fleet, self._tables, self._number, self._clock = fleet, tables, number, clock
        self._index_of = {address: index for index, address in enumerate(fleet.addresses)}
        count = len(fleet.addresses)
        # The endpoint records of the policy, and facts about each endpoint that the records do not hold.
        self.endpoints = fleet.endpoints.copy()
        self.parameters = fleet.parameters(len(tables.counts))
        self.tpot_now_s = self.endpoints["tpot_now_s"]
        self.learned = LearnedLengths(fleet)
        self.readiness = EndpointReadiness(fleet)
        self.counters = PickCounters(count)
        self._failures = FailureDetector(fleet, self.endpoints, self.counters.struck)
        self._leaks = LeakedPicks()
        self.outcomes: OutcomeBook | None = None
        # Requests in flight, and heaps of (time, ticket) for events that no log line reports.
        self.flights = InFlightRequests()
        self._first_tokens_due: list[tuple[float, int]] = []
        self._predicted_ends: list[tuple[float, int]] = []
        # The scraper's reports: sequence numbers published and applied, and a buffer for the policy.
        self._sequences, self._applied_sequences = tables.reports["sequence"], np.zeros(count, np.uint64)
        self._report_record = np.zeros(1, REPORT)
        self._applied_reports_s = -math.inf
        self.policy = CompiledPolicy(
            PickerTable(
                request=arrays.request,
                endpoints=self.endpoints,
                hits=arrays.hits,
                parameters=self.parameters,
                order=arrays.order,
                harms=arrays.harms,
                flights=self.flights.rows,
                reports=self._report_record,
            )
        )
        # Values from which the endpoints were last divided among the pickers.
        self._divided_accepts, self._slow_endpoints_changed = np.zeros(count, np.int64), False
        self._divide()
        now_s = clock()
        for index in range(count):
            self.policy.refresh(index, now_s)

    def _divide(self) -> None:
        """Divide the endpoints of each pool among the pickers. Each picker prefers the endpoints assigned to it.

        A pool with an endpoint that is down or slow is not divided.
        """
        changed = self._slow_endpoints_changed or not np.array_equal(self._divided_accepts, self.endpoints["accepts"])
        if changed and len(self._tables.counts) > 1:
            self._divided_accepts, self._slow_endpoints_changed = self.endpoints["accepts"].copy(), False
            self.policy.divide(self._number, len(self._tables.counts))

    def send(self, ticket: int, endpoint: int, body_bytes: int) -> InFlightRequest:
        """Record that the request in the policy's arrays is sent to an endpoint.

        Return the request's in-flight record.
        """
        place = self.flights.add(ticket)
        if self.policy.flights is not self.flights.rows:
            self.policy.use_flights(self.flights.rows)
        self.policy.sent(endpoint, place)
        flight = self.flights.at(place)
        if self.endpoints["ready_in_s"].item(endpoint) == 0.0:
            heappush(self._first_tokens_due, (flight.sent_s + flight.ttft_s, ticket))
        self.counters.count_sent(endpoint, body_bytes, flight.ttft_s)
        return flight

    def is_awake(self, address: str) -> bool:
        """Return whether a request may be forwarded to an endpoint now: its model is awake, or the endpoint is down."""
        self.update(self._clock())
        index = self._index_of.get(address)
        return index is None or not self.endpoints[index]["accepts"] or self.endpoints[index]["ready_in_s"] == 0.0

    def doubts(self, endpoint: int) -> bool:
        """Return whether peers are asked too if an endpoint answers 400 or 422, because its last answer was one."""
        return self._failures.doubted[endpoint]

    def release(self, ticket: int, ready_in_s: float) -> None:
        """Record that a request which waited for its model is forwarded now.

        The engine does not see this wait, so its TTFT is compared with the predicted time without `ready_in_s`.
        """
        if (place := self.flights.place(ticket)) is not None:
            now_s, row = self._clock(), self.flights.rows[place]
            row["waited_s"] += now_s - row["sent_s"]
            row["sent_s"], row["ttft_s"] = now_s, max(0.0, row["ttft_s"] - ready_in_s)
            heappush(self._first_tokens_due, (now_s + float(row["ttft_s"]), ticket))

    def cancel(self, ticket: int) -> None:
        """Record that a request which waited for its model is not forwarded, because its client has left."""
        if (place := self.flights.remove(ticket)) is not None:
            self.counters.count_ended(self.flights.at(place).endpoint, failed=False, moved=False)
            self.policy.lost(place, self._clock())
            if self.outcomes is not None:
                self.outcomes.drop(ticket)

    def end(
        self,
        ticket: int,
        served: str,
        status: int,
        flags: str,
        tries: int,
        *,
        unlogged: bool = False,
        answer: ObservedAnswer | None = None,
    ) -> None:
        """Record that a request has ended. `unlogged` is true if no log lines report the request's failed tries."""
        place = self.flights.remove(ticket)
        if place is None:
            self.counters.unknown_tickets += 1
            return
        now_s, flight = self._clock(), self.flights.at(place)
        first, last = flight.endpoint, self._index_of.get(served)
        moved, failed = first != (first if last is None else last), has_failed(status, flags, tries)
        self.counters.count_ended(first, failed=failed, moved=moved)
        if self.outcomes is not None:
            self._write_outcome(ticket, flight, first if last is None else last, status, failed=failed, answer=answer)
        if self._failures.end(ticket, first, last, status, flags, now_s, unlogged=unlogged):
            self._divide()
        if failed or moved:  # gives no latency sample for this endpoint
            self.policy.lost(place, now_s)
        elif has_client_left(status, flags):  # a missed SLO, although the endpoint may be all right
            self.policy.record_departure(place, now_s)
        else:
            tokens = self._tokens(flight, now_s)
            self.policy.finished(place, tokens, now_s)

    def _write_outcome(
        self,
        ticket: int,
        flight: InFlightRequest,
        index: int,
        status: int,
        *,
        failed: bool,
        answer: ObservedAnswer | None,
    ) -> None:
        if self.outcomes is not None:
            ending = RequestEnd(
                endpoint=self.fleet.addresses[index],
                pool=self.fleet.pools[index],
                index=index,
                status=status,
                failed=failed,
                ended_s=self._clock(),
                flight=flight,
                answer=answer,
            )
            self.outcomes.end(ticket, ending)

    def fail_try(self, ticket: int, served: str, status: int, flags: str) -> None:
        """Record that a try of a request failed at an endpoint. Envoy then sends the request to another endpoint."""
        index = self._index_of.get(served)
        if index is not None and ticket in self.flights:
            self._failures.fail_try(ticket, index, status, flags, self._clock())
            self._divide()

    def model_not_found(self, ticket: int, served: str, name: str) -> None:
        """Record that an endpoint replied 404 because it does not know the requested model name.

        If the unknown name is the endpoint's base model, suspect the endpoint. If the unknown name is an adapter,
        exclude the endpoint only from requests for this adapter.
        """
        index, now_s = self._index_of.get(served), self._clock()
        if index is None or name not in self.fleet.bits or (place := self.flights.place(ticket)) is None:
            return
        self._failures.fail_try(ticket, index, 0, "-", now_s)
        if self.flights.at(place).endpoint == index:
            self._failures.unknown.add(ticket)
        if name == self.fleet.served[index]:
            self._failures.suspect(index, now_s)
            self._divide()
        else:
            self._failures.unknown.exclude(self.endpoints, index, name, now_s)

    def predict_end(self, ticket: int) -> None:
        """Schedule the end of a request at its predicted time.

        Predicted ends are for requests whose end no log line will report.
        """
        place = self.flights.place(ticket)
        if place is not None:
            flight = self.flights.at(place)
            life_s = flight.ttft_s + self.tpot_now_s.item(flight.endpoint) * flight.expected_output_tokens
            heappush(self._predicted_ends, (flight.sent_s + life_s, ticket))

    def _tokens(self, flight: InFlightRequest, now_s: float) -> int:
        """Estimate the number of tokens of a response from its duration and the endpoint's inter-token latency.

        Return 0 if the inter-token latency is unknown, or if the first token is not yet recorded.
        """
        between_s, first_s = self.learned.itl_s.item(flight.endpoint), flight.first_s
        return 1 + round((now_s - first_s) / between_s) if between_s > _MIN_TOKEN_S and first_s < now_s else 0

    def update(self, now_s: float) -> None:
        """Apply new scraper reports. End the suspicions that are due, and apply due predicted ends and first tokens."""
        if now_s - self._applied_reports_s < _REPORTS_EVERY_S:
            return
        self._applied_reports_s = now_s
        if not np.array_equal(self._sequences, self._applied_sequences):
            for index in np.flatnonzero(self._sequences != self._applied_sequences):
                row = read_row(self._tables.reports, int(index))
                if row is not None:
                    self._applied_sequences[index] = row["sequence"]
                    self._apply_report(int(index), row, now_s)
            self._divide()
        self._drop_leaks(now_s)
        if self._failures.try_again(now_s):
            self._divide()
        while self._predicted_ends and self._predicted_ends[0][0] <= now_s:
            self.end(heappop(self._predicted_ends)[1], "", _OK, "-", 1)
        while self._first_tokens_due and self._first_tokens_due[0][0] <= now_s:
            due_s, ticket = heappop(self._first_tokens_due)
            place = self.flights.place(ticket)
            if place is not None:
                self._apply_first_token(place, due_s)

    def _apply_report(self, index: int, row: np.void, now_s: float) -> None:
        record = self.endpoints[index]
        self._failures.apply_report(index, row, now_s)
        self.readiness.report(index, healthy=bool(row["healthy"] != 0))
        record["ready_in_s"] = row["ready_in_s"]
        if row["kv_tokens"] > 0:
            record["kv_tokens"] = row["kv_tokens"]
        self.learned.apply_report(index, row, self._tables.counts["prompt_bytes"].sum(axis=0))
        if row["reported_s"] > record["reported_s"]:
            # Use the picker's current state as its state at the scrape, because the page is only milliseconds old.
            report = self._report_record
            self.policy.begin_report(index, 0, float(row["reported_s"]))
            for name in ("running", "waiting", "kv_used_tokens"):
                report[name] = row[name]
            self._slow_endpoints_changed |= bool(self.policy.reported(index, 0, now_s))

    def _drop_leaks(self, now_s: float) -> None:
        counted_s = self._tables.clients["counted_s"].item(0)
        if counted_s <= self._leaks.compared_s:
            return
        in_flight = self._tables.counts["in_flight"].copy()
        in_flight[self._number] = self.counters.in_flight
        open_requests = self._tables.clients["open"].item(0)
        count = self._leaks.surplus(counted_s, open_requests, in_flight.sum(axis=1), self._number)
        if not count:
            return
        more_than_envoy = in_flight.sum(axis=0) > self._tables.reports["active"]
        leaking = more_than_envoy & (self.endpoints["ready_in_s"] == 0.0)
        for ticket in oldest(self.flights.all(), leaking, now_s - OLD_S, count):
            if (place := self.flights.remove(ticket)) is not None:
                self._failures.forget(ticket)
                if self.outcomes is not None:
                    self.outcomes.drop(ticket)
                self.counters.in_flight[self.flights.at(place).endpoint] -= 1
                self.counters.dropped_flights += 1
                self.policy.lost(place, now_s)

    def _apply_first_token(self, place: int, due_s: float) -> None:
        """Record a request's first token at its predicted time, corrected by the endpoint's observed TTFT ratio."""
        flight = self.flights.at(place)
        self.learned.add_prediction(flight.endpoint, flight.ttft_s)
        observed_s = flight.sent_s + flight.ttft_s * self.learned.first_ratio.item(flight.endpoint)
        observed_s = max(observed_s, 1e-6) if observed_s > 0 else due_s
        self.policy.first_token(place, observed_s)

    def tick(self) -> None:
        """Update the state and publish the counters.

        This function is called periodically, even while no requests arrive.
        """
        now_s = self._clock()
        self.update(now_s)
        if self.outcomes is not None:
            self.outcomes.tick(now_s, self.fleet.addresses, self._tables.reports)
        state = self._tables.states[self._number]
        state["class_price"], state["class_kept"] = self.parameters["class_price"][0], self.parameters["class_kept"][0]
        self.counters.write(self._tables.counts[self._number], state)

    def adopt(self, before: "FleetState") -> None:
        """Take over `before`, the state from before a fleet reload. State of removed endpoints is dropped."""
        new_index = {index: self._index_of.get(address) for index, address in enumerate(before.fleet.addresses)}
        for old, new in new_index.items():
            if new is not None:
                for name in RUN_TIME_FIELDS:
                    self.endpoints[new][name] = before.endpoints[old][name]
                self.counters.in_flight[new] = int(before.endpoints[old]["in_flight"])
                self.readiness.adopt(new, before.readiness, old)
        for ticket, flight in before.flights.all():
            new = new_index[flight.endpoint]
            if new is not None:
                self.flights.adopt(ticket, flight, new)
        self.policy.use_flights(self.flights.rows)
        self._first_tokens_due = self._still_in_flight(before._first_tokens_due)  # noqa: SLF001 - same class
        self._predicted_ends = self._still_in_flight(before._predicted_ends)  # noqa: SLF001 - same class
        self._failures.adopt(before._failures, new_index)  # noqa: SLF001 - same class
        self.counters.carry_over(before.counters, new_index)
        if self.outcomes is not None and before.outcomes is not None:
            self.outcomes.adopt(before.outcomes)

    def _still_in_flight(self, events: list[tuple[float, int]]) -> list[tuple[float, int]]:
        return [entry for entry in events if entry[1] in self.flights]
