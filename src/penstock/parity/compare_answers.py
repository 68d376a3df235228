"""Compares the log-probabilities that two servers return for fixed prompts, and derives a verdict.

Each server scores the tokens of the prompts, which tests the weights. Each server then scores the tokens that it
decodes, which tests the KV cache. Kernels of different vendors round differently. Rounding changes each log-probability
a little and never changes a confident choice. A scale that is wrong by a factor of two, a saturated cache or a
misplaced layer changes all log-probabilities by more.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite, sqrt
from typing import Final

PROMPTS: Final = (
    "The capital of France is Paris, and the capital of Italy is Rome. The capital of Spain is",
    "1, 2, 3, 5, 8, 13, 21, 34, 55,",
    "def add(a, b):\n    return a + b\n\n\ndef multiply(a, b):\n    return",
    "Water boils at 100 degrees Celsius at sea level, which in Fahrenheit is",
    "El perro corre por el parque mientras el gato duerme en la",
    "SELECT name, COUNT(*) FROM orders WHERE year = 2024 GROUP BY",
    "Once upon a time there was a miller who had three sons. When he died, the eldest inherited the",
    "import numpy as np\n\nx = np.zeros((3, 4))\nprint(x.",
    "Q: If a train travels 60 kilometres in 40 minutes, how fast is it going?\nA: Forty minutes is two thirds of",
    '{"name": "Ada", "born": 1815, "field": "mathematics", "languages": ["English", "French"',
    "The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy",
    "Die Hauptstadt von Deutschland ist Berlin, und die größte Stadt in Bayern ist",
)
DECODED_TOKENS: Final = 24
TOP_TOKENS: Final = 5

SAME_DRIFT: Final = 0.05
"""Maximum drift (difference between two servers' log-probabilities) that rounding can explain.

With bf16, the kernels of two vendors drift by 1% to 3%.
"""
DIFFERENT_DRIFT: Final = 0.08
"""Drift above which rounding cannot be the cause.

A drift between `SAME_DRIFT` and `DIFFERENT_DRIFT` is inconclusive.
"""
CONFIDENT_NATS: Final = 1.0
"""Minimum lead, in nats, of the most likely token over the second, so that rounding cannot swap the two tokens."""
_FLIPPED_FRACTION: Final = 0.005
_FLIPPED_AT_LEAST: Final = 3
_SMALLEST_SPREAD_NATS: Final = 1e-3
FORMAT: Final = 1


class ProbeVerdict(StrEnum):
    """Verdict on whether two servers compute the same model."""

    SAME = "same"
    DIFFERENT = "different"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"
    """The servers split the same text into different tokens, so their models or tokenizers differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Tokens of one text, their log-probabilities, and the top alternatives at each position."""

    tokens: tuple[str, ...]
    logprobs: tuple[float | None, ...]
    """Log-probability of each token in nats. None if the server gives no value, as for the first token of a prompt."""
    top: tuple[Mapping[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """One server's results for all prompts."""

    model: str
    prompts: tuple[Scored, ...]
    decoded: tuple[Scored, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Result of comparing two servers."""

    verdict: ProbeVerdict
    compared_tokens: int
    prompt_drift: float | None
    """Root mean square difference of the prompts' log-probabilities, divided by the reference's standard deviation."""
    decode_drift: float | None
    """Root mean square difference of the decoded tokens' log-probabilities, with the same divisor as `prompt_drift`.

    Positions after the first token that the servers choose differently do not count. The drift is None if no position
    can be compared.
    """
    median_difference_nats: float | None
    confident_choices: int
    flipped_choices: int
    """Number of positions at which the reference makes a clear choice and the other server chooses another token."""
    reason: str


def digest() -> str:
    """Return a hash of the prompts, which detects reference files that were made with different prompts."""
    return hashlib.sha256("\x00".join(PROMPTS).encode()).hexdigest()[:16]


def compare(reference: Answers, other: Answers) -> Parity:
    """Compare one server's results with the reference."""
    if [scored.tokens for scored in reference.prompts] != [scored.tokens for scored in other.prompts]:
        return _incomparable(
            "the servers split the same text into different tokens, so their models or tokenizers differ"
        )
    pairs = list(_prompt_pairs(reference, other))
    if not pairs:
        return _incomparable("a server returned no log-probabilities for the prompts")
    spread = _spread([first for first, _ in pairs])
    decoded = list(_decode_pairs(reference, other))
    prompt_drift = _rms(first - second for first, second in pairs) / spread
    decode_drift = _rms(first - second for first, second in decoded) / spread if decoded else None
    confident, flipped = _flips(reference, other)
    verdict, reason = _verdict(prompt_drift, decode_drift, confident, flipped)
    differences = sorted(abs(first - second) for first, second in pairs)
    return Parity(
        verdict=verdict,
        compared_tokens=len(pairs) + len(decoded),
        prompt_drift=prompt_drift,
        decode_drift=decode_drift,
        median_difference_nats=differences[len(differences) // 2],
        confident_choices=confident,
        flipped_choices=flipped,
        reason=reason,
    )


def _incomparable(reason: str) -> Parity:
    return Parity(
        verdict=ProbeVerdict.INCOMPARABLE,
        compared_tokens=0,
        prompt_drift=None,
        decode_drift=None,
        median_difference_nats=None,
        confident_choices=0,
        flipped_choices=0,
        reason=reason,
    )


def _prompt_pairs(reference: Answers, other: Answers) -> Iterable[tuple[float, float]]:
    for first, second in zip(reference.prompts, other.prompts, strict=True):
        for left, right in zip(first.logprobs, second.logprobs, strict=True):
            if left is not None and right is not None and isfinite(left) and isfinite(right):
                yield left, right


def _decode_pairs(reference: Answers, other: Answers) -> Iterable[tuple[float, float]]:
    """Yield pairs of log-probabilities for decoded positions up to the first token that the servers choose differently.

    The position of this first different token is included.
    """
    for first, second in zip(reference.decoded, other.decoded, strict=True):
        places = zip(first.tokens, second.tokens, first.top, second.top, strict=False)
        for left, right, left_top, right_top in places:
            yield from _alternatives(left_top, right_top)
            if left != right:
                break


def _alternatives(first: Mapping[str, float], second: Mapping[str, float]) -> Iterable[tuple[float, float]]:
    """Yield pairs of log-probabilities for the tokens that both servers list at one position.

    A token that only the first server lists is paired with the lowest value that the second server lists. A token that
    only the first server lists is left out if its value is not above this lowest value.
    """
    floor = min(second.values(), default=None)
    for token, logprob in first.items():
        if token in second:
            yield logprob, second[token]
        elif floor is not None and logprob > floor:
            yield logprob, floor


def _flips(reference: Answers, other: Answers) -> tuple[int, int]:
    """Return the reference's number of clear choices, and how many of these the other server makes differently."""
    confident = flipped = 0
    for first, second in _places(reference, other):
        ranked = sorted(first.values(), reverse=True)
        if len(ranked) < 2 or ranked[0] - ranked[1] < CONFIDENT_NATS or not second:  # a lead needs two tokens
            continue
        confident += 1
        flipped += max(first, key=lambda token: first[token]) != max(second, key=lambda token: second[token])
    return confident, flipped


def _places(reference: Answers, other: Answers) -> Iterable[tuple[Mapping[str, float], Mapping[str, float]]]:
    for first, second in zip(reference.prompts, other.prompts, strict=True):
        yield from zip(first.top, second.top, strict=False)
    for first, second in zip(reference.decoded, other.decoded, strict=True):
        for left, right, left_top, right_top in zip(first.tokens, second.tokens, first.top, second.top, strict=False):
            yield left_top, right_top
            if left != right:
                break


def _verdict(prompt: float, decode: float | None, confident: int, flipped: int) -> tuple[ProbeVerdict, str]:
    worst = max(prompt, decode or 0.0)
    where = "while decoding" if (decode or 0.0) > prompt else "in the prompts"
    if worst > DIFFERENT_DRIFT:
        cause = "the KV cache or its scales" if prompt <= SAME_DRIFT else "weights, scales or kernels"
        return ProbeVerdict.DIFFERENT, f"drift of {worst:.1%} {where}, more than rounding explains; check {cause}"
    if flipped >= max(_FLIPPED_AT_LEAST, _FLIPPED_FRACTION * confident):
        return ProbeVerdict.DIFFERENT, f"the other server makes {flipped} of {confident} clear choices differently"
    if worst > SAME_DRIFT or flipped:
        return (
            ProbeVerdict.INCONCLUSIVE,
            f"drift of {worst:.1%} {where}, more than bf16 rounding causes but less than errors usually cause",
        )
    return ProbeVerdict.SAME, f"drift of {worst:.1%}, within rounding"


def _rms(differences: Iterable[float]) -> float:
    squares = [difference**2 for difference in differences]
    return sqrt(sum(squares) / len(squares)) if squares else 0.0


def _spread(values: Sequence[float]) -> float:
    """Return the divisor of drifts: the standard deviation of the values, but at least 0.001 nats."""
    mean = sum(values) / len(values)
    return max(_rms(value - mean for value in values), _SMALLEST_SPREAD_NATS)
