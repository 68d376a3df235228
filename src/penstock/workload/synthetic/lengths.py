"""Draws prompt and answer lengths: fixed, from a distribution, or as pairs from a trace."""

from dataclasses import dataclass
from math import log
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import UsageError
from penstock.workload.requests import MAX_TOKENS, Float64s, Int32s, Uint8s

_ANSWER_SPREAD: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """The same lengths for every request."""

    input_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        _require_tokens(self.input_tokens, self.output_tokens)

    def draw(self, _rng: np.random.Generator, count: int) -> tuple[Int32s, Int32s]:
        """Return the prompt and answer lengths of `count` requests."""
        return np.full(count, self.input_tokens, np.int32), np.full(count, self.output_tokens, np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """Uniform lengths between two bounds, both included; prompts and answers are independent."""

    input_low_tokens: int
    input_high_tokens: int
    output_low_tokens: int
    output_high_tokens: int

    def __post_init__(self) -> None:
        _require_tokens(self.input_low_tokens, self.input_high_tokens, self.output_low_tokens, self.output_high_tokens)
        if self.input_low_tokens > self.input_high_tokens or self.output_low_tokens > self.output_high_tokens:
            raise UsageError("the shortest length is above the longest length; swap the two lengths")

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Int32s, Int32s]:
        """Return the prompt and answer lengths of `count` requests."""
        return (
            rng.integers(self.input_low_tokens, self.input_high_tokens, count, np.int32, endpoint=True),
            rng.integers(self.output_low_tokens, self.output_high_tokens, count, np.int32, endpoint=True),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormal:
    """Log-normal lengths of prompts and answers; `correlation` is the correlation of their logarithms."""

    input_median_tokens: float
    input_sigma: float
    """Standard deviation of the logarithm of the prompt length."""
    output_median_tokens: float
    output_sigma: float
    correlation: float = 0.0
    max_input_tokens: int = MAX_TOKENS
    """Maximum prompt length; longer draws are cut to this length, because a service refuses longer prompts."""
    max_output_tokens: int = MAX_TOKENS

    def __post_init__(self) -> None:
        _require_tokens(self.max_input_tokens, self.max_output_tokens)
        if not (0 < self.input_median_tokens < np.inf and 0 < self.output_median_tokens < np.inf):
            raise UsageError("the median length of prompts and of answers must be above 0 tokens")
        if not (0 <= self.input_sigma < np.inf and 0 <= self.output_sigma < np.inf and abs(self.correlation) <= 1):
            raise UsageError("log-normal lengths need a sigma of 0 or more and a correlation from -1 to 1")

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Int32s, Int32s]:
        """Return the prompt and answer lengths of `count` requests."""
        first, second = rng.standard_normal((2, count))
        if self.correlation:
            second = self.correlation * first + np.sqrt(1 - self.correlation**2) * second
        return (
            _tokens(self.input_median_tokens, self.input_sigma, first, self.max_input_tokens),
            _tokens(self.output_median_tokens, self.output_sigma, second, self.max_output_tokens),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Empirical:
    """Observed pairs of prompt and answer lengths, drawn with replacement.

    Drawn lengths have the distribution of the trace, including the correlation between prompts and answers.
    """

    input_tokens: Int32s
    output_tokens: Int32s
    slo_class: Uint8s | None = None
    """SLO class of each pair; None if classes and lengths are drawn independently."""

    def __post_init__(self) -> None:
        if not len(self.input_tokens) or len(self.input_tokens) != len(self.output_tokens):
            raise UsageError("observed lengths must be pairs of a prompt and an answer, and at least one pair")
        for column in (self.input_tokens, self.output_tokens):
            _require_tokens(int(column.min()), int(column.max()))

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Int32s, Int32s]:
        """Return the prompt and answer lengths of `count` requests."""
        picked = self._pick_lengths(rng, count)
        return self.input_tokens[picked], self.output_tokens[picked]

    def draw_classes(self, rng: np.random.Generator, count: int) -> Uint8s | None:
        """Return the SLO classes of the requests that `draw` returns with an equal generator; None without classes."""
        return None if self.slo_class is None else self.slo_class[self._pick_lengths(rng, count)]

    def _pick_lengths(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        return rng.integers(len(self.input_tokens), size=count)


def draw_as_benchmarks(input_tokens: int, output_tokens: int, spread: float) -> Uniform:
    """Return lengths drawn evenly around their means; `spread` is the largest relative deviation.

    In a closed loop with equal lengths, requests that start together end together, and their successors wait for each
    other. Benchmarks avoid that by drawing lengths, and predictions are of such benchmarks.
    """
    (input_low, input_high), (output_low, output_high) = (
        (max(1, round(mean * (1 - spread))), min(MAX_TOKENS, max(1, round(mean * (1 + spread)))))
        for mean in (input_tokens, output_tokens)
    )
    return Uniform(
        input_low_tokens=input_low,
        input_high_tokens=input_high,
        output_low_tokens=output_low,
        output_high_tokens=output_high,
    )


def vary_answers(input_tokens: int, output_tokens: int, count: int, *, context_tokens: int | None) -> Empirical:
    """Return `count` requests whose answers vary evenly by 10% around their mean; no request exceeds the context.

    If all answers were equally long, requests that are prefilled together would end in the same step, and a router that
    counts requests would send the whole next burst to the replica that became free. Real traffic is less regular.
    """
    outputs = np.round(max(1, output_tokens) * (1 + _ANSWER_SPREAD * np.linspace(-1, 1, count)))
    most = max(output_tokens, (context_tokens or MAX_TOKENS) - input_tokens)
    return Empirical(
        input_tokens=np.full(count, input_tokens, np.int32),
        output_tokens=np.clip(outputs, 1, most).astype(np.int32),
    )


Lengths = Fixed | Uniform | LogNormal | Empirical


def _tokens(median: float, sigma: float, normal: Float64s, max_tokens: int) -> Int32s:
    # Cut before the exponential: a wide sigma must saturate, not overflow.
    logarithm = np.minimum(log(median) + sigma * normal, log(max_tokens))
    tokens: Int32s = np.clip(np.rint(np.exp(logarithm)), 1, max_tokens).astype(np.int32)
    return tokens


def _require_tokens(*counts: int) -> None:
    for count in counts:
        if not 1 <= count <= MAX_TOKENS:
            raise UsageError(f"a length of {count:,} tokens is out of range; write 1 to {MAX_TOKENS:,}")
