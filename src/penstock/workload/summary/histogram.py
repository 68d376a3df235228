"""Counts the requests of each distinct length; the counts are exact and take little memory for any trace."""

from dataclasses import dataclass

import numpy as np

from penstock.workload.requests import Float64s, Int32s, Int64s

CELLS_PER_OCTAVE = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenHistogram:
    """A histogram of request lengths in tokens, ascending.

    Memory use grows only with the number of distinct lengths.
    """

    tokens: Int64s
    requests: Int64s

    @property
    def count(self) -> int:
        """Total requests."""
        return int(self.requests.sum())

    @property
    def total_tokens(self) -> int:
        """Total tokens."""
        return int(self.tokens @ self.requests)

    def percentile(self, fraction: float) -> int:
        """Return the smallest length such that at least this fraction of requests is no longer."""
        return int(self.tokens[np.searchsorted(np.cumsum(self.requests), fraction * self.count, "left")])

    def cumulative(self) -> Float64s:
        """Return, for each distinct length, the fraction of requests of at most that length."""
        fraction: Float64s = np.cumsum(self.requests) / self.count
        return fraction

    def by_length(self) -> tuple[int, ...]:
        """Count requests per length bin, from 1 token to the longest length, with four bins per doubling of length."""
        cells = np.floor(np.log2(self.tokens) * CELLS_PER_OCTAVE).astype(np.int64)
        return tuple(np.bincount(cells, self.requests).astype(np.int64).tolist())

    def with_column(self, column: Int32s) -> "TokenHistogram":
        """Return a histogram that also counts the lengths of one more block."""
        tokens, requests = np.unique(column, return_counts=True)
        joined, place = np.unique(np.concatenate([self.tokens, tokens]), return_inverse=True)
        counts = np.bincount(place, np.concatenate([self.requests, requests]), len(joined))
        return TokenHistogram(tokens=joined.astype(np.int64), requests=counts.astype(np.int64))


def no_tokens() -> TokenHistogram:
    """Return an empty histogram."""
    return TokenHistogram(tokens=np.empty(0, np.int64), requests=np.empty(0, np.int64))
