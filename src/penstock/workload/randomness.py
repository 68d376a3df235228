"""Where does chance come from? One independent stream per column and block, named by the seed alone."""

from enum import IntEnum

import numpy as np

NATIVE_BLOCK = 65536
"""Rows drawn together. Fixed, so that how a consumer cuts its blocks changes no number."""


class RandomStream(IntEnum):
    """What a stream decides. Streams are independent: another rate or sharing leaves the lengths as they were."""

    ARRIVALS = 0
    LENGTHS = 1
    CLASSES = 2
    SHARING = 3
    ROUNDS = 4
    SAMPLE = 5
    STARTS = 6
    PAUSES = 7


def generator(seed: int, stream: RandomStream, block: int) -> np.random.Generator:
    """Return the generator of one stream's block. Numbers repeat between machines on one version of numpy (NEP 19)."""
    sequence = np.random.SeedSequence(seed, spawn_key=(stream, block))
    return np.random.Generator(np.random.PCG64DXSM(sequence))
