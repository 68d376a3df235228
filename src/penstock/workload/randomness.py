"""Provides independent random streams, one per column and block, determined by the seed alone."""

from enum import IntEnum

import numpy as np

NATIVE_BLOCK = 65536
"""Rows drawn together. It is fixed, so that the block size of a consumer changes no number."""


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
    """Return the generator of one stream's block. Numbers repeat between machines on one version of numpy (NEP 19)."""
    sequence = np.random.SeedSequence(seed, spawn_key=(stream, block))
    return np.random.Generator(np.random.PCG64DXSM(sequence))
