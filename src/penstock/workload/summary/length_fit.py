"""Fits distributions to the lengths of a trace, and measures how far each fit is from the trace."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import NormalDist

import numpy as np

from penstock.errors import UsageError
from penstock.workload.randomness import RandomStream, generator
from penstock.workload.recorded.recording import CountProgress, Recording, with_progress
from penstock.workload.requests import Float64s, Requests, concatenate
from penstock.workload.summary.histogram import TokenHistogram, no_tokens
from penstock.workload.synthetic.lengths import Empirical, LogNormal

MAX_PAIRS = 1_000_000
"""Maximum number of length pairs kept from a trace. With a million pairs, a percentile is off by at most 0.1% of
requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormalFit:
    """A log-normal distribution fitted to a trace, and its distance from the trace."""

    lengths: LogNormal
    requests: int
    input_distance: float
    """Kolmogorov-Smirnov distance of prompt lengths between the trace and the fit.

    This distance is the largest difference between the two cumulative distributions at any length.
    """
    output_distance: float

    @property
    def critical_distance(self) -> float:
        """Distance that a random sample of the fitted distribution would exceed with 5% probability (Massey 1951)."""
        return min(1.0, 1.358 / sqrt(self.requests))

    @property
    def close(self) -> bool:
        """Whether the distances of prompt and answer lengths are both small enough to be due to chance."""
        return max(self.input_distance, self.output_distance) <= self.critical_distance

    def __str__(self) -> str:
        return (
            f"misplaces up to {self.input_distance:.1%} of prompts and {self.output_distance:.1%} of "
            f"answers, chance alone {self.critical_distance:.1%} of {self.requests:,}: "
            + ("as close as chance allows" if self.close else "the trace follows another shape; use its own lengths")
        )


def fit_log_normal(recording: Recording, *, progress: CountProgress | None = None) -> LogNormalFit:
    """Fit a log-normal distribution in one pass and bounded memory.

    The fit uses the moments of the log lengths, which is the maximum-likelihood estimate.
    """
    inputs, outputs, products = no_tokens(), no_tokens(), 0.0
    for block in with_progress(recording.blocks(), progress):
        inputs, outputs = inputs.with_column(block.input_tokens), outputs.with_column(block.output_tokens)
        products += float(np.log(block.input_tokens) @ np.log(block.output_tokens))
    if not inputs.count:
        raise UsageError(f"'{recording.name}' has no requests, so lengths cannot be fitted")
    input_mean, input_sigma = _log_moments(inputs)
    output_mean, output_sigma = _log_moments(outputs)
    covariance = products / inputs.count - input_mean * output_mean
    spread = input_sigma * output_sigma
    lengths = LogNormal(
        input_median_tokens=exp(input_mean),
        input_sigma=input_sigma,
        output_median_tokens=exp(output_mean),
        output_sigma=output_sigma,
        correlation=min(1.0, max(-1.0, covariance / spread)) if spread else 0.0,
        max_input_tokens=int(inputs.tokens[-1]),
        max_output_tokens=int(outputs.tokens[-1]),
    )
    return LogNormalFit(
        lengths=lengths,
        requests=inputs.count,
        input_distance=_distance(inputs, input_mean, input_sigma),
        output_distance=_distance(outputs, output_mean, output_sigma),
    )


def fit_empirical(recording: Recording, *, seed: int = 0) -> Empirical:
    """Return the pairs of lengths in a trace, or a random sample if there are more than a million pairs."""
    blocks = recording.blocks() if recording.requests <= MAX_PAIRS else _sample(recording, seed)
    columns = concatenate(list(blocks))
    return Empirical(input_tokens=columns.input_tokens, output_tokens=columns.output_tokens)


def _sample(recording: Recording, seed: int) -> Iterator[Requests]:
    picked = generator(seed, RandomStream.SAMPLE, 0).choice(recording.requests, MAX_PAIRS, replace=False)
    kept = np.zeros(recording.requests, np.bool_)
    kept[picked] = True
    start = 0
    for block in recording.blocks():
        yield block.take(np.flatnonzero(kept[start : start + len(block)]))
        start += len(block)


def _log_moments(histogram: TokenHistogram) -> tuple[float, float]:
    logarithms, weights = np.log(histogram.tokens), histogram.requests / histogram.count
    mean = float(logarithms @ weights)
    return mean, sqrt(float((logarithms - mean) ** 2 @ weights))


def _distance(histogram: TokenHistogram, mean: float, sigma: float) -> float:
    """Return the distance between observed lengths and lengths drawn from the fitted distribution.

    Drawn lengths are rounded, at least 1, and at most the longest observed length.
    """
    if not sigma:
        return 0.0
    seen = histogram.cumulative()
    fitted = _log_normal_cdf(histogram.tokens, mean, sigma)
    before = _log_normal_cdf(histogram.tokens - 1, mean, sigma)  # the observed fraction just below a length
    fitted[-1] = 1.0
    return float(max(np.abs(fitted - seen).max(), np.abs(before - np.concatenate([[0.0], seen[:-1]])).max()))


def _log_normal_cdf(tokens: np.ndarray, mean: float, sigma: float) -> Float64s:
    normal = NormalDist(mean, sigma)
    return np.array([normal.cdf(log(count + 0.5)) if count >= 1 else 0.0 for count in tokens.tolist()])
