"""Counts FP8 codes almost as fast as files are read.

All codes are checked for damage, and a sample gives the distribution.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

import numpy as np

from penstock.checkpoint.fp8.numerics import CODES, Dialect, Histogram, decode_table
from penstock.checkpoint.safetensors.stream import CHUNK_BYTES, Codes

SAMPLE_BYTES: Final = 1 << 16
SAMPLE_EVERY: Final = 32
"""Sampling interval in chunks.

The sample of a tensor that fits in one chunk is at most 64 KiB. The sample of a larger tensor is 16 KiB of every 32nd
chunk."""
_BLOCK: Final = 128
_MAGNITUDE: Final = 0x7F
_LOWEST: Final = -0x80
"""The code 0x80 as a signed byte, where it is the smallest value."""
_FIRST_SPECIAL: Final = {Dialect.E4M3FN: 0x7F, Dialect.E5M2: 0x7C, Dialect.E8M0: 0x7F}
"""Smallest magnitude code that is NaN or infinite. E8M0 has one special code, 0xFF."""


def _empty() -> Histogram:
    return np.zeros(CODES, np.int64)


@dataclass(slots=True)
class Tally:
    """Counts over the codes of one tensor, or of all tensors of one group."""

    codes: int = 0
    sampled: int = 0
    histogram: Histogram = field(default_factory=_empty)
    """Histogram of the sampled codes. The counts of damage cover all codes, not only the sample."""
    nan_codes: int = 0
    """Number of NaN or infinite codes."""
    has_negative_zero: bool = False
    """Whether the code 0x80 occurs, which is negative zero in OCP and NaN in FNUZ."""
    zero_chunks: int = 0
    """Number of chunks that are all zero. A file that was not written completely has chunks of zeros."""
    chunks: int = 0
    largest_code: int = 0
    """Magnitude bits of the largest code."""
    zero_blocks: int = 0
    """Number of all-zero blocks of 128 x 128 codes."""
    zero_rows: int = 0
    """Number of all-zero rows, in tensors at least two blocks wide."""
    fingerprint: int = 0
    """Checksum of the first sample. Copies of a tensor have equal checksums."""

    @property
    def scaled_histogram(self) -> Histogram:
        """Return the histogram of the sample, scaled to the number of all codes."""
        if not self.sampled or self.sampled == self.codes:
            return self.histogram
        scaled: Histogram = np.rint(self.histogram * (self.codes / self.sampled)).astype(np.int64)
        return scaled

    def largest_value(self, dialect: Dialect) -> float:
        """Return the value of the largest code in the dialect `dialect`. NaN if the largest code is NaN."""
        return float(abs(decode_table(dialect)[self.largest_code]))

    def add(self, other: "Tally") -> None:
        """Add the counts of another tensor."""
        self.codes += other.codes
        self.sampled += other.sampled
        self.histogram += other.histogram
        self.nan_codes += other.nan_codes
        self.has_negative_zero |= other.has_negative_zero
        self.zero_chunks += other.zero_chunks
        self.chunks += other.chunks
        self.largest_code = max(self.largest_code, other.largest_code)
        self.zero_blocks += other.zero_blocks
        self.zero_rows += other.zero_rows


class _ZeroBlocks:
    """Detector of all-zero blocks.

    The detector reads only the first eight bytes of each block row, which has 128 bytes.
    """

    def __init__(self, columns: int) -> None:
        self.across = columns // _BLOCK if columns % _BLOCK == 0 else 0
        self.seen = 0
        self.rows: dict[int, int] = {}
        """For each block, the number of its rows that begin with zeros."""
        self.whole: dict[int, int] = {}
        """For each row, the number of its blocks that begin with zeros."""

    def look(self, chunk: Codes) -> None:
        # If rows are not whole blocks, or a chunk ends inside a block, the tensor is not laid out in blocks.
        if not self.across or chunk.size % _BLOCK:
            self.across = 0
            return
        starts = chunk.view(np.uint64)[:: _BLOCK // 8]
        if np.count_nonzero(starts) < starts.size:
            for place in np.flatnonzero(starts == 0) + self.seen:
                row, column = divmod(int(place), self.across)
                block = row // _BLOCK * self.across + column
                self.rows[block] = self.rows.get(block, 0) + 1
                self.whole[row] = self.whole.get(row, 0) + 1
        self.seen += starts.size

    @property
    def count(self) -> int:
        """Return the number of blocks in which every row begins with eight zeros.

        Eight zeros in each of 128 rows are no coincidence.
        """
        last = self.seen // self.across if self.across else 0
        return sum(zeros >= min(_BLOCK, last - block // self.across * _BLOCK) for block, zeros in self.rows.items())

    @property
    def zero_rows(self) -> int:
        """Return the number of rows in which every block begins with eight zeros.

        The result is 0 if rows have only one block, because eight zeros in one block prove little.
        """
        return sum(count == self.across for count in self.whole.values()) if self.across > 1 else 0


def tally(chunks: Iterable[Codes], dialect: Dialect, columns: int = 0) -> Tally:
    """Count a tensor's codes. If the number of columns is given, also count blocks of zeros.

    Three reductions read every byte and find any NaN, any 0x80 and the largest code. Only a damaged chunk is counted
    code by code, so that the scan is almost as fast as reading.
    """
    found, blocks = Tally(), _ZeroBlocks(columns)
    for chunk in chunks:
        if not found.chunks:
            found.fingerprint = crc32(chunk[:SAMPLE_BYTES].tobytes())
        blocks.look(chunk)
        if found.chunks % SAMPLE_EVERY == 0:
            sample = chunk[: SAMPLE_BYTES if chunk.size < CHUNK_BYTES else SAMPLE_BYTES // 4]
            found.histogram += np.bincount(sample, minlength=CODES)
            found.sampled += sample.size
        found.codes += chunk.size
        found.chunks += 1
        _screen(chunk, dialect, found)
    found.zero_blocks, found.zero_rows = blocks.count, blocks.zero_rows
    return found


def _screen(chunk: Codes, dialect: Dialect, found: Tally) -> None:
    signed = chunk.view(np.int8)
    highest, top = int(np.maximum.reduce(signed)), int(np.maximum.reduce(chunk))
    found.zero_chunks += top == 0
    found.largest_code = max(found.largest_code, highest, top & _MAGNITUDE if top > _MAGNITUDE else 0)
    if dialect in {Dialect.E4M3FNUZ, Dialect.E5M2FNUZ}:
        if int(np.minimum.reduce(signed)) == _LOWEST:
            found.has_negative_zero = True
            found.nan_codes += int(np.count_nonzero(chunk == 0x80))  # FNUZ's only NaN
        return
    # One negative zero is enough, so later chunks are not searched for 0x80.
    found.has_negative_zero = found.has_negative_zero or int(np.minimum.reduce(signed)) == _LOWEST
    if highest >= (special := _FIRST_SPECIAL[dialect]) or top >= special | 0x80:
        found.nan_codes += int(np.count_nonzero(~np.isfinite(decode_table(dialect))[chunk]))
