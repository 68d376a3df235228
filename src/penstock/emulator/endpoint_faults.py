"""Defines the faults of emulated endpoints. A fault lasts until a command clears it."""

from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal, get_args

from penstock.errors import UsageError

FaultName = Literal["none", "die", "hang", "slow", "refuse", "status", "stale", "lie", "drop"]
FAULTS: Final[tuple[FaultName, ...]] = get_args(FaultName)
_MAX_SLOW: Final = 1e4


@dataclass(frozen=True, slots=True)
class EndpointFault:
    """Fault of one endpoint.

    - die: the endpoint's port is closed and its connections are reset
    - hang: the endpoint accepts connections and reads requests, but never responds, not even to a scrape
    - slow: each engine step takes `times` times as long as without the fault
    - refuse: the endpoint replies 503 to completion requests
    - status: the endpoint replies with the status `times` to completion requests, and with a `Location` if it is 3xx
    - stale: the metrics page keeps the values that it has when the fault is set
    - lie: the metrics page reports no load
    - drop: the endpoint breaks off each stream after `times` tokens
    """

    name: FaultName = "none"
    times: float = 1.0

    @property
    def step_factor(self) -> float:
        """Factor by which the duration of a step is multiplied; 1 unless the fault is `slow`."""
        return self.times if self.name == "slow" else 1.0

    @property
    def status(self) -> int | None:
        """Status of the response to completion requests, or None if the fault does not reject them."""
        return {"refuse": 503, "status": int(self.times)}.get(self.name)

    @property
    def redirection(self) -> bytes:
        """Header line of a redirect to an internal address, or nothing if the status is none."""
        return b"location: http://10.0.0.1/elsewhere\r\n" if (self.status or 0) // 100 == 3 else b""


def read_fault(name: object, times: object) -> EndpointFault:
    """Return the fault for a command's values. `name` and `times` are values in the command's JSON object."""
    if name not in FAULTS:
        raise UsageError(f"'{name}' is not a fault; use one of {', '.join(FAULTS)}")
    if not isinstance(times, int | float) or not isfinite(times) or not 0 < times <= _MAX_SLOW:
        raise UsageError(f"`times` is {times!r}, but must be a number above 0 and at most {_MAX_SLOW:g}")
    return EndpointFault(name, float(times))
