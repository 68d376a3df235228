"""Defines how trials are kept from one process to the next: a key of their content, and a cache to read and write."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from penstock.simulation.capacity import RateSearch, Trial
from penstock.simulation.replica import ReplicaPool
from penstock.workload import Empirical


class TrialCache(Protocol):
    """Trials of earlier processes, without their requests."""

    def read(self, key: str) -> dict[float, Trial]:
        """Return the known trials of one pool and load, by the target rate; empty if none are known."""

    def write(self, key: str, trials: Mapping[float, Trial]) -> None:
        """Keep the trials of one pool and load."""


def trial_key(pools: Sequence[ReplicaPool], asked: RateSearch, requests: int) -> str:
    """Return a digest of everything that decides the trial at a rate, except for the program itself.

    The step times of the replicas stand for the calibration that predicts them.
    """
    workload = asked.workload
    digest = hashlib.sha256()
    if isinstance(workload.lengths, Empirical):
        for column in (workload.lengths.input_tokens, workload.lengths.output_tokens):
            digest.update(np.ascontiguousarray(column).tobytes())
    else:
        digest.update(repr(workload.lengths).encode())
    drawn = workload.arrivals, workload.sharing, workload.classes, asked.seed, requests
    digest.update(repr((tuple(pools), drawn, asked.classes, asked.options)).encode())
    return digest.hexdigest()
