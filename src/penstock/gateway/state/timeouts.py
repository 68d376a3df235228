"""When is Envoy to ask whether a silent endpoint is alive? After several times what its answer should take."""

from typing import Final

_SLACK: Final = 4.0
"""Times what was predicted."""
SILENCE_S: Final = 10.0
"""At least this long, whatever was predicted."""
_MAX_SILENCE_S: Final = 3600.0


def silence_s(expected_s: float, min_silence_s: float) -> float:
    """Return the seconds; `expected_s` is until the first byte, which is the last token of an unstreamed answer."""
    return min(_MAX_SILENCE_S, max(min_silence_s, _SLACK * expected_s))
