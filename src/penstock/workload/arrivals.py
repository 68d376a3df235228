"""When do requests arrive? Processes of a stated mean rate, a trace's own times, or users who wait for an answer."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.errors import UsageError
from penstock.workload.randomness import NATIVE_BLOCK, Stream, generator
from penstock.workload.requests import Float64s


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Independent users: exponential gaps."""

    rate_per_s: float | None = None
    """The mean rate where a run does not name another."""

    def __post_init__(self) -> None:
        _require_rate(self.rate_per_s)

    def unit_times(self, seed: int) -> Iterator[Float64s]:
        """Yield arrival times at a mean rate of one per second, a native block at a time, for ever."""
        elapsed, block = 0.0, 0
        while True:
            gaps = generator(seed, Stream.ARRIVALS, block).standard_exponential(NATIVE_BLOCK)
            times = elapsed + np.cumsum(gaps)
            yield times
            elapsed, block = float(times[-1]), block + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """A fixed number of users; each sends its next request `think_s` after its last answer."""

    users: int
    think_s: float = 0.0

    def __post_init__(self) -> None:
        if self.users < 1:
            raise UsageError(f"a closed loop needs at least one user, not {self.users}")
        if not 0 <= self.think_s < np.inf:
            raise UsageError(f"a think time of {self.think_s:g} s cannot be meant")


Arrivals = Poisson | ClosedLoop


def _require_rate(rate_per_s: float | None) -> None:
    if rate_per_s is not None and not 0 < rate_per_s < np.inf:
        raise UsageError(f"a rate of {rate_per_s:g} requests/s cannot be meant; it is above 0")
