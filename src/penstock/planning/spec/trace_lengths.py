"""Summarises a trace as a few length buckets of equal work, and the request rate of its busiest minute."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import UsageError
from penstock.planning.spec.plan_types import Bucket, Share
from penstock.workload.requests import Float64s, Int32s, Requests
from penstock.workload.summary.describe import SharingCount
from penstock.workload.summary.minutes import Minutes

BUCKETS: Final = 4
_CELLS_PER_OCTAVE: Final = 4
_CELLS: Final = 32 * _CELLS_PER_OCTAVE
_STRETCH_S: Final = 600.0
_TELLING: Final = 1000
"""Minimum number of requests from which a mean length is computed.

With this number, the mean is exact to 5% if the standard deviation is 1.5 times the mean.
"""
_ROWS: Final = 100_000
"""Maximum number of rows kept, sampled uniformly.

With this number, the mean length is exact to 0.5% if the standard deviation is 1.5 times the mean.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLengths:
    """Workload statistics of a trace."""

    requests_per_s: float
    """Request rate in the busiest minute of the trace."""
    mean_load_fraction: float
    """Mean request rate relative to the rate in the busiest minute."""
    shares: tuple[Share, ...]
    reusable_fraction: float | None
    """Share of prompt tokens that repeat an earlier request; None if the trace does not record shared prefixes."""
    longer_at_times: tuple[float, float] = (1.0, 1.0)
    """Largest mean input length and largest mean output length of any ten minutes, relative to the overall means."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Maps reason to the number of rows that could not be used for that reason."""

    def within(self, context_tokens: int) -> "TraceLengths":
        """Return the trace limited to a model's context.

        Requests whose prompt fills the context are dropped, and outputs are cut at the context limit.
        """
        kept: list[Share] = []
        for share in self.shares:
            pairs = share.bucket.pairs
            taken = pairs[pairs[:, 0] < context_tokens]
            ended = np.column_stack((taken[:, 0], np.minimum(taken[:, 1], context_tokens - taken[:, 0])))
            if np.array_equal(ended, pairs):
                kept.append(share)
            elif len(ended):
                kept.append(Share(bucket=_bucket(ended), fraction=share.fraction * len(ended) / len(pairs)))
        total = sum(share.fraction for share in kept)
        shares = tuple(Share(bucket=share.bucket, fraction=share.fraction / total) for share in kept)
        return replace(self, shares=shares)

    def longer_than(self, tokens: int) -> float:
        """Return the share of requests with more than `tokens` tokens, input plus output."""
        return sum(share.fraction * float(np.mean(share.bucket.pairs.sum(axis=1) > tokens)) for share in self.shares)


def trace_lengths(blocks: Iterable[Requests]) -> TraceLengths:
    """Split requests by input length into buckets with about the same number of tokens each."""
    count, inputs, outputs = np.zeros(_CELLS), np.zeros(_CELLS), np.zeros(_CELLS)
    minutes, sharing, rows, stretches = Minutes(), SharingCount(), _SomeRows(), _Stretches()
    last_s = 0.0
    for block in blocks:
        cells = _cells(block.input_tokens)
        count += np.bincount(cells, minlength=_CELLS)
        inputs += np.bincount(cells, weights=block.input_tokens, minlength=_CELLS)
        outputs += np.bincount(cells, weights=block.output_tokens, minlength=_CELLS)
        rows.add(block)
        stretches.add(block)
        minutes.add(block.arrival_s)
        if block.prefixes is not None:
            sharing.add(block.prefixes)
        last_s = float(block.arrival_s[-1]) if len(block.arrival_s) else last_s
    total = float(count.sum())
    peak = minutes.busiest_per_s
    if peak is None:
        raise UsageError(
            "all requests of the trace have the same arrival time, so it has no rate; use a trace with arrival times"
        )
    shared = sharing.summary(int(total), int(inputs.sum()))
    return TraceLengths(
        requests_per_s=peak,
        mean_load_fraction=min(1.0, total / last_s / peak),
        shares=tuple(_shares(count, inputs, outputs, rows.pairs)),
        longer_at_times=stretches.longest_over_mean,
        reusable_fraction=None if shared is None else shared.reusable_fraction,
    )


class _SomeRows:
    """A uniform sample of rows from successive blocks.

    Each row gets a random number, and the rows with the smallest numbers are kept.
    """

    def __init__(self) -> None:
        self.pairs: Int32s = np.empty((0, 2), np.int32)
        self._drawn: Float64s = np.empty(0)
        self._rng = np.random.default_rng(0)

    def add(self, block: Requests) -> None:
        pairs = np.column_stack((block.input_tokens, block.output_tokens))
        self.pairs = np.concatenate((self.pairs, pairs))
        self._drawn = np.concatenate((self._drawn, self._rng.random(len(pairs))))
        if len(self.pairs) > _ROWS:
            kept = np.sort(np.argpartition(self._drawn, _ROWS)[:_ROWS])
            self.pairs, self._drawn = self.pairs[kept], self._drawn[kept]


class _Stretches:
    """Numbers of requests, input tokens and output tokens in each interval of ten minutes of a trace."""

    def __init__(self) -> None:
        self._sums: Float64s = np.zeros((0, 3))

    def add(self, block: Requests) -> None:
        if not len(block):
            return
        at = (block.arrival_s / _STRETCH_S).astype(np.int64)
        first, count = int(at[0]), int(at[-1]) + 1
        self._sums = np.concatenate((self._sums, np.zeros((max(0, count - len(self._sums)), 3))))
        rows = np.column_stack((np.ones(len(block)), block.input_tokens, block.output_tokens))
        np.add.at(self._sums[first:count], at - first, rows)

    @property
    def longest_over_mean(self) -> tuple[float, float]:
        """Return the largest mean length of any ten minutes relative to the overall mean, for inputs and for outputs.

        Only intervals of ten minutes with enough requests count; both ratios are 1 if no interval has enough requests.
        """
        known = self._sums[self._sums[:, 0] >= _TELLING]
        if not len(known):
            return 1.0, 1.0
        mean = self._sums[:, 1:].sum(axis=0) / self._sums[:, 0].sum()
        prompts, answers = (known[:, 1:] / known[:, :1] / mean).max(axis=0)
        return max(1.0, float(prompts)), max(1.0, float(answers))


def _bucket(pairs: Int32s) -> Bucket:
    inputs, outputs = (max(1, round(float(column.mean()))) for column in pairs.T)
    return Bucket(input_tokens=inputs, output_tokens=outputs, rows=pairs.astype(np.int32).tobytes())


def _cells(input_tokens: Int32s) -> NDArray[np.int64]:
    cells: NDArray[np.int64] = (np.log2(input_tokens) * _CELLS_PER_OCTAVE).astype(np.int64)
    return cells


def _shares(count: Float64s, inputs: Float64s, outputs: Float64s, pairs: Int32s) -> Iterable[Share]:
    work = np.cumsum(inputs + outputs)
    edges = np.searchsorted(work, work[-1] * np.arange(1, BUCKETS) / BUCKETS)
    ordered = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    parts = np.split(ordered, np.searchsorted(_cells(ordered[:, 0]), edges, side="right"))
    for cells, part in zip(np.split(np.arange(_CELLS), edges + 1), parts, strict=True):
        requests = float(count[cells].sum())
        if requests:
            yield Share(
                bucket=Bucket(
                    input_tokens=max(1, round(float(inputs[cells].sum()) / requests)),
                    output_tokens=max(1, round(float(outputs[cells].sum()) / requests)),
                    rows=part.tobytes(),
                ),
                fraction=requests / float(count.sum()),
            )
