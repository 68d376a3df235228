"""Metrics of ended requests and of their dollars, in the scraper's process."""

import asyncio
import time
from collections.abc import Iterator

from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.telemetry.cost_metrics import CostMetrics
from penstock.gateway.telemetry.request_metrics import RequestMetrics, TenantNames
from penstock.routing.records import Records

_LOOK_EVERY_S = 0.1


class UsageMetrics:
    """Latencies, promises, tokens and dollars of requests. The same tenants have labels of their own in all of them."""

    def __init__(self, now_s: float | None = None) -> None:
        names = TenantNames()
        self._requests = RequestMetrics(names)
        if now_s is None:
            self._costs = CostMetrics(names, time.monotonic(), lambda: time.time() - time.monotonic())
        else:
            self._costs = CostMetrics(names, now_s)
        self.use, self.look = self._costs.use, self._costs.look

    def add(self, outcomes: Records) -> None:
        """Count requests that have ended or were refused, given as an array of `OUTCOME`."""
        self._requests.add(outcomes)
        self._costs.add(outcomes)

    async def run(self, fleet: RoutedFleet, counts: Records) -> None:
        """Count busy and idle time of a fleet until the task is cancelled."""
        self.use(fleet)
        while True:
            in_flight = counts["in_flight"].sum(axis=0).tolist()
            self.look(time.monotonic(), dict(zip(fleet.addresses, in_flight, strict=True)))
            await asyncio.sleep(_LOOK_EVERY_S)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the metrics page."""
        yield from self._requests.lines()
        yield from self._costs.lines()
