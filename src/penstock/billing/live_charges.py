"""Charges requests while a fleet runs: the rules of the bill, applied to one short interval after the other.

Each settlement divides the busy time since the last one with `charge_requests`, as a bill of that time does. Busy time
of requests in flight cannot be charged yet. It waits, in proportion to request seconds, until they end. The dollars of
tenants, idle time and waiting time equal rent times time. As in a bill, coefficients are corrected by observed decode
times: those of the last minutes, at a few replicas of each pool.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Final

import numpy as np

from penstock.billing.busy_time import busy_seconds
from penstock.billing.charges import RentedTime, charge_requests
from penstock.billing.observed_scale import ObservedAnswers, correct_coefficients
from penstock.billing.step_seconds import TOKEN_WORK, StepCoefficients
from penstock.routing.records import Records


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePool:
    """A pool that is rented now."""

    name: str
    model: str
    coefficients: StepCoefficients
    usd_per_s: float
    """Rent of one replica."""
    endpoints: tuple[str, ...]
    """Addresses of the replicas, whether they are up or not."""


_OBSERVED_S: Final = 300.0
_OBSERVED_REPLICAS: Final = 4
"""Replicas of a pool whose answers correct its coefficients. Replicas of a pool are alike."""
CHARGED_REQUEST: Final = np.dtype(
    [
        ("tenant", "O"),
        ("pool", "O"),
        ("endpoint", "O"),
        ("sent_s", "f8"),
        ("first_s", "f8"),  # time of the first token; NaN if it was not seen
        ("ended_s", "f8"),
        *TOKEN_WORK.descr,
    ]
)
"""A request that an endpoint served. The first three fields are strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledWork:
    """What one settlement charged to the requests of a model."""

    model: str
    charged_usd: float
    rent_usd: float
    prefill_s: float
    own_s: float
    input_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(slots=True)
class _PoolBooks:
    """Seconds and dollars of one pool."""

    pool: LivePool
    rented_s: float = 0.0
    """This and the next two: since the last settlement."""
    idle_s: float = 0.0
    flight_s: float = 0.0
    """Request seconds of requests in flight."""
    waiting_s: float = 0.0
    """Busy seconds that no request was charged for."""
    ended: list[Records] = field(default_factory=list)
    observed: Records = field(default_factory=lambda: np.zeros(0, CHARGED_REQUEST))
    """Requests of the last minutes at the first replicas, which correct the coefficients."""
    in_flight: int = 0
    tenants_usd: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    idle_usd: float = 0.0
    rent_usd: float = 0.0


@dataclass(slots=True)
class _EndpointClock:
    """What is known of the time of one endpoint."""

    in_flight: int = 0
    busy_until_s: float = 0.0
    """Time up to which busy time is counted."""
    spans: list[tuple[float, float]] = field(default_factory=list)
    """Times of requests that ended since the last look."""


class LiveCharges:
    """Dollars by tenant and pool since the start of the gateway."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._pools: Sequence[LivePool] = ()
        self.books: dict[str, _PoolBooks] = {}
        self._clocks: dict[str, _EndpointClock] = {}

    def use(self, pools: Sequence[LivePool]) -> None:
        """Charge for these pools from now on. What other pools have charged stays."""
        self._pools = pools
        rented = {address for pool in pools for address in pool.endpoints}
        for address in self._clocks.keys() - rented:
            del self._clocks[address]
        for address in rented:
            self._clocks.setdefault(address, _EndpointClock())
        for name in self.books.keys() - {pool.name for pool in pools}:
            self.books[name].in_flight = 0
        for pool in pools:
            self.books.setdefault(pool.name, _PoolBooks(pool)).pool = pool

    def add(self, requests: Records) -> None:
        """Note ended requests, given as an array of `CHARGED_REQUEST`. Requests of unknown pools are left out."""
        for name in dict.fromkeys(requests["pool"].tolist()):
            if name in self.books:
                self._add_to(self.books[name], requests[requests["pool"] == name])

    def _add_to(self, books: _PoolBooks, requests: Records) -> None:
        books.ended.append(requests)
        spans = list(zip(requests["sent_s"].tolist(), requests["ended_s"].tolist(), strict=True))
        for endpoint, span in zip(requests["endpoint"].tolist(), spans, strict=True):
            books.flight_s -= span[1] - span[0]
            if endpoint in self._clocks:
                self._clocks[endpoint].spans.append(span)

    def look(self, now_s: float, in_flight: Mapping[str, int]) -> None:
        """Count the time since the last look as busy or idle, by the number of requests in flight at each endpoint."""
        passed_s, self._now_s = max(0.0, now_s - self._now_s), max(now_s, self._now_s)
        for pool in self._pools:
            books, books_in_flight = self.books[pool.name], 0
            for address in pool.endpoints:
                clock, count = self._clocks[address], in_flight.get(address, 0)
                busy_s = _busy_seconds(clock, count, passed_s, self._now_s)
                books.flight_s += 0.5 * (clock.in_flight + count) * passed_s
                books.rented_s += passed_s
                books.idle_s += passed_s - busy_s
                books.waiting_s += busy_s
                books.rent_usd += passed_s * pool.usd_per_s
                clock.in_flight = count
                books_in_flight += count
            books.in_flight = books_in_flight

    def settle(self) -> list[SettledWork]:
        """Charge the requests that have ended since the last settlement, and return what was charged by pool."""
        return [_settle(books) for books in self.books.values()]

    def waiting_usd(self, pool: str) -> float:
        """Return the dollars of busy time for which no request was charged yet."""
        books = self.books[pool]
        return (books.waiting_s + books.idle_s) * books.pool.usd_per_s


def _busy_seconds(clock: _EndpointClock, in_flight: int, passed_s: float, now_s: float) -> float:
    """Return the busy part of the time since the last look.

    An endpoint with requests in flight at both looks was busy. Otherwise the times of the requests that ended tell it.
    A request that began since then, or whose end is not reported yet, counts for half of the time.
    """
    spans, clock.spans = clock.spans, []
    if in_flight and clock.in_flight:
        clock.busy_until_s = now_s
        return passed_s
    covered_s, until_s = 0.0, clock.busy_until_s
    for begun_s, ended_s in sorted(spans):
        covered_s += max(0.0, ended_s - max(begun_s, until_s))
        until_s = max(until_s, ended_s)
    clock.busy_until_s = now_s if in_flight else until_s
    half_s = 0.5 * passed_s if in_flight or (clock.in_flight and not spans) else 0.0
    return min(passed_s, max(half_s, covered_s))


def _settle(books: _PoolBooks) -> SettledWork:
    pool, ended = books.pool, np.concatenate([np.zeros(0, CHARGED_REQUEST), *books.ended])
    _observe(books, ended)
    if not books.in_flight:
        books.flight_s = 0.0
    ended_s = fsum((ended["ended_s"] - ended["sent_s"]).tolist())
    work = _correct(pool.coefficients, books.observed).step_seconds(ended)
    rest_s = max(0.0, books.flight_s)
    released_s = books.waiting_s if not rest_s else books.waiting_s * ended_s / (ended_s + rest_s)
    released_s = released_s if len(ended) else 0.0
    time = RentedTime(rented_s=books.idle_s + released_s, busy_s=released_s, usd_per_s=pool.usd_per_s)
    charged_usd = charge_requests(time, work).seconds * pool.usd_per_s
    for tenant, usd in zip(ended["tenant"].tolist(), charged_usd.tolist(), strict=True):
        books.tenants_usd[tenant] += usd
    books.idle_usd += books.idle_s * pool.usd_per_s
    settled = SettledWork(
        model=pool.model,
        charged_usd=released_s * pool.usd_per_s,
        rent_usd=books.rented_s * pool.usd_per_s,
        prefill_s=fsum(work.prefill_s.tolist()),
        own_s=fsum(work.own_s.tolist()),
        input_tokens=int(ended["input_tokens"].sum()),
        cached_tokens=int(ended["cached_tokens"].sum()),
        output_tokens=int(ended["output_tokens"].sum()),
    )
    books.waiting_s -= released_s
    books.rented_s = books.idle_s = 0.0
    books.ended = []
    return settled


def _observe(books: _PoolBooks, ended: Records) -> None:
    """Add requests to those that correct the coefficients, and drop the oldest."""
    seen = np.concatenate(
        [books.observed, ended[np.isin(ended["endpoint"], books.pool.endpoints[:_OBSERVED_REPLICAS])]]
    )
    books.observed = seen[seen["ended_s"] > seen["ended_s"].max(initial=0.0) - _OBSERVED_S]


def _correct(coefficients: StepCoefficients, observed: Records) -> StepCoefficients:
    endpoints = observed["endpoint"].tolist()
    busy_s = busy_seconds(endpoints, observed["sent_s"], observed["ended_s"])
    flight_s = fsum((observed["ended_s"] - observed["sent_s"]).tolist())
    answers = ObservedAnswers(
        endpoint=endpoints,
        sent_s=observed["sent_s"],
        first_s=observed["first_s"],
        ended_s=observed["ended_s"],
        predicted=coefficients.step_seconds(observed),
    )
    return correct_coefficients(coefficients, answers, max(1.0, flight_s / busy_s) if busy_s > 0 else 1.0)
