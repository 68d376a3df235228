"""What does a trace ask for? A few length buckets of equal work and the rate of its busiest minute, in one pass."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penstock.errors import UsageError
from penstock.planning.asked.plan import Bucket, Share
from penstock.workload.requests import Float64s, Requests
from penstock.workload.summary.describe import SharingCount
from penstock.workload.summary.minutes import Minutes

BUCKETS: Final = 4
_CELLS_PER_OCTAVE: Final = 4
_CELLS: Final = 32 * _CELLS_PER_OCTAVE


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLengths:
    """What a trace says about a workload."""

    requests_per_s: float
    """In its busiest minute."""
    mean_load_fraction: float
    """Its mean rate over that."""
    shares: tuple[Share, ...]
    reusable_fraction: float | None
    """Prompt tokens that an earlier request already had; None where the trace does not tell."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Rows it could not use, by reason."""


def trace_lengths(blocks: Iterable[Requests]) -> TraceLengths:
    """Cut requests by the length of their prompts into buckets that hold about the same number of tokens each."""
    count, inputs, outputs = np.zeros(_CELLS), np.zeros(_CELLS), np.zeros(_CELLS)
    minutes, sharing = Minutes(), SharingCount()
    last_s = 0.0
    for block in blocks:
        cells = (np.log2(block.input_tokens) * _CELLS_PER_OCTAVE).astype(np.int64)
        count += np.bincount(cells, minlength=_CELLS)
        inputs += np.bincount(cells, weights=block.input_tokens, minlength=_CELLS)
        outputs += np.bincount(cells, weights=block.output_tokens, minlength=_CELLS)
        minutes.add(block.arrival_s)
        if block.prefixes is not None:
            sharing.add(block.prefixes)
        last_s = float(block.arrival_s[-1]) if len(block.arrival_s) else last_s
    total = float(count.sum())
    peak = minutes.busiest_per_s
    if peak is None:
        raise UsageError("the trace has no two requests at different times; a rate cannot be read from it")
    shared = sharing.summary(int(total), int(inputs.sum()))
    return TraceLengths(
        requests_per_s=peak,
        mean_load_fraction=min(1.0, total / last_s / peak),
        shares=tuple(_shares(count, inputs, outputs)),
        reusable_fraction=None if shared is None else shared.reusable_fraction,
    )


def _shares(count: Float64s, inputs: Float64s, outputs: Float64s) -> Iterable[Share]:
    work = np.cumsum(inputs + outputs)
    edges = np.searchsorted(work, work[-1] * np.arange(1, BUCKETS) / BUCKETS)
    for cells in np.split(np.arange(_CELLS), edges + 1):
        requests = float(count[cells].sum())
        if requests:
            yield Share(
                bucket=Bucket(
                    input_tokens=max(1, round(float(inputs[cells].sum()) / requests)),
                    output_tokens=max(1, round(float(outputs[cells].sum()) / requests)),
                ),
                fraction=requests / float(count.sum()),
            )
