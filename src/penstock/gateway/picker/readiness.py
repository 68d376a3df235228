"""Tracks which endpoints the scraper found ready, and chooses endpoints by weight if the policy chooses none."""

import random

import numpy as np

from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.routing.records import Records


class EndpointReadiness:
    """Health of each endpoint by its last scrape. An endpoint that was never scraped may be tried, but is not ready."""

    def __init__(self, fleet: RoutedFleet) -> None:
        self._fleet = fleet
        count = len(fleet.addresses)
        self.healthy, self._reported = np.ones(count, bool), np.zeros(count, bool)

    def report(self, index: int, *, healthy: bool) -> None:
        """Record an endpoint's health."""
        self.healthy[index], self._reported[index] = healthy, True

    def adopt(self, index: int, before: "EndpointReadiness", old: int) -> None:
        """Keep an endpoint's health across a fleet reload."""
        self.healthy[index], self._reported[index] = before.healthy[old], before._reported[old]  # noqa: SLF001 - same class

    @property
    def any_ready(self) -> bool:
        """True if at least one endpoint was seen up."""
        return bool((self.healthy & self._reported).any())

    def draw_by_weight(
        self, name: str | None, subset: frozenset[int] | None, accepts: Records, max_count: int
    ) -> tuple[int, ...]:
        """Draw up to `max_count` endpoints by Envoy's weights, with suspected endpoints last.

        `name` is the model or adapter that they must serve, or None for any. `subset` holds the allowed endpoints.
        """
        having = self._fleet.having(name) if name is not None else range(len(self.healthy))
        weights = self._fleet.weights()
        # Exponential race: the smallest of several exponential samples is drawn in proportion to its rate.
        arrival = {
            index: random.expovariate(weights[index])
            for index in having
            if self.healthy[index] and (subset is None or index in subset)
        }
        return tuple(sorted(arrival, key=lambda index: (not accepts[index], arrival[index]))[:max_count])
