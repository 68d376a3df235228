"""Excludes endpoints that fail, in a table of plain records, for a picker that sees the end of every request itself.

A failed try is blamed on an endpoint only if another endpoint then answers the same request. So a request that fails at
every endpoint excludes no endpoint.
"""

from typing import Annotated, Any, Final, NamedTuple

import numpy as np

from penstock.compiled.interface import exported_short
from penstock.compiled.tables import ArrayOf
from penstock.routing.records import ENDPOINT

SUSPECT: Final = np.dtype(
    [
        ("until_s", "f8"),  # end of the suspicion; 0 if the endpoint is not suspected
        ("for_s", "f8"),  # duration of the last suspicion; 0 after an answer
        ("strikes", "i8"),  # failed tries since the last answer
        ("healthy", "i8"),  # by the last scrape
    ],
    align=True,
)
_FIRST_S, _MAX_S = 1.0, 30.0
_STRIKES: Final = 3
"""Failed tries after which an endpoint is suspected. After a suspicion, and before an answer, one is enough."""


class SuspectTable(NamedTuple):
    """The endpoint records, whose field `accepts` excludes an endpoint, and the suspicion of each endpoint."""

    endpoints: Annotated[Any, ArrayOf(ENDPOINT)]
    suspects: Annotated[Any, ArrayOf(SUSPECT)]


@exported_short
def apply_health(t: SuspectTable, endpoint: int, healthy: int, now_s: float) -> None:
    """Apply the health of an endpoint as the last scrape found it."""
    t.suspects[endpoint]["healthy"] = healthy
    t.endpoints[endpoint]["accepts"] = int(healthy != 0 and now_s >= t.suspects[endpoint]["until_s"])


@exported_short
def strike(t: SuspectTable, endpoint: int, now_s: float) -> int:
    """Count a failed try that another endpoint answered. Return 1 if the endpoint is suspected now, else 0.

    The first suspicion lasts 1 s, and each further one twice as long, up to 30 s. Failures of requests that were under
    way when it began do not make it longer.
    """
    s = t.suspects[endpoint]
    if now_s < s["until_s"]:
        return 0
    s["strikes"] += 1
    if s["strikes"] < _STRIKES and s["for_s"] == 0.0:
        return 0
    s["for_s"] = min(_MAX_S, max(_FIRST_S, 2.0 * s["for_s"]))
    s["until_s"], s["strikes"] = now_s + s["for_s"], 0
    t.endpoints[endpoint]["accepts"] = 0
    return 1


@exported_short
def clear_strikes(t: SuspectTable, endpoint: int) -> None:
    """Reset the failed tries and the back-off of an endpoint that answered."""
    t.suspects[endpoint]["for_s"] = 0.0
    t.suspects[endpoint]["strikes"] = 0


@exported_short
def end_suspicions(t: SuspectTable, now_s: float) -> None:
    """End the suspicions whose time is over."""
    for index in range(len(t.suspects)):
        s = t.suspects[index]
        if 0.0 < s["until_s"] <= now_s:
            s["until_s"] = 0.0
            t.endpoints[index]["accepts"] = s["healthy"]
