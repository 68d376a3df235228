"""Ranks the endpoints for each request by the policy of the package `routing` and this picker's state of the fleet."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import numpy as np

from penstock.gateway.picker.compiled_policy import PolicyArrays
from penstock.gateway.picker.decision_receipts import ReceiptBook
from penstock.gateway.picker.fleet_state import FleetState, SharedTables
from penstock.gateway.picker.in_flight import struct_of
from penstock.gateway.picker.late_fallback import late_candidates, shorten
from penstock.gateway.picker.outcome_receipts import OutcomeBook
from penstock.gateway.picker.outcome_rules import EndedRequest
from penstock.gateway.picker.predicted_latency import IdleEndpoints
from penstock.gateway.picker.prefix_index import BLOCK_BYTES, PrefixIndex
from penstock.gateway.picker.request_body import RequestBody, RequestHints
from penstock.gateway.picker.retry_after import ShedRatio, retry_s
from penstock.gateway.picker.tenant_weights import TenantWeights
from penstock.gateway.state.routed_fleet import RoutedFleet, list_names
from penstock.gateway.state.timeouts import SILENCE_S, silence_s
from penstock.routing.admission import hold_seconds
from penstock.routing.records import HOLD, OVERLOAD, REFUSE, REQUEST, SERVE, SHED_FRACTION, Records

MAX_CHOSEN: Final = 3
"""Maximum number of endpoints that are chosen for a request: the first choice and two fallbacks."""
_PRIME: Final = 2_654_435_761
_REQUEST: Final = struct_of(REQUEST)
_SHED: Final = 429


class EndpointChoice(NamedTuple):  # a frozen dataclass takes three times as long to create
    """Endpoints that were chosen for a request, best first. If no endpoint was chosen, Envoy chooses by weight."""

    model: str
    order: tuple[int, ...] = ()
    ticket: int = 0
    silence_s: float = 0.0
    """Seconds that an endpoint may be silent before Envoy tries another one too."""
    streamed: bool = False
    """True if the response is known to be streamed."""
    doubted: bool = False
    """True if the first endpoint's last answer was a 400 or 422, so that its peers are asked too."""
    ready_in_s: float = 0.0
    """Seconds until the model of the first endpoint is expected to be awake; 0 if it is."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Rejection of a request, with the HTTP status and the reason."""

    status: int
    reason: str
    message: str
    retry_s: int | None = None


class HeldRequest(NamedTuple):
    """A request that is held at the gateway, because serving it now does more harm than good."""


class Picker:
    """The picker of one picker process. The picker chooses endpoints for each request, or rejects the request."""

    def __init__(
        self,
        fleet: RoutedFleet,
        tables: SharedTables,
        number: int,
        clock: Callable[[], float] = time.monotonic,
        receipts: ReceiptBook | None = None,
        min_silence_s: float = SILENCE_S,
        outcomes: OutcomeBook | None = None,
    ) -> None:
        self.fleet, self._number, self._clock = fleet, number, clock
        self._receipts, self._min_silence_s = receipts, min_silence_s
        self._arrays = PolicyArrays(len(fleet.addresses), MAX_CHOSEN)
        self.state = FleetState(fleet, tables, number, clock, self._arrays)
        self.state.outcomes = outcomes if receipts is None else receipts.outcomes
        self._idle = IdleEndpoints(fleet.endpoints, self.state.parameters)
        self._prefixes, self._tenants, self._shed_ratio = PrefixIndex(), TenantWeights(), ShedRatio()
        self._classes = {
            model: [(number, item) for number, item in enumerate(fleet.classes) if item.model == model]
            for model in fleet.models
        }
        # Tickets start at the clock time, so that no ticket of a previous picker process is used again. Requests of
        # that process may still be in flight.
        self._tickets = int(clock() * 1e6)

    def decide(
        self, request: RequestBody, body: bytes, hints: RequestHints, subset: frozenset[int] | None = None
    ) -> EndpointChoice | Rejection:
        """Choose endpoints for a request. If `subset` is given, only endpoints in it may be chosen."""
        return cast("EndpointChoice | Rejection", self._decide(request, body, hints, subset, None))

    def decide_or_hold(
        self, request: RequestBody, body: bytes, hints: RequestHints, waited_s: float
    ) -> EndpointChoice | Rejection | HeldRequest:
        """Choose endpoints for a request, which was held for `waited_s` seconds so far, or let it be held on."""
        return self._decide(request, body, hints, None, waited_s)

    def _decide(
        self,
        request: RequestBody,
        body: bytes,
        hints: RequestHints,
        subset: frozenset[int] | None,
        waited_s: float | None,
    ) -> EndpointChoice | Rejection | HeldRequest:
        """Choose endpoints for a request. It can be held unless `waited_s` is None."""
        begun_s, arrays, counters = self._clock(), self._arrays, self.state.counters
        model = self._model(request)
        if model is None:
            counters.invalid += 1
            return self._unknown_model(request.model)
        self.state.update(begun_s)
        keys, tenant = self._fill_arrays(request, body, hints, model, begun_s, waited_s or 0.0)
        may_shed, is_new = int(arrays.request["sheddable"][0]), not waited_s
        if is_new:
            self.state.policy.count_arrival()
        candidates = self._candidates(subset)
        count = self._rank(candidates)
        if not count and shorten(arrays.request, candidates, arrays.hits):
            count = self._rank(candidates)
        if not count and may_shed and (late := self._late_candidates(candidates)) is not None:
            arrays.request["sheddable"], candidates = SERVE, late
            count = self._rank(candidates)
        counters.decisions += 1
        if may_shed and is_new:
            self._shed_ratio.add(begun_s, admitted=count > 0)
        if self._receipts is not None and (is_new or count):
            parameters = self.state.parameters
            self._receipts.add(arrays.request, candidates, arrays.hits, parameters, arrays.order[:count])
        answer: EndpointChoice | Rejection | HeldRequest
        answer = self._choose(count, model, keys, tenant, request) if count else self._explain_empty(model, subset)
        if isinstance(answer, Rejection) and answer.status == _SHED:
            answer = self._hold_or_shed(answer, may_shed, waited_s)
        if self.state.outcomes is not None:
            self._record(answer, request, hints.tenant, model)
        counters.decide_s += self._clock() - begun_s
        return answer

    def _record(
        self, answer: EndpointChoice | Rejection | HeldRequest, request: RequestBody, tenant: str, model: str
    ) -> None:
        """Remember a request that is sent, or record that it is refused, for the metrics and the bill."""
        outcomes, asked = self.state.outcomes, self._arrays.request[0]
        sent = isinstance(answer, EndpointChoice) and answer.ticket
        refused = isinstance(answer, Rejection) and answer.status == _SHED
        if outcomes is None or not (sent or refused):
            return
        number, classes = int(asked["slo_class"]), self._classes[self.fleet.model_of[model]]
        slo_class = next((item.name for place, item in classes if place == number), "")
        waited_s, input_tokens = float(asked["waited_s"]), int(asked["input_tokens"])
        one = EndedRequest(0.0, tenant, model, slo_class, _SHED, waited_s, request.body_bytes, input_tokens)
        if isinstance(answer, EndpointChoice):
            outcomes.begin(answer.ticket, one, tuple(self._arrays.hits.tolist()))
        else:
            outcomes.refuse(one._replace(failed=not self._own_limits))

    def _hold_or_shed(self, shed: Rejection, may_shed: int, waited_s: float | None) -> Rejection | HeldRequest:
        """Hold a request that would be shed, if it may be held and was not held too long, and count it."""
        asked, counters = self._arrays.request[0], self.state.counters
        limit_s = min(hold_seconds(asked["ttft_s"], asked["e2e_s"]), self.fleet.hold_s)
        if may_shed == HOLD and waited_s is not None and waited_s < limit_s:
            counters.held += waited_s == 0.0
            return HeldRequest()
        if self._own_limits:  # the operator has not promised them
            counters.invalid += 1
            return shed
        counters.refused += 1
        self.state.policy.count_refusal()
        return shed

    def _model(self, request: RequestBody) -> str | None:
        if not request.model:  # as in engines, a request without a model name is for the only model
            return self.fleet.models[0] if len(self.fleet.models) == 1 else None
        return request.model if request.model in self.fleet.bits else None

    def _unknown_model(self, name: str | None) -> Rejection:
        if not name:
            return Rejection(400, "no-model", f"`model` is missing; use one of {list_names(self.fleet.names)}")
        return Rejection(404, "no-such-model", f"The model `{name[:100]}` does not exist.")

    def _fill_arrays(
        self, request: RequestBody, body: bytes, hints: RequestHints, name: str, now_s: float, waited_s: float
    ) -> tuple[list[int], int]:
        """Write a request's record and its expected cache hits into the policy's arrays.

        Return the keys of the prompt's prefix blocks, and the bucket of the tenant.
        """
        model, learned, arrays = self.fleet.model_of[name], self.state.learned, self._arrays
        per_token = learned.bytes_per_token[model]
        tokens = max(1, int(request.body_bytes / per_token))
        expected = max(1, int(learned.output_tokens[model]))
        if request.limit_tokens is not None:
            expected = min(expected, request.limit_tokens)
        slo_class, (ttft_s, tpot_s, e2e_s), overload = self._class(model, tokens, expected)
        asked = self._asked_limits(hints, slo_class, ttft_s, tpot_s)
        self._promised = max(asked[0], ttft_s), max(asked[1], tpot_s)
        self._own_limits = asked[0] < ttft_s or asked[1] < tpot_s
        tenant, fair = self._tenants.weigh(hints.tenant, now_s)
        if hints.sheddable and overload == SERVE:
            overload = REFUSE
        if overload != SERVE:
            self.state.parameters["shed_fraction"] = SHED_FRACTION * fair
        self._tickets += 1
        _REQUEST.pack_into(
            arrays.request_bytes,
            0,
            now_s,
            self.fleet.bits[name],
            tokens,
            expected,
            request.limit_tokens or 0,
            *asked,
            e2e_s,
            (hints.weight if self._may_weigh_more(hints.tenant) else 1.0) * fair,
            slo_class,
            tenant,
            overload,
            self._tickets,
            (self._tickets * _PRIME + self._number) % 2**31,
            waited_s,
        )
        if len(body) - request.prefix_from < BLOCK_BYTES:
            arrays.hits.fill(0)
            return [], tenant
        keys = self._prefixes.keys(body, request.prefix_from, name)
        self._prefixes.fill_hits(keys, arrays.hits, BLOCK_BYTES / per_token, now_s)
        np.minimum(arrays.hits, tokens - 1, out=arrays.hits)
        return keys, tenant

    def _asked_limits(self, hints: RequestHints, slo_class: int, ttft_s: float, tpot_s: float) -> tuple[float, float]:
        """Return the limits of a request: of its headers, above the floors of its class, or else those of its class."""
        item = self.fleet.classes[slo_class] if slo_class < len(self.fleet.classes) else None
        floors = (item.least_ttft_s, item.least_tpot_s) if item is not None else (0.0, 0.0)
        asked = zip((hints.ttft_s, hints.tpot_s), floors, (ttft_s, tpot_s), strict=True)
        first, between = (usual if own is None else max(own, least) for own, least, usual in asked)
        return first, between

    def _may_weigh_more(self, tenant: str) -> bool:
        return self.fleet.critical is None or tenant in self.fleet.critical

    def _class(self, model: str, input_tokens: int, output_tokens: int) -> tuple[int, tuple[float, float, float], int]:
        """Return the number of the request class with the nearest lengths, its SLO, and what overload allows.

        The SLO is TTFT, TPOT and end-to-end time in seconds. An SLO target that the class does not have is infinity.
        """
        of_model = self._classes[model]
        if not of_model:
            return 0, (math.inf, math.inf, math.inf), SERVE
        number, item = of_model[0]
        if len(of_model) > 1:
            number, item = min(of_model, key=lambda one: one[1].distance(input_tokens, output_tokens))
        limits = (item.ttft_s or math.inf, item.tpot_s or math.inf, item.e2e_s or math.inf)
        return number, limits, OVERLOAD[item.overload]

    def _candidates(self, subset: frozenset[int] | None) -> Records:
        if subset is None:
            return self.state.endpoints
        limited = self.state.endpoints.copy()
        for index in range(len(limited)):
            if index not in subset:
                limited[index]["accepts"] = 0
        return limited

    def _late_candidates(self, candidates: Records) -> Records | None:
        return late_candidates(self._arrays.request, candidates, self._arrays.hits, self._idle)

    def _rank(self, candidates: Records) -> int:
        """Write the indices of the best endpoints into the array `order`, best first, and return their number."""
        policy = self.state.policy
        return policy.rank() if candidates is self.state.endpoints else policy.rank_among(candidates)

    def _choose(self, count: int, model: str, keys: list[int], tenant: int, request: RequestBody) -> EndpointChoice:
        """Return the first `count` endpoints of the array `order`.

        Record the request as sent to the first of these endpoints.
        """
        state, arrays, ticket = self.state, self._arrays, self._tickets
        arrays.request["ttft_s"], arrays.request["tpot_s"] = self._promised  # by these its class is judged
        order = tuple(arrays.order.tolist()[:count])
        first = order[0]
        flight = state.send(ticket, first, request.body_bytes)
        if keys:
            self._prefixes.add(keys, first, flight.sent_s)
        output_tokens = request.choices * flight.expected_output_tokens
        self._tenants.count(tenant, flight.input_tokens, output_tokens, flight.sent_s)
        rest_s = 0.0 if request.stream else state.tpot_now_s.item(first) * flight.expected_output_tokens
        silent_s = silence_s(flight.ttft_s + rest_s, self._min_silence_s)
        ready_in_s = state.endpoints["ready_in_s"].item(first)
        return EndpointChoice(model, order, ticket, silent_s, request.stream, state.doubts(first), ready_in_s)

    def _explain_empty(self, model: str, subset: frozenset[int] | None) -> EndpointChoice | Rejection:
        """Return the result for a request for which the policy chose no endpoint.

        If no endpoint is up, the result is an empty choice. A request whose output fits in no endpoint is rejected with
        400. Any other request is shed with 429.
        """
        indices = [index for index in self.fleet.having(model) if subset is None or index in subset]
        having = self.state.endpoints[indices]
        having = having[having["serves"] & self.fleet.bits[model] != 0]
        if not having["accepts"].any():
            return EndpointChoice(model)
        request = self._arrays.request
        max_tokens, limit = int(having["max_context_tokens"].max()), int(request["output_limit_tokens"][0])
        if limit >= max_tokens:
            self.state.counters.invalid += 1
            message = f"This model's maximum context length is {max_tokens} tokens; the request asks for {limit}."
            return Rejection(400, "too-long", message)
        wait_s = retry_s(request, self._candidates(subset), self._arrays.hits, self._shed_ratio)
        message = f"No endpoint can meet this request's SLO now. Retry after {wait_s} s."
        return Rejection(_SHED, "saturated", message, wait_s)

    def adopt(self, before: "Picker") -> None:
        """Take over the state of `before`, the picker from before a fleet reload."""
        self.state.adopt(before.state)
        self._tickets = before._tickets  # noqa: SLF001 - same class
