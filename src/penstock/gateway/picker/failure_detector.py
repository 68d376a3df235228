"""Excludes endpoints from routing for a limited time if they fail or stop responding.

A 5xx or refusal that Envoy retries is blamed on an endpoint only if another endpoint then answers the same request. So
a request that fails at every endpoint excludes no endpoint.
"""

import math
from typing import Final

import numpy as np

from penstock.gateway.state.refusals import WRONG, is_refusal
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.routing.records import Records

_SUSPECT_S, _MAX_SUSPECT_S = 1.0, 30.0
_STRIKES: Final = 3
"""Number of consecutive 5xx responses or refusals after which an endpoint is suspected, if others answered them.

After a suspicion has ended and before the endpoint answers a request, a single 5xx is enough to suspect the endpoint
again.
"""
_WRONG_STRIKE: Final = 0.3
"""Weight of a 400 or 422 that was not retried: one client may send many wrong requests."""
_BACK_OFF_RESET_S: Final = 60.0
"""Seconds from the end of an exclusion after which a new 404 causes the shortest exclusion again."""
_NOT_FOUND, _SERVER_ERROR = 404, 500
_UPSTREAM: Final = frozenset({"UF", "UC", "UT", "UPE"})
"""Envoy's response flags for failures of an endpoint: connect failure, reset, timeout and protocol error."""


def has_failed(status: int, flags: str, tries: int) -> bool:
    """Return whether a request failed because of its endpoint.

    A disconnected client (DC) is not a failure of the endpoint. A response that the endpoint breaks off is one. So is a
    404 after more than one try: Envoy retries a 404 only if an endpoint does not know the model that the fleet file
    assigns to the endpoint.
    """
    failed = status >= _SERVER_ERROR or status == 0 or is_refusal(status) or is_upstream(flags)
    return (failed or (status == _NOT_FOUND and tries > 1)) and not has_client_left(status, flags)


def has_client_left(status: int, flags: str) -> bool:
    """Return whether the client disconnected before the response began."""
    return status == 0 and "DC" in flags.split(",")


def is_upstream(flags: str) -> bool:
    """Return whether Envoy's response flags report a failure of the endpoint or of the connection to it."""
    return not _UPSTREAM.isdisjoint(flags.split(","))


class SuspectedEndpoints:
    """Endpoints that are suspected to fail. A suspected endpoint gets no requests until its suspicion ends."""

    def __init__(self, endpoints: int) -> None:
        self.until_s = np.zeros(endpoints)
        """Time at which the suspicion of each endpoint ends, in seconds of the clock; 0 for endpoints not suspected."""
        self._for_s = np.zeros(endpoints)
        self._strikes = [0.0] * endpoints
        self.trial_s = math.inf
        """Time at which the next suspicion ends, in seconds of the clock; infinity if no endpoint is suspected."""

    def suspect(self, endpoint: int, now_s: float) -> None:
        """Suspect an endpoint. The first suspicion lasts 1 s, and each further one twice as long, up to 30 s.

        Failures of requests that were under way when it began do not make it longer.
        """
        if now_s < self.until_s[endpoint]:
            return
        self._for_s[endpoint] = min(_MAX_SUSPECT_S, max(_SUSPECT_S, 2 * self._for_s[endpoint]))
        self.until_s[endpoint] = now_s + self._for_s[endpoint]
        self.trial_s = min(self.trial_s, self.until_s[endpoint])
        self._strikes[endpoint] = 0

    def strike(self, endpoint: int, weight: float = 1.0) -> bool:
        """Count a 5xx or refusal of an endpoint. Return whether the endpoint should be suspected now."""
        self._strikes[endpoint] += weight
        return self._strikes[endpoint] >= _STRIKES or bool(self._for_s[endpoint] > 0)

    def reset(self, endpoint: int) -> None:
        """Reset the count of 5xx responses and the back-off of an endpoint that answered."""
        self._for_s[endpoint], self._strikes[endpoint] = 0.0, 0

    def pop_expired(self, now_s: float) -> list[int]:
        """Return the endpoints whose suspicion has ended since the last call, and stop suspecting them."""
        expired: list[int] = np.flatnonzero((self.until_s > 0) & (self.until_s <= now_s)).tolist()
        self.until_s[expired] = 0.0
        self.trial_s = float(self.until_s[self.until_s > 0].min(initial=math.inf))
        return expired


class UnknownModels:
    """Adapters that an endpoint does not know. For a while, requests for such an adapter avoid the endpoint.

    Requests for other names still go to the endpoint.
    """

    def __init__(self, fleet: RoutedFleet) -> None:
        self._bits = fleet.bits
        self._exclusions: dict[tuple[int, str], tuple[float, float]] = {}
        """Mapping from endpoint and adapter name to the end time and the duration of the exclusion, in seconds."""
        self._excluded: set[tuple[int, str]] = set()
        self._tickets: set[int] = set()
        self.trial_s = math.inf
        """Time at which the next exclusion ends, in seconds of the clock; infinity if there is no exclusion."""

    def add(self, ticket: int) -> None:
        """Record that the first-choice endpoint of a request did not know the request's model."""
        self._tickets.add(ticket)

    def pop(self, ticket: int) -> bool:
        """Return whether a request's first-choice endpoint did not know the request's model.

        Then forget the request.
        """
        unknown = ticket in self._tickets
        self._tickets.discard(ticket)
        return unknown

    def exclude(self, endpoints: Records, endpoint: int, name: str, now_s: float) -> None:
        """Exclude an endpoint from requests for a model name.

        The first exclusion lasts 1 s, and each further one twice as long, up to 30 s.
        """
        until_s, for_s = self._exclusions.get((endpoint, name), (-math.inf, 0.0))
        repeated = now_s < until_s + _BACK_OFF_RESET_S
        for_s = min(_MAX_SUSPECT_S, max(_SUSPECT_S, 2 * for_s if repeated else 0.0))
        self._exclusions[endpoint, name] = (now_s + for_s, for_s)
        self._excluded.add((endpoint, name))
        endpoints["serves"][endpoint] &= ~self._bits[name]
        self.trial_s = min(self.trial_s, now_s + for_s)

    def try_again(self, endpoints: Records, now_s: float) -> None:
        """End the exclusions that are due: send requests for the excluded model names to the endpoints again."""
        for endpoint, name in [entry for entry in self._excluded if self._exclusions[entry][0] <= now_s]:
            endpoints["serves"][endpoint] |= self._bits[name]
            self._excluded.discard((endpoint, name))
        self.trial_s = min((self._exclusions[entry][0] for entry in self._excluded), default=math.inf)


class FailureDetector:
    """Detector of failing endpoints.

    The fields `accepts` and `serves` of the endpoint records exclude a failing endpoint.
    """

    def __init__(self, fleet: RoutedFleet, endpoints: Records, struck: list[int]) -> None:
        """`struck` counts the tries of each endpoint that failed and that another one answered."""
        count = len(fleet.addresses)
        self._fleet, self._endpoints, self._struck = fleet, endpoints, struck
        self.doubted = [False] * count
        """Whether the last answer of an endpoint was a 400 or 422, so that its peers are asked too."""
        self._suspects, self.unknown = SuspectedEndpoints(count), UnknownModels(fleet)
        self._healthy = np.ones(count, bool)
        self._answered_s, self._struck_s = np.zeros(count), np.zeros(count)
        self._tries: dict[int, dict[int, bool]] = {}
        """Endpoints that failed each request, by the request's ticket. The value is true for a 5xx or a refusal."""

    def apply_report(self, endpoint: int, row: np.void, now_s: float) -> None:
        """Apply `row`, the scraper's latest report about an endpoint."""
        self._healthy[endpoint] = row["healthy"] != 0
        self._endpoints[endpoint]["accepts"] = self._healthy[endpoint] and now_s >= self._suspects.until_s[endpoint]

    def suspect(self, endpoint: int, now_s: float) -> None:
        """Suspect an endpoint, which excludes it from routing for a limited time."""
        self._suspects.suspect(endpoint, now_s)
        self._endpoints[endpoint]["accepts"] = 0

    def fail_try(self, ticket: int, endpoint: int, status: int, flags: str, now_s: float) -> None:
        """Record that a try of a request failed at an endpoint. Suspect the endpoint now if the connection failed."""
        by_status = status >= _SERVER_ERROR or is_refusal(status) or status in WRONG
        self._tries.setdefault(ticket, {})[endpoint] = by_status
        if is_upstream(flags):
            self.suspect(endpoint, now_s)

    def end(
        self, ticket: int, first: int, served: int | None, status: int, flags: str, now_s: float, *, unlogged: bool
    ) -> bool:
        """Suspect the endpoints to blame for failures of an ended request. Return whether any endpoint is to blame.

        `first` is the endpoint that was chosen first. `served` is the endpoint that served the request, or None if it
        is unknown. `unlogged` is true if no log lines report failed tries.
        """
        tries, unknown = self._tries.pop(ticket, {}), self.unknown.pop(ticket)
        last = first if served is None else served
        blamed = (
            [first] if last != first and first not in tries and not unknown else []
        )  # the first choice was silent until another endpoint answered
        if status in WRONG and len(tries) <= 1:
            self.doubted[last] = True
        if 0 < status < _SERVER_ERROR and not (is_upstream(flags) or is_refusal(status) or status in WRONG):
            self.doubted[last] = False
            if not (unknown and last == first):
                self._suspects.reset(last)
                self._answered_s[last], self._struck_s[last] = now_s, 0.0
            refused = [endpoint for endpoint, by_status in tries.items() if by_status and endpoint != last]
            for endpoint in {*blamed, *tries} - {last}:
                self._struck[endpoint] += 1
            blamed += [endpoint for endpoint in refused if self._suspects.strike(endpoint)]
        elif is_upstream(flags) and last not in tries:
            blamed.append(last)
        elif unlogged and status and self._strike_unseen(last, now_s, _WRONG_STRIKE if status in WRONG else 1.0):
            self._struck[last] += 1
            blamed.append(last)
        for endpoint in blamed:
            self.suspect(endpoint, now_s)
        return bool(blamed)

    def _strike_unseen(self, endpoint: int, now_s: float, weight: float) -> bool:
        """Count a 5xx or refusal that was not retried at another endpoint.

        Return whether to suspect the endpoint that sent it. An endpoint is suspected only if another endpoint of
        the same model has answered a request since the first of them. A suspicion must also leave at least half of the
        model's endpoints in use.
        """
        self._struck_s[endpoint] = self._struck_s[endpoint] or now_s
        enough = self._suspects.strike(endpoint, weight)
        others = [one for one in self._fleet.having(self._fleet.served[endpoint]) if one != endpoint]
        excluded = sum(self._suspects.until_s[one] > now_s for one in others)
        answer = any(self._answered_s[one] >= self._struck_s[endpoint] for one in others)
        return enough and answer and 2 * (excluded + 1) <= len(others) + 1

    def forget(self, ticket: int) -> None:
        """Forget the failed tries of a request whose end will not be reported by a log line."""
        self._tries.pop(ticket, None)
        self.unknown.pop(ticket)

    def try_again(self, now_s: float) -> bool:
        """End the suspicions and exclusions whose time is over. Return whether any suspicion was due to end."""
        if now_s >= self.unknown.trial_s:
            self.unknown.try_again(self._endpoints, now_s)
        if now_s < self._suspects.trial_s:
            return False
        for endpoint in self._suspects.pop_expired(now_s):
            self._endpoints[endpoint]["accepts"] = self._healthy[endpoint]
        return True

    def adopt(self, before: "FailureDetector", new_index: dict[int, int | None]) -> None:
        """Take over the failed tries of requests in flight from the detector `before` a fleet reload.

        `new_index` maps each old endpoint index to the new index, or to None if the endpoint was removed.
        """
        for ticket, tries in before._tries.items():  # noqa: SLF001 - same class
            self._tries[ticket] = {
                new: refused for old, refused in tries.items() if (new := new_index[old]) is not None
            }
