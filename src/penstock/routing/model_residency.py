"""Computes when a model on a shared device can serve, and which model gives up its memory.

The simulator and the gateway call the same functions.
"""

import math

from penstock.compiled.marks import compiled

ASLEEP, WAKING, AWAKE = range(3)
"""Residency of a model on a shared device. While a model wakes, its memory is taken and its weights are copied."""
RATE_WINDOW_S = 600.0
"""Time constant, in seconds, of the exponentially decayed arrival rate of a model."""


@compiled
def ready_in_s(residency: int, wake_s: float, awake_s: float, link_free_s: float, now_s: float) -> float:
    """Return the seconds until a model is awake. `awake_s` is the time at which a wake in progress ends.

    A model that sleeps waits until the link to the host is free, and then takes `wake_s`.
    """
    if residency == AWAKE:
        return 0.0
    if residency == WAKING:
        return max(0.0, awake_s - now_s)
    return max(0.0, link_free_s - now_s) + wake_s


@compiled
def rate_now_per_s(rate_per_s: float, used_at_s: float, now_s: float) -> float:
    """Return the arrival rate of a model now, from its rate at its newest request."""
    return rate_per_s * math.exp((used_at_s - now_s) / RATE_WINDOW_S)


@compiled
def harm_per_byte(rate_per_s: float, wake_s: float, patience_s: float, swap_bytes: int) -> float:
    """Return the missed requests per second that a sleeping model would cause, per byte that it gives up."""
    return rate_per_s * min(1.0, wake_s / patience_s) / max(1, swap_bytes)
