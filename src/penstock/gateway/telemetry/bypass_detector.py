"""Detects a bypass, in which Envoy routes all requests without asking the pickers, and reports each bypass once."""

from typing import Final

_COMPARISONS: Final = 3
"""Number of consecutive comparisons that must find a bypass before the bypass is reported.

A picker that restarts causes a bypass only briefly.
"""


class BypassDetector:
    """Detector of bypasses.

    Compares the count of requests routed without a picker with the count of pickers' decisions.
    """

    def __init__(self) -> None:
        self._bypassed = self._decided = 0.0
        self._bypasses = 0
        self._reported = False

    def compare(self, bypassed: float, decided: float, up: int, pickers: int) -> str | None:
        """Compare the counts with the counts of the last call.

        Return a message to log, or None if there is nothing to report. `bypassed` and `decided` count requests since
        the start of the gateway. `up` is the number of pickers that are up, of `pickers` in all.
        """
        bypasses, self._bypassed = bypassed - self._bypassed, bypassed
        decisions, self._decided = decided - self._decided, decided
        if decisions > 0:
            self._bypasses = 0
            if self._reported:
                self._reported = False
                return "Envoy asks the pickers again"
        elif bypasses > 0:
            self._bypasses += 1
            if self._bypasses == _COMPARISONS:
                self._reported = True
                return (
                    f"Envoy routes all requests by weight: no picker decides, although {up} of {pickers} pass their "
                    "self-check"
                )
        return None
