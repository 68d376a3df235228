"""Draws a series in one line of text.

Each column is a block character whose height is the mean of the column's values.
"""

from collections.abc import Sequence
from itertools import pairwise

_HEIGHTS = " ▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw values on a scale from zero to their maximum. A positive value is never blank."""
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    edges = [round(column * len(values) / count) for column in range(count + 1)]
    means = [sum(values[low:high]) / (high - low) for low, high in pairwise(edges)]
    most = max(means)
    if most <= 0:
        return _HEIGHTS[0] * count
    return "".join(_HEIGHTS[0] if mean <= 0 else _HEIGHTS[max(1, round(mean / most * 8))] for mean in means)
