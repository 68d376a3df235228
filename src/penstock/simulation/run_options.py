"""Options of a simulation run: routing policy, visibility for the router, sources of requests, and records to keep."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.errors import UsageError
from penstock.routing.policy_function import Pick, is_compiled
from penstock.routing.records import Records
from penstock.simulation.model_swapping import SwappingDevice
from penstock.workload import Requests

Policy = Literal["round-robin", "least-requests", "least-tokens"]
StageProgress = Callable[[str, int, int], None]
"""Progress callback: name of the stage, amount done, total amount."""
PoolOf = Callable[[Requests], NDArray[np.int16]]
ShowPick = Callable[[Records, Records, Records, int], None]
"""Callback for a sampled pick.

Callback for a sampled pick. Its arguments are the request, the endpoints as the picker knew them, the cached tokens per
endpoint, and the choice.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterVisibility:
    """Age and completeness of the information that a router has."""

    report_interval_s: float = 0.25
    """Seconds between two reports of one endpoint. Endpoints report in turn."""
    report_delay_s: float = 0.0
    """Seconds until a report arrives."""
    report_loss: float = 0.0
    """Share of reports that are lost."""
    cache_delay_s: float = 0.05
    """Delay in seconds until the router knows of a prefix that an endpoint has begun to compute."""

    def __post_init__(self) -> None:
        if not (self.report_interval_s > 0 and isfinite(self.report_interval_s)):
            raise UsageError(
                f"the report interval is {self.report_interval_s:g} s; write an interval above 0, such as 1ms"
            )
        if not (0 <= self.report_delay_s < inf and 0 <= self.cache_delay_s < inf):
            raise UsageError(
                "the delay of load reports and the delay of cached-prefix updates must be 0 or more; "
                "write 0ms for no delay"
            )


FaultKind = Literal["dies", "slow", "silent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of one replica for a limited time.

    Overlapping faults combine. A replica is dead or silent while any of its faults makes it so, and it is as slow as
    its slowest fault.
    """

    kind: FaultKind
    replica: int
    at_s: float
    for_s: float = float("inf")
    factor: float = 1.0
    """Factor by which a fault multiplies the duration of a slow replica's steps."""
    noticed_s: float = 1.0
    """Seconds until health checks tell the pickers that a replica is dead.

    A dead replica refuses connections at once.
    """

    def __post_init__(self) -> None:
        if not (self.factor > 0 and isfinite(self.factor)):
            raise UsageError(
                f"a fault cannot multiply the duration of steps by {self.factor:g}; write a factor above 0, such as x3"
            )
        if not (self.at_s >= 0 and self.for_s > 0):
            raise UsageError("a fault must start at 0 s or later and last longer than 0 s; write `at 60s for 30s`")

    @property
    def over_s(self) -> float:
        """Time in seconds at which the fault ends."""
        return self.at_s + self.for_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Routing:
    """Routing by a policy that has only the information of a gateway."""

    pick: Pick | None = None
    """A compiled policy, or a Python function with the same arguments. None means the policy of least expected harm."""
    parameters: Records | None = None
    sight: RouterVisibility = field(default_factory=RouterVisibility)
    pickers: int = 1
    """Number of pickers. Several pickers divide the requests among themselves and share no state."""
    believed: Mapping[str, float] = field(default_factory=dict)
    """Factor by which the picker overestimates step times, by vendor."""
    weights: tuple[float, ...] = ()
    """Weight of a missed SLO by class; 1 if not given."""
    class_models: tuple[int, ...] = ()
    """Number of the model that the requests of each class ask for; 0 if not given."""
    max_held: int = 1000
    """Maximum number of requests that are held at the gateway. Further ones are refused."""
    max_tries: int = 0
    """How often a client returns that was refused or has left.

    A refused client returns after the seconds of Retry-After, up to a half more by chance. A client that has left
    returns after half a second at first, twice as long each time, and at most 8 s, up to a quarter less by chance.
    """
    answer_tokens: float = 256.0
    """Expected answer length in tokens before any answer was seen."""
    faults: tuple[Fault, ...] = ()
    sampled_every: int = 0
    """Sampling interval: `show` is called with every n-th routing decision, or never if it is 0."""
    show: ShowPick | None = None

    @property
    def is_python(self) -> bool:
        """Whether the policy is a plain Python function, which the compiled loop must call back."""
        return self.pick is not None and not is_compiled(self.pick)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a run."""

    route: Policy = "least-requests"
    """Policy of a router that knows the exact state of the fleet, used if `routing` is not given."""
    first_of_equals: bool = False
    """Whether ties go to the first replica, as in plans, if `routing` is not given.

    If False, replicas get ties in turn.
    """
    routing: Routing | None = None
    pool_of: PoolOf | None = None
    """Function that assigns each request of a block to a pool.

    The router then chooses only among the replicas of this pool.
    """
    devices: tuple[SwappingDevice, ...] = ()
    """Devices that models share. Pools that no device names have devices of their own."""
    log_swaps: int = 0
    """Number of sleeps and wakes of models to keep."""
    users: int | None = None
    """Number of users in a closed loop. Arrival times are then ignored."""
    think_s: float = 0.0
    """Mean think time in seconds between an answer and the user's next request; exponentially distributed."""
    spread_s: float = 0.0
    """Seconds over which users with think time send their first requests. Users without think time start at once."""
    patience_s: tuple[float, ...] = ()
    """Seconds for which the clients of each class wait for the first token before they leave; forever if not given."""
    seed: int = 0
    """Seed of the think times and the first requests."""
    warm_up: int = 0
    """Number of requests at the start of the run that are served but not compared with their SLO."""
    keep_requests: bool = False
    log_steps: int = 0
    stop_waiting: int = 200_000
    """Queue length of one replica at which a run counts as saturated and stops."""

    def __post_init__(self) -> None:
        if not all(seconds > 0 for seconds in self.patience_s):
            raise UsageError("a client's patience must be above 0; write a time such as 10s, or leave it out")
        if self.devices and self.routing is not None and self.routing.faults:
            raise UsageError("models on shared devices are simulated without faults; leave out the events of replicas")
