"""Detects that all requests bypass the pickers although the pickers are up, and reports it once."""

from typing import Final

_LOOKS: Final = 3
"""Consecutive observations before a report: a picker that restarts misses a moment's requests."""


class BypassDetector:
    """Compares the requests that Envoy passed without a picker with the pickers' decisions."""

    def __init__(self) -> None:
        self._passed = self._decided = 0.0
        self._looks = 0
        self._said = False

    def look(self, passed: float, decided: float, up: int, pickers: int) -> str | None:
        """Return a message to log about the requests since the last call, or None. Both counts are since the start."""
        more, self._passed = passed - self._passed, passed
        decisions, self._decided = decided - self._decided, decided
        if decisions > 0:
            self._looks = 0
            if self._said:
                self._said = False
                return "pickers are asked again"
        elif more > 0:
            self._looks += 1
            if self._looks == _LOOKS:
                self._said = True
                return (
                    f"all requests go by weights: no picker is heard, although {up} of {pickers} answer for themselves"
                )
        return None
