"""Counts requests by distinct length, which is exact and takes little memory for any trace."""

from dataclasses import dataclass

import numpy as np

from penstock.workload.requests import Float64s, Int32s, Int64s

CELLS_PER_OCTAVE = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenHistogram:
    """A histogram of distinct token counts, ascending. Memory grows only with the number of distinct counts."""

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
        """Return the smallest length that at least this fraction of the requests does not exceed."""
        return int(self.tokens[np.searchsorted(np.cumsum(self.requests), fraction * self.count, "left")])

    def cumulative(self) -> Float64s:
        """Return the fraction of requests up to each distinct length."""
        fraction: Float64s = np.cumsum(self.requests) / self.count
        return fraction

    def by_length(self) -> tuple[int, ...]:
        """Count requests in bins of a quarter of an octave, from 1 token to the longest length."""
        cells = np.floor(np.log2(self.tokens) * CELLS_PER_OCTAVE).astype(np.int64)
        return tuple(np.bincount(cells, self.requests).astype(np.int64).tolist())

    def with_column(self, column: Int32s) -> "TokenHistogram":
        """Return the histogram with the values of one more block."""
        tokens, requests = np.unique(column, return_counts=True)
        joined, place = np.unique(np.concatenate([self.tokens, tokens]), return_inverse=True)
        counts = np.bincount(place, np.concatenate([self.requests, requests]), len(joined))
        return TokenHistogram(tokens=joined.astype(np.int64), requests=counts.astype(np.int64))


def no_tokens() -> TokenHistogram:
    """Return an empty histogram."""
    return TokenHistogram(tokens=np.empty(0, np.int64), requests=np.empty(0, np.int64))
