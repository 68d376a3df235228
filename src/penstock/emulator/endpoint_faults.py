"""What can be made to go wrong? Faults an emulated endpoint has until it is told to be well again."""

from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal, get_args

from penstock.errors import UsageError

FaultName = Literal["none", "die", "hang", "slow", "refuse", "stale", "lie", "drop"]
FAULTS: Final[tuple[FaultName, ...]] = get_args(FaultName)
_MAX_SLOW: Final = 1e4


@dataclass(frozen=True, slots=True)
class EndpointFault:
    """One endpoint's fault.

    - die: its port is closed and its connections are reset
    - hang: it accepts and reads, and never answers, not even its metrics
    - slow: its steps take `times` as long
    - refuse: completions are answered 503
    - stale: its metrics stay what they are now
    - lie: its metrics say it has nothing to do
    - drop: streams break off after `times` tokens
    """

    name: FaultName = "none"
    times: float = 1.0

    @property
    def step_factor(self) -> float:
        """How much longer steps take."""
        return self.times if self.name == "slow" else 1.0


def read_fault(name: object, times: object) -> EndpointFault:
    """Read a fault as it is typed."""
    if name not in FAULTS:
        raise UsageError(f"'{name}' is not a fault; write one of {', '.join(FAULTS)}")
    if not isinstance(times, int | float) or not isfinite(times) or not 0 < times <= _MAX_SLOW:
        raise UsageError(f"times is {times!r}; write a number above 0, such as 3")
    return EndpointFault(name, float(times))
