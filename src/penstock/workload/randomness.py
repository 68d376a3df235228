"""Provides independent random streams, one per column and block, determined by the seed alone."""

from enum import IntEnum

import numpy as np

NATIVE_BLOCK = 65536
"""Rows drawn together. This number is fixed, so that random numbers do not depend on a consumer's block size."""


class RandomStream(IntEnum):
    """Purpose of a random stream.

    Streams are independent: changing the rate or the sharing does not change the lengths.
    """

    ARRIVALS = 0
    LENGTHS = 1
    CLASSES = 2
    SHARING = 3
    ROUNDS = 4
    SAMPLE = 5
    STARTS = 6
    PAUSES = 7


def generator(seed: int, stream: RandomStream, block: int) -> np.random.Generator:
    """Return the random-number generator for one block of a stream.

    The random numbers are the same on every machine with the same numpy version (NEP 19).
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(stream, block))
    return np.random.Generator(np.random.PCG64DXSM(sequence))
