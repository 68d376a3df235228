"""Counts the time in which endpoints had a request in flight."""

from collections.abc import Sequence
from math import fsum

import numpy as np

from penstock.billing.step_seconds import Floats


def busy_seconds(endpoint: Sequence[str], begun_s: Floats, ended_s: Floats) -> float:
    """Return the seconds in which endpoints had a request in flight, summed over the endpoints."""
    names, numbers = np.unique(np.array(endpoint, str), return_inverse=True)
    return fsum(_covered_seconds(begun_s[numbers == at], ended_s[numbers == at]) for at in range(len(names)))


def _covered_seconds(begun_s: Floats, ended_s: Floats) -> float:
    order = np.argsort(begun_s, kind="stable")
    begun_s, ended_s = begun_s[order], ended_s[order]
    covered_until_s = np.concatenate([[-np.inf], np.maximum.accumulate(ended_s)[:-1]])
    return fsum(np.maximum(0.0, ended_s - np.maximum(begun_s, covered_until_s)).tolist())
