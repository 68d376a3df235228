"""Repeats a recording without end.

Each pass over the recording starts one mean gap after the last request of the previous pass.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from penstock.errors import UsageError
from penstock.workload.prefixes.segment_table import SegmentTable
from penstock.workload.recorded.recording import Recording, mean_rate_per_s
from penstock.workload.requests import Requests


def repeat(recording: Recording, *, renew_segments: bool = True) -> Iterator[Requests]:
    """Yield a recording's blocks repeatedly, without end.

    Real traffic does not repeat. So by default each pass gets new segments, and finds none of its prompts in the prefix
    cache. This costs a little: a system prompt, which real traffic shares, is computed once per pass.
    """
    if not recording.requests:
        raise UsageError(f"recording '{recording.name}' has no requests, so it cannot be repeated")
    rate = mean_rate_per_s(recording)
    period_s = recording.requests / rate if rate else 0.0
    tokens = recording.segment_tokens
    table = None if tokens is None else SegmentTable(tokens[:0])
    for past in count():
        if table is not None and tokens is not None and (renew_segments or past == 0):
            table.add(tokens)
        for block in recording.blocks():
            prefixes = block.prefixes
            if prefixes is not None and table is not None:
                prefixes = prefixes.with_offset(len(table) - len(prefixes.segment_tokens), table.tokens)
            yield replace(block, arrival_s=block.arrival_s + past * period_s, prefixes=prefixes)
