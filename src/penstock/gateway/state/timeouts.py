"""Computes how long Envoy waits before it asks whether a silent endpoint is alive."""

from typing import Final

_SLACK: Final = 4.0
"""Time that Envoy waits before a liveness question, as a multiple of the predicted time to the first byte."""
SILENCE_S: Final = 10.0
"""Default minimum time, in seconds, that Envoy waits for a silent endpoint before a liveness question."""
_MAX_SILENCE_S: Final = 3600.0


def silence_s(expected_s: float, min_silence_s: float) -> float:
    """Return the seconds that Envoy waits before it asks whether a silent endpoint is alive.

    `expected_s` is the predicted time to the first byte. If the response is not streamed, the first byte comes with the
    last token.
    """
    return min(_MAX_SILENCE_S, max(min_silence_s, _SLACK * expected_s))
