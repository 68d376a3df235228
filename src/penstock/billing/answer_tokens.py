"""Scales estimates of tokens so that their sums equal the counts of the engines."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_TRUSTED_TOKENS = 1000.0
"""Engine tokens below which estimates are not scaled."""
_MAX_FACTOR = 4.0
"""Largest plausible error of an estimate. Beyond it, the engine also serves requests that were not recorded."""
_EQUAL_WEIGHT = 0.001
"""Weight of equal factors for streamed and whole responses, relative to the observed tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredTokens:
    """Tokens in one interval of one pool: estimates from bytes, and the count of its engines."""

    streamed: float
    whole: float
    counted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScale:
    """Factors on the estimated tokens of streamed and of whole responses."""

    streamed: float = 1.0
    whole: float = 1.0
    metered: bool = False
    """Whether the factors come from the engines' counts."""


def token_scale(intervals: Sequence[MeteredTokens]) -> TokenScale:
    """Return the factors for which scaled estimates come nearest to the engines' counts, and equal them in sum.

    Intervals with different shares of streamed responses tell the two factors apart. Otherwise both are equal.
    """
    estimated = np.array([(one.streamed, one.whole) for one in intervals], float).reshape(-1, 2)
    counted = np.array([one.counted for one in intervals], float)
    total, known = float(estimated.sum()), float(counted.sum())
    if known < _TRUSTED_TOKENS or not total / _MAX_FACTOR <= known <= total * _MAX_FACTOR:
        return TokenScale()
    mean = known / total
    weight = np.sqrt(_EQUAL_WEIGHT * float((estimated**2).sum()))
    rows = np.vstack([estimated, weight * np.eye(2)])
    factors = np.linalg.lstsq(rows, np.concatenate([counted, [weight * mean] * 2]), rcond=None)[0]
    factors = np.clip(factors, mean / _MAX_FACTOR, mean * _MAX_FACTOR)
    factors *= known / float((estimated @ factors).sum())
    return TokenScale(streamed=float(factors[0]), whole=float(factors[1]), metered=True)
