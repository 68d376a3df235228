"""Faults of emulated endpoints. A fault lasts until a command clears it."""

from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal, get_args

from penstock.errors import UsageError

FaultName = Literal["none", "die", "hang", "slow", "refuse", "stale", "lie", "drop"]
FAULTS: Final[tuple[FaultName, ...]] = get_args(FaultName)
_MAX_SLOW: Final = 1e4


@dataclass(frozen=True, slots=True)
class EndpointFault:
    """Fault of one endpoint.

    - die: its port is closed and its connections are reset
    - hang: it accepts connections and reads, but never responds, not even with metrics
    - slow: its steps take `times` times as long
    - refuse: it answers completions with 503
    - stale: its metrics stay as they are now
    - lie: its metrics report no load
    - drop: streams break off after `times` tokens
    """

    name: FaultName = "none"
    times: float = 1.0

    @property
    def step_factor(self) -> float:
        """Factor on the duration of a step."""
        return self.times if self.name == "slow" else 1.0


def read_fault(name: object, times: object) -> EndpointFault:
    """Parse a fault from a command's values."""
    if name not in FAULTS:
        raise UsageError(f"'{name}' is not a fault; use one of {', '.join(FAULTS)}")
    if not isinstance(times, int | float) or not isfinite(times) or not 0 < times <= _MAX_SLOW:
        raise UsageError(f"`times` is {times!r}, but must be a number above 0 and at most {_MAX_SLOW:g}")
    return EndpointFault(name, float(times))
