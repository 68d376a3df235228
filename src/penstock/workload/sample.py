"""How much of a trace is enough? A sample of it, and how far what it shows may be from the whole."""

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np

from penstock.errors import UsageError
from penstock.workload.randomness import RandomStream, generator
from penstock.workload.recording import Recording, Records, mean_rate_per_s
from penstock.workload.requests import Float64s, Int64s, Requests, concatenate

DEFAULT_STRETCHES = 100
"""Enough for the spread between stretches to be known to about 7%: 1/sqrt(2 * 100)."""

_MIN_STRETCHES = 2  # One alone shows no spread.

Quantity = Literal["input_tokens", "output_tokens", "gap_s"]
Statistic = Literal["mean", "p50", "p99"]
_STATISTICS: tuple[Statistic, ...] = ("mean", "p50", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleError:
    """One figure of a sample and the range in which the whole trace's figure lies with the stated confidence."""

    quantity: Quantity
    statistic: Statistic
    value: float
    low: float
    high: float
    confidence_fraction: float

    @property
    def relative(self) -> float:
        """Half the range as a fraction of the figure."""
        return (self.high - self.low) / 2 / self.value if self.value else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A shorter recording at the same rate, and its errors."""

    recording: Records
    of_requests: int
    stretches: int
    errors: tuple[SampleError, ...]


def sample(
    recording: Recording,
    *,
    requests: int,
    seed: int,
    stretches: int = DEFAULT_STRETCHES,
    confidence_fraction: float = 0.95,
) -> Sample:
    """Take stretches of consecutive requests at random places, without replacement, `requests` in all.

    Within a stretch bursts and shared prefixes stay as they were. Every request keeps the gap to the one before it in
    the recording, so the sample has the recording's rate and gaps and only its duration shrinks. The errors are of a
    cluster sample: they come from the spread between stretches, so what is correlated inside one is not counted twice.
    As many stretches as requests is a plain random sample, which keeps the gaps but not their order. The number of
    requests is rounded down to whole stretches of equal length.
    """
    if not 0 < confidence_fraction < 1:
        raise UsageError(f"a confidence of {confidence_fraction:g} cannot be meant; it is between 0 and 1")
    if not _MIN_STRETCHES <= stretches <= requests <= recording.requests:
        raise UsageError(
            f"cannot take {requests:,} requests in {stretches:,} stretches out of {recording.requests:,}; "
            "it takes 2 or more stretches of 1 or more requests"
        )
    length = requests // stretches
    cells = recording.requests // length
    rng = generator(seed, RandomStream.SAMPLE, 0)
    starts = np.sort(rng.choice(cells, stretches, replace=False)) * length
    columns, gaps_s = _take(recording, (starts[:, None] + np.arange(length)).ravel())
    quantities: dict[Quantity, Float64s] = {
        "input_tokens": columns.input_tokens.astype(np.float64),
        "output_tokens": columns.output_tokens.astype(np.float64),
        "gap_s": gaps_s,
    }
    unseen = 1 - stretches / cells
    errors = [
        _error(quantity, statistic, values.reshape(stretches, length), unseen, confidence_fraction)
        for quantity, values in quantities.items()
        for statistic in _STATISTICS
    ]
    return Sample(
        recording=Records(
            name=f"{recording.name} (sample)", source=recording.source, columns=columns, classes=recording.classes
        ),
        of_requests=recording.requests,
        stretches=stretches,
        errors=tuple(errors),
    )


def _take(recording: Recording, rows: Int64s) -> tuple[Requests, Float64s]:
    """Collect the rows and the gap before each; the recording's first request is given the mean gap."""
    rate = mean_rate_per_s(recording)
    parts, gaps = [], []
    start, before_s = 0, -1 / rate if rate else 0.0
    for block in recording.blocks():
        low, high = np.searchsorted(rows, [start, start + len(block)])
        picked = rows[low:high] - start
        if len(picked):
            parts.append(block.take(picked))
            gaps.append(np.diff(block.arrival_s, prepend=before_s)[picked])
        start, before_s = start + len(block), float(block.arrival_s[-1])
    gaps_s = np.concatenate(gaps)
    return concatenate(parts).at(np.cumsum(gaps_s) - gaps_s[0]), gaps_s


def _error(
    quantity: Quantity,
    statistic: Statistic,
    values: Float64s,
    unseen_fraction: float,
    confidence_fraction: float,
) -> SampleError:
    z = NormalDist().inv_cdf((1 + confidence_fraction) / 2)
    if statistic == "mean":
        value = float(values.mean())
        margin = z * _standard_error(values.mean(axis=1), unseen_fraction)
        low, high = value - margin, value + margin
    else:
        # Woodruff (1952): the error of the fraction below the percentile, read back as percentiles.
        at = {"p50": 0.5, "p99": 0.99}[statistic]
        value = float(np.quantile(values, at, method="inverted_cdf"))
        margin = z * _standard_error((values <= value).mean(axis=1), unseen_fraction)
        low, high = np.quantile(values, [max(0.0, at - margin), min(1.0, at + margin)], method="inverted_cdf")
    return SampleError(
        quantity=quantity,
        statistic=statistic,
        value=value,
        low=float(low),
        high=float(high),
        confidence_fraction=confidence_fraction,
    )


def _standard_error(per_cluster: Float64s, unseen_fraction: float) -> float:
    return float(per_cluster.std(ddof=1)) * sqrt(unseen_fraction / len(per_cluster))
