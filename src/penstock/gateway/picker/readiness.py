"""Tracks which endpoints are healthy, and chooses a healthy endpoint by weight if the policy chooses none."""

import random

import numpy as np

from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.routing.records import Records


class EndpointReadiness:
    """Health of each endpoint at its last scrape.

    An endpoint that was never scraped may be chosen, but it does not make the picker ready.
    """

    def __init__(self, fleet: RoutedFleet) -> None:
        self._fleet = fleet
        count = len(fleet.addresses)
        self.healthy, self._reported = np.ones(count, bool), np.zeros(count, bool)

    def report(self, index: int, *, healthy: bool) -> None:
        """Record an endpoint's health at a scrape."""
        self.healthy[index], self._reported[index] = healthy, True

    def adopt(self, index: int, before: "EndpointReadiness", old: int) -> None:
        """Take over an endpoint's health from `before`, the state from before a fleet reload.

        The old endpoint index is `old`.
        """
        self.healthy[index], self._reported[index] = before.healthy[old], before._reported[old]  # noqa: SLF001 - same class

    @property
    def any_ready(self) -> bool:
        """True if at least one endpoint was healthy at its last scrape."""
        return bool((self.healthy & self._reported).any())

    def draw_by_weight(
        self, name: str | None, subset: frozenset[int] | None, accepts: Records, max_count: int
    ) -> tuple[int, ...]:
        """Draw up to `max_count` healthy endpoints at random, by the weights that Envoy also uses.

        Endpoints that do not accept requests, such as suspected endpoints, come last. `name` is the model or adapter
        that the endpoints must serve, or None for any. `subset` holds the allowed endpoints, or is None if all are
        allowed.
        """
        having = self._fleet.having(name) if name is not None else range(len(self.healthy))
        weights = self._fleet.weights()
        # Of several exponential samples, each is the smallest with a probability in proportion to its rate.
        arrival = {
            index: random.expovariate(weights[index])
            for index in having
            if self.healthy[index] and (subset is None or index in subset)
        }
        return tuple(sorted(arrival, key=lambda index: (not accepts[index], arrival[index]))[:max_count])
