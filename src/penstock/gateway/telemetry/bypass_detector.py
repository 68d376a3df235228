"""Does anybody ask the pickers? Requests that all go by weights, although pickers answer themselves, are said once."""

from typing import Final

_LOOKS: Final = 3
"""In a row, before it is said: a picker that starts again misses a moment's requests."""


class BypassDetector:
    """What Envoy let pass without a picker, held against what pickers decided."""

    def __init__(self) -> None:
        self._passed = self._decided = 0.0
        self._looks = 0
        self._said = False

    def look(self, passed: float, decided: float, up: int, pickers: int) -> str | None:
        """What is to be logged of the requests since the last look, if anything; both counts are since the start."""
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
