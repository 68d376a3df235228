"""Formats SLO attainment."""

from math import floor
from typing import Final

_ROUNDING: Final = 1e-9


def format_attainment(fraction: float) -> str:
    """Format SLO attainment as a percentage. The value is truncated and not rounded: 94.95% must not read as 95.0%."""
    return f"{floor(fraction * 1000 + _ROUNDING) / 10:.1f}%"
