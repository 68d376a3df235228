"""Which endpoints are ready, as the scraper saw them, and which of them are named where the policy names none?"""

import random

import numpy as np

from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.routing.records import Records


class EndpointReadiness:
    """What the scraper said of each endpoint; one it has not looked at yet may be tried, but is not ready."""

    def __init__(self, fleet: RoutedFleet) -> None:
        self._fleet = fleet
        count = len(fleet.addresses)
        self.healthy, self._reported = np.ones(count, bool), np.zeros(count, bool)

    def report(self, index: int, *, healthy: bool) -> None:
        """Take note of a report."""
        self.healthy[index], self._reported[index] = healthy, True

    def adopt(self, index: int, before: "EndpointReadiness", old: int) -> None:
        """Keep what was known of an endpoint before the fleet was reloaded."""
        self.healthy[index], self._reported[index] = before.healthy[old], before._reported[old]  # noqa: SLF001 - same class

    @property
    def any_ready(self) -> bool:
        """Whether at least one endpoint was seen to be up."""
        return bool((self.healthy & self._reported).any())

    def by_weight(self, name: str | None, only: frozenset[int] | None, accepts: Records, most: int) -> tuple[int, ...]:
        """Draw up to `most` endpoints by the weights Envoy goes by, those that failed a request just now last.

        `name` is the model or adapter they must have, None for any; `only` limits them to what a gateway said.
        """
        having = self._fleet.having(name) if name is not None else range(len(self.healthy))
        weights = self._fleet.weights()
        # The exponential race: the smallest of exponentials with these rates is drawn in proportion to its rate.
        drawn = {
            index: random.expovariate(weights[index])
            for index in having
            if self.healthy[index] and (only is None or index in only)
        }
        return tuple(sorted(drawn, key=lambda index: (not accepts[index], drawn[index]))[:most])
