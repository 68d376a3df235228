"""Computes how long Envoy waits before it asks whether a silent endpoint is alive."""

from typing import Final

_SLACK: Final = 4.0
"""Wait as a multiple of the predicted time."""
SILENCE_S: Final = 10.0
"""Default minimum wait, in seconds."""
_MAX_SILENCE_S: Final = 3600.0


def silence_s(expected_s: float, min_silence_s: float) -> float:
    """Return the wait in seconds.

    `expected_s` is the predicted time to the first byte, which comes with the last token if the response is not
    streamed.
    """
    return min(_MAX_SILENCE_S, max(min_silence_s, _SLACK * expected_s))
