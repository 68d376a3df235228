"""What else may a run be told? How requests are shared, what a router sees, who sends them, and what is kept."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.errors import UsageError
from penstock.routing.policy_compiler import Pick, is_native
from penstock.routing.records import Records
from penstock.workload import Requests

Policy = Literal["round-robin", "least-requests", "least-tokens"]
StageProgress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is, and how much there is."""
PoolOf = Callable[[Requests], NDArray[np.int16]]
ShowPick = Callable[[Records, Records, Records, int], None]
"""Shown a pick: the request, the endpoints as its picker knew them, what was cached at each, and what it chose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterVisibility:
    """How old and how complete is what a router sees?"""

    report_interval_s: float = 0.25
    """Between two reports of one endpoint; the endpoints take turns."""
    report_delay_s: float = 0.0
    """Until a report arrives."""
    report_loss: float = 0.0
    """Share of the reports that never do."""
    cache_delay_s: float = 0.05
    """Until a prefix that is being computed is known to be there."""

    def __post_init__(self) -> None:
        if not (self.report_interval_s > 0 and isfinite(self.report_interval_s)):
            raise UsageError(f"reports come every {self.report_interval_s:g} s; write an interval above 0, such as 1ms")
        if not (0 <= self.report_delay_s < inf and 0 <= self.cache_delay_s < inf):
            raise UsageError("a report or a cached prefix is heard of after a delay of 0 or more seconds; write 0ms")


FaultKind = Literal["dies", "slow", "silent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that happens to one replica for a while.

    What overlaps adds up: a replica is dead or silent while any of its faults says so, and as slow as the slowest.
    """

    kind: FaultKind
    replica: int
    at_s: float
    for_s: float = float("inf")
    factor: float = 1.0
    """How many times longer the steps of a slow one are."""
    noticed_s: float = 1.0
    """Until health checks tell the pickers that it is dead; connections are refused at once."""

    def __post_init__(self) -> None:
        if not (self.factor > 0 and isfinite(self.factor)):
            raise UsageError(f"steps cannot take {self.factor:g} times as long; write a factor above 0: x3 is slower")
        if not (self.at_s >= 0 and self.for_s > 0):
            raise UsageError("what happens to a replica begins at 0 s or later and lasts; write at 60s for 30s")

    @property
    def over_s(self) -> float:
        """When it ends."""
        return self.at_s + self.for_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Routing:
    """Requests are routed by a policy that knows what a gateway knows."""

    pick: Pick | None = None
    """A compiled policy, or a Python function of the same four arrays; None is the policy of least expected harm."""
    parameters: Records | None = None
    sight: RouterVisibility = field(default_factory=RouterVisibility)
    pickers: int = 1
    """That share the requests and nothing else."""
    believed: Mapping[str, float] = field(default_factory=dict)
    """By vendor: how many times longer the picker thinks steps are than they are."""
    weights: tuple[float, ...] = ()
    """What a miss counts, by class; 1 where nothing is said."""
    sheddable: tuple[bool, ...] = ()
    """Whether requests of a class may be rejected."""
    answer_tokens: float = 256.0
    """Expected of an answer before any was seen."""
    faults: tuple[Fault, ...] = ()
    sampled_every: int = 0
    """Picks between two that are shown to `show`; 0: none is."""
    show: ShowPick | None = None

    @property
    def is_python(self) -> bool:
        """Whether the policy is a plain Python function, which the loop stops for."""
        return self.pick is not None and not is_native(self.pick)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What else a run may be told."""

    route: Policy = "least-requests"
    """Of an all-knowing router, where `routing` is not given."""
    first_of_equals: bool = False
    """Whether that router takes the first of equal replicas, as plans have always been judged, or each in turn."""
    routing: Routing | None = None
    pool_of: PoolOf | None = None
    """Which pool each request of a block goes to, where the route decides only inside pools."""
    users: int | None = None
    """A closed loop of so many users; arrival times are then ignored."""
    think_s: float = 0.0
    """Mean of the pauses between an answer and the next request of a user; each is exponential."""
    spread_s: float = 0.0
    """Over which users who think send their first requests; the others send at once."""
    seed: int = 0
    """Of the pauses and the first requests."""
    warm_up: int = 0
    """Requests at the beginning that are served and not judged."""
    keep_requests: bool = False
    log_steps: int = 0
    stop_waiting: int = 200_000
    """Requests in one replica's queue at which a run is called saturated and stopped."""
