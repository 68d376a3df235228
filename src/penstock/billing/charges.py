"""Divides the rented time of a pool among the requests that it served.

Rented time has three parts. *Own* seconds are what a request adds to its replica's steps. *Shared* seconds are the rest
of the time in which a replica had any request: the fixed part of each step, and waits. They are divided equally over
the steps in which requests took part, so a request pays for each of its steps the same as any other request of the
pool. *Idle* seconds are those in which a replica had no request. They belong to no request.

If the model predicts more own seconds than the replicas were busy, own seconds are scaled down to the busy time.
"""

from dataclasses import dataclass
from math import fsum, isfinite

import numpy as np

from penstock.billing.step_seconds import Floats, StepSeconds
from penstock.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class RentedTime:
    """Rented time of all replicas of a pool in a period, summed over the replicas."""

    rented_s: float
    busy_s: float
    """Part of `rented_s` in which the replica had at least one request in flight."""
    usd_per_s: float
    """Rent of one replica."""

    def __post_init__(self) -> None:
        if not all(isfinite(value) and value >= 0 for value in (self.rented_s, self.busy_s, self.usd_per_s)):
            raise UsageError("rented time, busy time and rent must be finite and at least 0")
        if self.busy_s > self.rented_s:
            raise UsageError(
                f"the replicas were busy for {self.busy_s:,.0f} s but rented for only {self.rented_s:,.0f} s; "
                "give a longer period or more replica hours"
            )

    @property
    def usd(self) -> float:
        """Rent of the whole time."""
        return self.rented_s * self.usd_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCharges:
    """Charges of a pool's requests, in the order of the requests, and the idle time that is left."""

    own_s: Floats
    """This and the next: seconds of rented time that each request is charged."""
    shared_s: Floats
    idle_s: float
    own_scale: float
    """Factor on predicted own seconds: 1, or less if the replicas were busy for less than the model predicts."""
    shared_s_per_step: float

    @property
    def seconds(self) -> Floats:
        """Own and shared seconds of each request."""
        return self.own_s + self.shared_s


def charge_requests(time: RentedTime, work: StepSeconds) -> PoolCharges:
    """Divide the busy time of a pool among its requests. The sum of all charges and the idle time is the rented time.

    A charge depends only on the request's own work and on sums over the pool, so the order of requests does not matter,
    and equal requests are charged the same, whichever replica served them and when.
    """
    own_s, steps, busy_s = fsum(work.own_s.tolist()), int(work.steps.sum()), time.busy_s if len(work.steps) else 0.0
    scale = min(1.0, busy_s / own_s) if own_s > 0 else 1.0
    per_step_s = max(0.0, busy_s - own_s) / max(1, steps)
    return PoolCharges(
        own_s=work.own_s * scale,
        shared_s=per_step_s * work.steps.astype(np.float64),
        idle_s=time.rented_s - busy_s,
        own_scale=scale,
        shared_s_per_step=per_step_s,
    )
