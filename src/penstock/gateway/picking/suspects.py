"""Which endpoints are left alone for a while? Those that failed, longer each time, until one answers again."""

import math
from typing import Final

import numpy as np

from penstock.gateway.state.fleet import RoutedFleet
from penstock.routing.endpoint import Records

_SUSPECT_S, _MOST_SUSPECT_S = 1.0, 30.0
_KNOWN_AGAIN_S: Final = 60.0
"""A name that was not unknown for so long is one that is loaded again, or was."""
_NOT_FOUND: Final = 404
_UPSTREAM: Final = frozenset({"UF", "UC", "UT", "UPE"})
"""Envoy's flags of an endpoint that cannot be connected to, cuts, is silent, or does not speak HTTP."""


def has_failed(status: int, flags: str, tries: int) -> bool:
    """Whether an answer's end is the endpoint's failure; a client that left (DC) is not.

    Envoy tries a 404 on others only where an endpoint does not know the model the fleet file gives it.
    """
    left = status == 0 and "DC" in flags.split(",")
    return (status >= 500 or status == 0 or (status == _NOT_FOUND and tries > 1)) and not left  # noqa: PLR2004 - HTTP


def is_upstream(flags: str) -> bool:
    """Whether Envoy blames the endpoint, and not the request."""
    return not _UPSTREAM.isdisjoint(flags.split(","))


class Suspects:
    """Until when each endpoint is left alone."""

    def __init__(self, endpoints: int) -> None:
        self.until_s = np.zeros(endpoints)
        """0: it is not."""
        self._for_s = np.zeros(endpoints)
        self.trial_s = math.inf
        """When the next of them is tried again."""

    def failed(self, endpoint: int, now_s: float) -> None:
        """Leave an endpoint alone, twice as long as the last time."""
        self._for_s[endpoint] = min(_MOST_SUSPECT_S, max(_SUSPECT_S, 2 * self._for_s[endpoint]))
        self.until_s[endpoint] = now_s + self._for_s[endpoint]
        self.trial_s = min(self.trial_s, self.until_s[endpoint])

    def answered(self, endpoint: int) -> None:
        """Forget how often it failed."""
        self._for_s[endpoint] = 0.0

    def tried_again(self, now_s: float) -> list[int]:
        """Those that were left alone long enough, each named once."""
        found: list[int] = np.flatnonzero((self.until_s > 0) & (self.until_s <= now_s)).tolist()
        self.until_s[found] = 0.0
        self.trial_s = float(self.until_s[self.until_s > 0].min(initial=math.inf))
        return found


class UnknownNames:
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
        for_s = min(_MOST_SUSPECT_S, max(_SUSPECT_S, 2 * for_s if again else 0.0))
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
