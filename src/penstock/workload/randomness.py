"""Provides independent random streams, one per column and block, determined by the seed alone."""

from enum import IntEnum

import numpy as np

NATIVE_BLOCK = 65536
"""Rows drawn together. The number is fixed, so that the block size of a consumer does not change the random numbers."""


class RandomStream(IntEnum):
    """Purpose of a random stream. Streams are independent: a change of rate or sharing leaves the lengths unchanged."""

    ARRIVALS = 0
    LENGTHS = 1
    CLASSES = 2
    SHARING = 3
    ROUNDS = 4
    SAMPLE = 5
    STARTS = 6
    PAUSES = 7


def generator(seed: int, stream: RandomStream, block: int) -> np.random.Generator:
    """Return the generator of one stream's block.

    Its numbers are the same on every machine with the same numpy version (NEP 19).
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(stream, block))
    return np.random.Generator(np.random.PCG64DXSM(sequence))
