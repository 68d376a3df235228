"""Which endpoints get no requests for a while? Those that failed requests which others answered, and silent ones.

A 5xx is blamed on an endpoint only if another endpoint answers the same request: a request that fails everywhere takes
no endpoint out.
"""

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.state.timeouts import SILENCE_S
from penstock.routing.records import Records

_SUSPECT_S, _MAX_SUSPECT_S = 1.0, 30.0
_STRIKES: Final = 3
"""5xx in a row, each answered elsewhere, after which an endpoint is suspected; one is enough on its next trial."""
_KNOWN_AGAIN_S: Final = 60.0
"""A name that was not unknown for so long is one that is loaded again, or was."""
_NOT_FOUND, _SERVER_ERROR = 404, 500
_UPSTREAM: Final = frozenset({"UF", "UC", "UT", "UPE"})
"""Envoy's flags of an endpoint that cannot be connected to, cuts, is silent, or does not speak HTTP."""
_IDLE_SILENCES: Final = 6.0
"""Times the shortest silence that an endpoint reports nothing to do before a silent request is taken for lost there.

An engine may report nothing to do while it reads a prompt (SGLang counts running requests between prefills).
"""
_LOG_S: Final = 1
"""Envoy's log of a try that failed arrives within this time."""
_WAIT_PER_AGE: Final = 2.0
"""Next question after this share of a request's age."""


def has_failed(status: int, flags: str, tries: int) -> bool:
    """Return whether an answer's end is the endpoint's failure; a client that left (DC) is not.

    Envoy tries a 404 on others only where an endpoint does not know the model the fleet file gives it.
    """
    left = status == 0 and "DC" in flags.split(",")
    return (status >= _SERVER_ERROR or status == 0 or (status == _NOT_FOUND and tries > 1)) and not left


def is_upstream(flags: str) -> bool:
    """Return whether Envoy blames the endpoint, and not the request."""
    return not _UPSTREAM.isdisjoint(flags.split(","))


class SuspectedEndpoints:
    """Until when each endpoint gets no requests."""

    def __init__(self, endpoints: int) -> None:
        self.until_s = np.zeros(endpoints)
        """0: it is not suspected."""
        self._for_s = np.zeros(endpoints)
        self._strikes = [0] * endpoints
        self.trial_s = math.inf
        """When the next of them is tried again."""

    def failed(self, endpoint: int, now_s: float) -> None:
        """Suspect an endpoint, twice as long as the last time."""
        self._for_s[endpoint] = min(_MAX_SUSPECT_S, max(_SUSPECT_S, 2 * self._for_s[endpoint]))
        self.until_s[endpoint] = now_s + self._for_s[endpoint]
        self.trial_s = min(self.trial_s, self.until_s[endpoint])
        self._strikes[endpoint] = 0

    def strike(self, endpoint: int) -> bool:
        """Count a 5xx; return whether it is one too many."""
        self._strikes[endpoint] += 1
        return self._strikes[endpoint] >= _STRIKES or bool(self._for_s[endpoint] > 0)

    def answered(self, endpoint: int) -> None:
        """Forget how often it failed."""
        self._for_s[endpoint], self._strikes[endpoint] = 0.0, 0

    def tried_again(self, now_s: float) -> list[int]:
        """Return the endpoints whose time is over, each once."""
        found: list[int] = np.flatnonzero((self.until_s > 0) & (self.until_s <= now_s)).tolist()
        self.until_s[found] = 0.0
        self.trial_s = float(self.until_s[self.until_s > 0].min(initial=math.inf))
        return found


class UnknownModels:
    """Which adapters an endpoint said it does not know: left out there for a while, and nothing else of it is."""

    def __init__(self, fleet: RoutedFleet) -> None:
        self._bits = {name: 1 << place for place, name in enumerate(fleet.names)}
        self._left: dict[tuple[int, str], tuple[float, float]] = {}
        """Until when, and for how long that was."""
        self._out: set[tuple[int, str]] = set()
        self._told: set[int] = set()
        self.trial_s = math.inf
        """When the next of them is tried again."""

    def tell(self, ticket: int) -> None:
        """Take note that the first choice for a request did not know its name."""
        self._told.add(ticket)

    def told(self, ticket: int) -> bool:
        """Whether it did not; asked once, when the answer has ended."""
        known = ticket not in self._told
        self._told.discard(ticket)
        return not known

    def leave(self, endpoints: Records, endpoint: int, name: str, now_s: float) -> None:
        """Send no request for a name to an endpoint, twice as long as the last time."""
        until_s, for_s = self._left.get((endpoint, name), (-math.inf, 0.0))
        again = now_s < until_s + _KNOWN_AGAIN_S
        for_s = min(_MAX_SUSPECT_S, max(_SUSPECT_S, 2 * for_s if again else 0.0))
        self._left[endpoint, name] = (now_s + for_s, for_s)
        self._out.add((endpoint, name))
        endpoints["serves"][endpoint] &= ~self._bits[name]
        self.trial_s = min(self.trial_s, now_s + for_s)

    def try_again(self, endpoints: Records, now_s: float) -> None:
        """Take back those that were left out long enough."""
        for endpoint, name in [entry for entry in self._out if self._left[entry][0] <= now_s]:
            endpoints["serves"][endpoint] |= self._bits[name]
            self._out.discard((endpoint, name))
        self.trial_s = min((self._left[entry][0] for entry in self._out), default=math.inf)


class FailureDetector:
    """What a picker knows of endpoints that fail; writes `accepts` and `serves` of their records."""

    def __init__(self, fleet: RoutedFleet, endpoints: Records, min_silence_s: float = SILENCE_S) -> None:
        count = len(fleet.addresses)
        self._fleet, self._endpoints, self._min_silence_s = fleet, endpoints, min_silence_s
        self._suspects, self.unknown = SuspectedEndpoints(count), UnknownModels(fleet)
        self._healthy = np.ones(count, bool)
        self._reported_s, self._busy_s = np.zeros(count), np.zeros(count)
        self._answered_s, self._struck_s = np.zeros(count), np.zeros(count)
        self._tries: dict[int, dict[int, bool]] = {}
        """By ticket: the endpoints whose tries have failed, and whether with a 5xx."""

    def reported(self, endpoint: int, row: np.void, now_s: float) -> None:
        """Take in what the scraper saw of an endpoint."""
        self._healthy[endpoint] = row["healthy"] != 0
        self._endpoints[endpoint]["accepts"] = self._healthy[endpoint] and now_s >= self._suspects.until_s[endpoint]
        self._reported_s[endpoint] = row["reported_s"]
        if self._busy_s[endpoint] == 0.0 or row["running"] + row["waiting"] > 0:
            self._busy_s[endpoint] = now_s

    def suspect(self, endpoint: int, now_s: float) -> None:
        """Send an endpoint no requests for a while."""
        self._suspects.failed(endpoint, now_s)
        self._endpoints[endpoint]["accepts"] = 0

    def try_failed(self, ticket: int, endpoint: int, status: int, flags: str, now_s: float) -> None:
        """Note that one try of a request failed; who breaks a connection is suspected at once."""
        self._tries.setdefault(ticket, {})[endpoint] = status >= _SERVER_ERROR
        if is_upstream(flags):
            self.suspect(endpoint, now_s)

    def ended(
        self, ticket: int, first: int, served: int | None, status: int, flags: str, now_s: float, *, alone: bool
    ) -> bool:
        """Blame whoever failed a request that has ended at `served`; return whether an endpoint is suspected now.

        `served` is None where that is unknown; `alone` says that no log tells which tries failed.
        """
        tries, told = self._tries.pop(ticket, {}), self.unknown.told(ticket)
        last = first if served is None else served
        blamed = [first] if last != first and first not in tries and not told else []  # silent until another answered
        if 0 < status < _SERVER_ERROR:
            if not (told and last == first):
                self._suspects.answered(last)
                self._answered_s[last], self._struck_s[last] = now_s, 0.0
            refused = [endpoint for endpoint, by_status in tries.items() if by_status and endpoint != last]
            blamed += [endpoint for endpoint in refused if self._suspects.strike(endpoint)]
        elif (is_upstream(flags) and last not in tries) or (alone and status and self._strike_unseen(last, now_s)):
            blamed.append(last)
        for endpoint in blamed:
            self.suspect(endpoint, now_s)
        return bool(blamed)

    def _strike_unseen(self, endpoint: int, now_s: float) -> bool:
        """Count a 5xx that no other endpoint was asked to answer; return whether to blame it on the endpoint.

        It is blamed where others answer meanwhile, and on half of them at most.
        """
        self._struck_s[endpoint] = self._struck_s[endpoint] or now_s
        many = self._suspects.strike(endpoint)
        others = [one for one in self._fleet.having(self._fleet.served[endpoint]) if one != endpoint]
        out = sum(self._suspects.until_s[one] > now_s for one in others)
        answer = any(self._answered_s[one] >= self._struck_s[endpoint] for one in others)
        return many and answer and 2 * (out + 1) <= len(others) + 1

    def forget(self, ticket: int) -> None:
        """Forget a request that led nowhere."""
        self._tries.pop(ticket, None)
        self.unknown.told(ticket)

    def try_again(self, now_s: float) -> bool:
        """Let endpoints and names be asked for again whose time is over; return whether any endpoint was."""
        if now_s >= self.unknown.trial_s:
            self.unknown.try_again(self._endpoints, now_s)
        if now_s < self._suspects.trial_s:
            return False
        for endpoint in self._suspects.tried_again(now_s):
            self._endpoints[endpoint]["accepts"] = self._healthy[endpoint]
        return True

    def ask_again_s(self, ticket: int, tried: Iterable[int], age_s: float, now_s: float, *, first: bool) -> int | None:
        """Return when Envoy asks again about a silent request; None: it tries the next endpoint now.

        Envoy asks after every try that did not answer, failed or silent. A try can be silent only after the shortest
        silence; which of both it is then, its log line tells a moment later.
        """
        failed = self._tries.get(ticket, {})
        if age_s < self._min_silence_s or not any(
            endpoint not in failed and self._is_alive(endpoint, age_s, now_s) for endpoint in tried
        ):
            return None
        return _LOG_S if first else math.ceil(_WAIT_PER_AGE * age_s)

    def _is_alive(self, endpoint: int, age_s: float, now_s: float) -> bool:
        """Return whether an endpoint answers the scraper, and does not report that it has long had nothing to do."""
        idle_s = _IDLE_SILENCES * self._min_silence_s
        reports = now_s - self._reported_s[endpoint] < idle_s
        idle = reports and min(age_s, now_s - self._busy_s[endpoint]) > idle_s
        return bool(self._healthy[endpoint]) and not idle

    def adopt(self, before: "FailureDetector", here: dict[int, int | None]) -> None:
        """Keep the failed tries of requests that are under way when the fleet is read again."""
        for ticket, tries in before._tries.items():  # noqa: SLF001 - its own kind
            self._tries[ticket] = {new: refused for old, refused in tries.items() if (new := here[old]) is not None}
