"""Orders the runs of a bench, so that slow changes of the machines affect all targets alike."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from penstock.target_runs.bench_target import BenchLoad, BenchTarget
from penstock.workload import Requests

_WARM_UP_REQUESTS: Final = 20
_SEED_STEP: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """One run of the load tool against one target."""

    target: BenchTarget
    load: BenchLoad
    repetition: int
    """Number of the repetition, from 1 on; 0 for the warm-up."""
    seed: int
    """Seed of the requests. It is equal for all targets and differs between repetitions, so that no repetition finds
    the prompts of another in a prefix cache."""

    @property
    def name(self) -> str:
        """Return the name of the run's folder."""
        return f"{'warm-up' if self.repetition == 0 else self.repetition}-{self.load.name}-{self.target.name}"

    def requests(self) -> Requests:
        """Return the requests of the run, which the seed determines."""
        load = self.load
        (found,) = self.target.workload.blocks(
            seed=self.seed, requests=load.requests, rate_per_s=load.requests_per_s, block_requests=load.requests
        )
        return found


def interleave(targets: Sequence[BenchTarget], repeats: int, seed: int) -> list[BenchRun]:
    """Return one short warm-up per target, then all runs. Neighbouring runs are of different targets.

    The target that comes first changes from load to load and from repetition to repetition.
    """
    return [*_warm_ups(targets, seed), *_measured_runs(targets, repeats, seed)]


def _warm_ups(targets: Sequence[BenchTarget], seed: int) -> Iterator[BenchRun]:
    for target in targets:
        load = target.loads[0]
        short = BenchLoad(
            name=load.name,
            requests_per_s=load.requests_per_s,
            requests=min(_WARM_UP_REQUESTS, load.requests),
            at_least_fraction=load.at_least_fraction,
        )
        yield BenchRun(target=target, load=short, repetition=0, seed=seed)


def _measured_runs(targets: Sequence[BenchTarget], repeats: int, seed: int) -> Iterator[BenchRun]:
    turn = 0
    for repetition in range(1, repeats + 1):
        for number in range(max(len(target.loads) for target in targets)):
            first = turn % len(targets)
            turn += 1
            for target in (*targets[first:], *targets[:first]):
                if number < len(target.loads):
                    yield BenchRun(
                        target=target,
                        load=target.loads[number],
                        repetition=repetition,
                        seed=seed + _SEED_STEP * repetition + number + _seed_of(target.loads[number]),
                    )


def _seed_of(load: BenchLoad) -> int:
    """Return a number that differs between loads, so that a bench at another rate has other prompts."""
    return crc32(f"{load.requests_per_s!r} {load.requests}".encode())
