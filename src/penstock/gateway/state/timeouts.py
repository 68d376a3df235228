"""Computes how long Envoy waits for a silent endpoint before it tries another one too."""

from typing import Final

_SLACK: Final = 4.0
"""Time that Envoy waits for the first byte, as a multiple of its predicted time."""
SILENCE_S: Final = 10.0
"""Default minimum time, in seconds, that Envoy waits for a silent endpoint."""
_MAX_SILENCE_S: Final = 3600.0


def silence_s(expected_s: float, min_silence_s: float) -> float:
    """Return the seconds that Envoy waits for a silent endpoint before it tries another one too.

    `expected_s` is the predicted time to the first byte. If the response is not streamed, the first byte comes with the
    last token.
    """
    return min(_MAX_SILENCE_S, max(min_silence_s, _SLACK * expected_s))
