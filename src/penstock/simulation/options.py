"""What else may a run be told? How requests are shared, who sends them, and what is kept."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.routing import Picker
from penstock.workload import Requests

Policy = Literal["round-robin", "least-requests", "least-tokens"]
StageProgress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is, and how much there is."""
PoolOf = Callable[[Requests], NDArray[np.int16]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What else a run may be told."""

    route: Policy | Picker = "least-requests"
    pool_of: PoolOf | None = None
    """Which pool each request of a block goes to, where the route decides only inside pools."""
    users: int | None = None
    """A closed loop of so many users; arrival times are then ignored."""
    think_s: float = 0.0
    keep_requests: bool = False
    log_steps: int = 0
    stop_waiting: int = 200_000
    """Requests in one replica's queue at which a run is called saturated and stopped."""
