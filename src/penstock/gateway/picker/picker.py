"""Ranks the endpoints for each request with the policy of `routing`, on this picker's state."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np

from penstock.gateway.picker import compiled_policy
from penstock.gateway.picker.decision_receipts import ReceiptBook
from penstock.gateway.picker.failure_detector import FailureDetector, has_failed
from penstock.gateway.picker.in_flight import InFlightRequest, InFlightRequests, struct_of
from penstock.gateway.picker.in_flight_reconciliation import OLD_S, LeakedPicks, oldest
from penstock.gateway.picker.late_fallback import late_candidates, shortened
from penstock.gateway.picker.learned_lengths import LearnedLengths
from penstock.gateway.picker.pick_counters import PickCounters
from penstock.gateway.picker.prefix_index import BLOCK_BYTES, PrefixIndex
from penstock.gateway.picker.readiness import EndpointReadiness
from penstock.gateway.picker.request_body import RequestBody, RequestHints
from penstock.gateway.picker.retry_after import ShedRatio, retry_s
from penstock.gateway.picker.tenant_weights import TenantWeights
from penstock.gateway.state.routed_fleet import SHED_FRACTION, RoutedFleet, listed
from penstock.gateway.state.shared_tables import read_row
from penstock.gateway.state.timeouts import SILENCE_S, silence_s
from penstock.routing.records import ENDPOINT, REQUEST, Records, new_request
from penstock.routing.records import REPORT as SAID

MAX_NAMED: Final = 3
"""Maximum endpoints returned for a request: the picked one and two fallbacks."""
_REPORTS_EVERY_S: Final = 0.002
_MIN_TOKEN_S: Final = 1e-6
"""Shortest plausible inter-token latency, in seconds."""
_KEPT: Final = tuple((ENDPOINT.names or ())[(ENDPOINT.names or ()).index("prefill_correction") :])
"""Fields of an endpoint's record that change at run time."""
_PRIME: Final = 2_654_435_761
_REQUEST: Final = struct_of(REQUEST)
_OK: Final = 200


class Named(NamedTuple):  # a frozen dataclass takes three times as long to create
    """Endpoints for a request, first choice first. If empty, Envoy falls back to its own weights."""

    model: str
    order: tuple[int, ...] = ()
    ticket: int = 0
    silence_s: float = 0.0
    """Seconds an endpoint may be silent before Envoy asks whether it is alive."""
    streamed: bool = False
    """True if the response is known to be streamed."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A rejected request, with the HTTP status and the reason."""

    status: int
    reason: str
    message: str
    retry_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTables:
    """Tables in shared memory that this picker reads and writes."""

    reports: Records
    counts: Records
    """Indexed by picker and endpoint."""
    states: Records
    """Indexed by picker."""


class Picker:
    """One picker process's decisions and the state they are made from."""

    def __init__(
        self,
        fleet: RoutedFleet,
        tables: SharedTables,
        number: int,
        clock: Callable[[], float] = time.monotonic,
        receipts: ReceiptBook | None = None,
        min_silence_s: float = SILENCE_S,
    ) -> None:
        self._receipts, self._policy = receipts, compiled_policy.every_request()
        self.fleet, self._tables, self._number, self._clock = fleet, tables, number, clock
        count = len(fleet.addresses)
        self.endpoints = fleet.endpoints.copy()
        self.parameters = fleet.parameters(len(tables.counts))
        self.learned = LearnedLengths(fleet)
        self._mine, self._state = tables.counts[number], tables.states[number]
        self.tally = PickCounters(count)
        self._index_of = {address: index for index, address in enumerate(fleet.addresses)}
        self._bits = {model: 1 << place for place, model in enumerate(fleet.names)}
        self._classes = {
            model: [(number, item) for number, item in enumerate(fleet.classes) if item.model == model]
            for model in fleet.models
        }
        self._prefixes = PrefixIndex()
        self._request, self._order = new_request(), np.zeros(MAX_NAMED, np.int64)
        self._request_bytes = self._request.view(np.uint8).data
        self._tpot_now_s = self.endpoints["tpot_now_s"]
        self._said, self._tenants = np.zeros(1, SAID), TenantWeights()
        self._tenant, self._crowd = 0, ShedRatio()
        self._hits, self._harms = np.zeros(count, np.int64), np.zeros(count)
        self._seen, self._sequences = np.zeros(count, np.uint64), tables.reports["sequence"]
        self._flights = InFlightRequests()
        self._due: list[tuple[float, int]] = []
        self._unseen: list[tuple[float, int]] = []
        # Start the tickets at the clock, so that none of a previous picker is reused: its requests may still be in
        # flight.
        self._tickets = int(clock() * 1e6)
        self._looked_s = -math.inf
        self._leaks = LeakedPicks(count)
        self._failures, self._min_silence_s = FailureDetector(fleet, self.endpoints, min_silence_s), min_silence_s
        self.readiness = EndpointReadiness(fleet)
        now_s = clock()
        self._up, self._looked = np.zeros(count, np.int64), False
        self._divide()
        for index in range(count):
            compiled_policy.refresh(self.endpoints, index, now_s, self.parameters)

    def decide(
        self, asked: RequestBody, body: bytes, wish: RequestHints, only: frozenset[int] | None = None
    ) -> Named | Refused:
        """Choose endpoints for a request. `only` limits them to the subset that a gateway gave."""
        begun = self._clock()
        model = self._model(asked)
        if model is None:
            self.tally.refused += 1
            return self._no_model(asked.model)
        self._look(begun)
        keys = self._fill(asked, body, wish, model, begun)
        among = self._among(only)
        found = self._rank(among)
        if not found and shortened(self._request, among, self._hits):
            found = self._rank(among)
        if not found and wish.sheddable and (late := late_candidates(self._request, among)) is not None:
            self._request["sheddable"], among = 0, late
            found = self._rank(among)
        self.tally.decisions += 1
        if wish.sheddable:
            self._crowd.came(begun, let_in=found > 0)
        if self._receipts is not None:
            self._receipts.note(self._request, among, self._hits, self.parameters, self._order[:found])
        answer = self._named(found, model, keys, asked) if found else self._unnamed(model, only)
        self.tally.decide_s += self._clock() - begun
        return answer

    def _divide(self) -> None:
        """Prefer this picker's own share of the endpoints while a whole pool is up and none is slow."""
        again = self._looked or not np.array_equal(self._up, self.endpoints["accepts"])
        if again and len(self._tables.counts) > 1:
            self._up, self._looked = self.endpoints["accepts"].copy(), False
            compiled_policy.divide(self.endpoints, self._number, len(self._tables.counts))

    def _model(self, asked: RequestBody) -> str | None:
        if not asked.model:  # as engines do: it is for the only model
            return self.fleet.models[0] if len(self.fleet.models) == 1 else None
        return asked.model if asked.model in self._bits else None

    def _no_model(self, said: str | None) -> Refused:
        if not said:
            return Refused(400, "no-model", f"model is missing; write one of {listed(self.fleet.names)}")
        return Refused(404, "no-such-model", f"The model `{said[:100]}` does not exist.")

    def _fill(self, asked: RequestBody, body: bytes, wish: RequestHints, name: str, now_s: float) -> list[int]:
        """Fill the request's record and its expected cache hits. Return the keys of its prefix blocks."""
        model = self.fleet.model_of[name]
        per_token = self.learned.bytes_per_token[model]
        tokens = max(1, int(asked.body_bytes / per_token))
        expected = max(1, int(self.learned.output_tokens[model]))
        if asked.limit_tokens is not None:
            expected = min(expected, asked.limit_tokens)
        number, (ttft_s, tpot_s, e2e_s) = self._class(model, tokens, expected)
        self._tenant, fair = self._tenants.weighed(wish.tenant, now_s)
        if wish.sheddable:
            self.parameters["shed_fraction"] = SHED_FRACTION * fair
        self._tickets += 1
        _REQUEST.pack_into(
            self._request_bytes,
            0,
            now_s,
            self._bits[name],
            tokens,
            expected,
            asked.limit_tokens or 0,
            wish.ttft_s or ttft_s,
            wish.tpot_s or tpot_s,
            e2e_s,
            wish.weight * fair,
            number,
            self._tenant,
            wish.sheddable,
            self._tickets,
            (self._tickets * _PRIME + self._number) % 2**31,
        )
        if len(body) - asked.prefix_from < BLOCK_BYTES:
            self._hits.fill(0)
            return []
        keys = self._prefixes.keys(body, asked.prefix_from, name)
        self._prefixes.fill_hits(keys, self._hits, BLOCK_BYTES / per_token, now_s)
        np.minimum(self._hits, tokens - 1, out=self._hits)
        return keys

    def _class(self, model: str, input_tokens: int, output_tokens: int) -> tuple[int, tuple[float, float, float]]:
        """Return the class with the nearest lengths and its SLO in seconds: TTFT, TPOT, end to end."""
        of_model = self._classes[model]
        if not of_model:
            return 0, (math.inf, math.inf, math.inf)
        number, item = of_model[0]
        if len(of_model) > 1:
            number, item = min(of_model, key=lambda one: one[1].distance(input_tokens, output_tokens))
        return number, (item.ttft_s or math.inf, item.tpot_s or math.inf, item.e2e_s or math.inf)

    def _among(self, only: frozenset[int] | None) -> Records:
        if only is None:
            return self.endpoints
        limited = self.endpoints.copy()
        for index in range(len(limited)):
            if index not in only:
                limited[index]["accepts"] = 0
        return limited

    def _rank(self, among: Records) -> int:
        return self._policy.rank(self._request, among, self._hits, self.parameters, self._order, self._harms)

    def _named(self, found: int, model: str, keys: list[int], asked: RequestBody) -> Named:
        order, ticket = tuple(self._order.tolist()[:found]), self._tickets
        first, place = order[0], self._flights.opened(ticket)
        hit = self._hits.item(first)
        self._policy.sent(self.endpoints, first, self._request, hit, self._flights.rows, place, self.parameters)
        flight = self._flights.at(place)
        ttft_s = flight.ttft_s
        heappush(self._due, (flight.sent_s + ttft_s, ticket))
        if keys:
            self._prefixes.note(keys, first, flight.sent_s)
        answers = asked.choices * flight.expected_output_tokens
        self._tenants.served(self._tenant, flight.input_tokens, answers, flight.sent_s)
        self.tally.sent(first, asked.body_bytes, ttft_s)
        rest_s = 0.0 if asked.stream else self._tpot_now_s.item(first) * flight.expected_output_tokens
        return Named(model, order, ticket, silence_s(ttft_s + rest_s, self._min_silence_s), asked.stream)

    def _unnamed(self, model: str, only: frozenset[int] | None) -> Named | Refused:
        """Return why the policy chose no endpoint: none is up, the response fits in none, or the request is shed."""
        mine = [index for index in self.fleet.having(model) if only is None or index in only]
        up = self.endpoints[mine]
        up = up[(up["accepts"] != 0) & (up["serves"] & self._bits[model] != 0)]
        if not len(up):
            return Named(model)
        most, limit = int(up["max_context_tokens"].max()), int(self._request["output_limit_tokens"][0])
        if limit >= most:
            self.tally.refused += 1
            message = f"This model's maximum context length is {most} tokens; an answer of {limit} is asked for"
            return Refused(400, "too-long", message)
        self.tally.rejected += 1
        again_s = retry_s(self._request, self._among(only), self._hits, self._crowd)
        return Refused(429, "saturated", "no endpoint can serve this in time", again_s)

    def ended(self, ticket: int, served: str, status: int, flags: str, tries: int, *, alone: bool = False) -> None:
        """Record an ended request from Envoy's log. `alone`: no log has its separate tries."""
        place = self._flights.closed(ticket)
        if place is None:
            self.tally.unknown_tickets += 1
            return
        now_s, flight = self._clock(), self._flights.at(place)
        first, last = flight.endpoint, self._index_of.get(served)
        moved, failed = first != (first if last is None else last), has_failed(status, flags, tries)
        self.tally.ended(first, failed=failed, moved=moved)
        if self._failures.ended(ticket, first, last, status, flags, now_s, alone=alone):
            self._divide()
        if failed or moved:  # gives no latency sample for this endpoint
            compiled_policy.lost(self.endpoints, self._flights.rows, place, now_s, self.parameters)
        else:
            tokens = self._tokens(flight, now_s)
            self._policy.finished(self.endpoints, self._flights.rows, place, tokens, now_s, self.parameters)

    def try_failed(self, ticket: int, served: str, status: int, flags: str) -> None:
        """Record that an endpoint failed a request, which Envoy then sends to another endpoint."""
        index = self._index_of.get(served)
        if index is not None and ticket in self._flights:
            self._failures.try_failed(ticket, index, status, flags, self._clock())
            self._divide()

    def ask_again_s(self, ticket: int, tried: Sequence[str], *, first: bool) -> int | None:
        """Return seconds until Envoy checks a silent request again, or None to try the next endpoint now."""
        if (place := self._flights.place(ticket)) is None:
            return None
        indices = [self._index_of[address] for address in tried if address in self._index_of]
        now_s = self._clock()
        return self._failures.ask_again_s(ticket, indices, now_s - self._flights.at(place).sent_s, now_s, first=first)

    def not_found(self, ticket: int, served: str, name: str) -> None:
        """Record a 404 for a model name. An adapter is excluded there; for a base model the endpoint is suspected."""
        index, now_s = self._index_of.get(served), self._clock()
        if index is None or name not in self._bits or (place := self._flights.place(ticket)) is None:
            return
        self._failures.try_failed(ticket, index, 0, "-", now_s)
        if self._flights.at(place).endpoint == index:
            self._failures.unknown.tell(ticket)
        if name == self.fleet.served[index]:
            self._failures.suspect(index, now_s)
            self._divide()
        else:
            self._failures.unknown.leave(self.endpoints, index, name, now_s)

    def unseen(self, ticket: int) -> None:
        """Schedule the predicted end of a request whose end no log will report."""
        place = self._flights.place(ticket)
        if place is not None:
            flight = self._flights.at(place)
            life_s = flight.ttft_s + self._tpot_now_s.item(flight.endpoint) * flight.expected_output_tokens
            heappush(self._unseen, (flight.sent_s + life_s, ticket))

    def _tokens(self, flight: InFlightRequest, now_s: float) -> int:
        """Estimate a response's tokens from its duration and inter-token latency; 0 if that is unknown."""
        between_s, first_s = self.learned.itl_s.item(flight.endpoint), flight.first_s
        return 1 + round((now_s - first_s) / between_s) if between_s > _MIN_TOKEN_S and first_s < now_s else 0

    def _look(self, now_s: float) -> None:
        """Apply new scraper reports, retrials, predicted ends, and first tokens that are due."""
        if now_s - self._looked_s < _REPORTS_EVERY_S:
            return
        self._looked_s = now_s
        if not np.array_equal(self._sequences, self._seen):
            for index in np.flatnonzero(self._sequences != self._seen):
                row = read_row(self._tables.reports, int(index))
                if row is not None:
                    self._seen[index] = row["sequence"]
                    self._report(int(index), row, now_s)
            self._divide()
        if self._failures.try_again(now_s):
            self._divide()
        while self._unseen and self._unseen[0][0] <= now_s:
            self.ended(heappop(self._unseen)[1], "", _OK, "-", 1)
        while self._due and self._due[0][0] <= now_s:
            due_s, ticket = heappop(self._due)
            place = self._flights.place(ticket)
            if place is not None:
                self._first(place, due_s)

    def _report(self, index: int, row: np.void, now_s: float) -> None:
        record = self.endpoints[index]
        self._failures.reported(index, row, now_s)
        self.readiness.report(index, healthy=bool(row["healthy"] != 0))
        if row["kv_tokens"] > 0:
            record["kv_tokens"] = row["kv_tokens"]
        if row["active_s"] > 0:
            self._drop_leaks(index, row, now_s)
        self.learned.take(index, row, self._tables.counts["prompt_bytes"].sum(axis=0))
        if row["reported_s"] > record["reported_s"]:
            # Treat the picker's current state as its state at the scrape: a page is only milliseconds old.
            compiled_policy.begin_report(self.endpoints, index, self._said, 0, float(row["reported_s"]))
            for name in ("running", "waiting", "kv_used_tokens"):
                self._said[name] = row[name]
            self._looked |= compiled_policy.reported(self.endpoints, index, self._said, 0, now_s, self.parameters)

    def _drop_leaks(self, index: int, row: np.void, now_s: float) -> None:
        in_flight = self._tables.counts["in_flight"][:, index].copy()
        in_flight[self._number] = self.tally.in_flight[index]
        count = self._leaks.surplus(index, float(row["active_s"]), int(row["active"]), in_flight, self._number)
        if count:
            for ticket in oldest(self._flights.all(), index, now_s - OLD_S, count):
                if (place := self._flights.closed(ticket)) is not None:
                    self._failures.forget(ticket)
                    self.tally.in_flight[index] -= 1
                    self.tally.dropped_flights += 1
                    compiled_policy.lost(self.endpoints, self._flights.rows, place, now_s, self.parameters)

    def _first(self, place: int, due_s: float) -> None:
        """Record a due first token at the time implied by this endpoint's observed TTFT ratio."""
        flight = self._flights.at(place)
        self.learned.note_prediction(flight.endpoint, flight.ttft_s)
        observed_s = flight.sent_s + flight.ttft_s * self.learned.first_ratio.item(flight.endpoint)
        observed_s = max(observed_s, 1e-6) if observed_s > 0 else due_s
        self._policy.first_token(self.endpoints, self._flights.rows, place, observed_s, self.parameters)

    def tick(self) -> None:
        """Apply reports without a request, and publish the counters."""
        self._look(self._clock())
        self.tally.write(self._mine, self._state)

    def adopt(self, before: "Picker") -> None:
        """Take over the state of the picker from before a fleet reload."""
        here = {index: self._index_of.get(address) for index, address in enumerate(before.fleet.addresses)}
        for old, new in here.items():
            if new is not None:
                for name in _KEPT:
                    self.endpoints[new][name] = before.endpoints[old][name]
                self.tally.in_flight[new] = int(before.endpoints[old]["in_flight"])
                self.readiness.adopt(new, before.readiness, old)
        for ticket, flight in before._flights.all():  # noqa: SLF001 - same class
            new = here[flight.endpoint]
            if new is not None:
                self._flights.adopt(ticket, flight, new)
        self._due = [entry for entry in before._due if entry[1] in self._flights]  # noqa: SLF001 - same class
        self._unseen = [entry for entry in before._unseen if entry[1] in self._flights]  # noqa: SLF001 - same class
        self._tickets = before._tickets  # noqa: SLF001 - same class
        self._failures.adopt(before._failures, here)  # noqa: SLF001 - same class
        self.tally.carry_over(before.tally, here)
