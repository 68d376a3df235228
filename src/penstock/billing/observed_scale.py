"""Scales predicted step seconds so that they explain the decode times that the gateway has observed.

While an answer is decoded, its replica computes one step per token. These steps also contain the other requests: their
decode tokens, and the prompts whose first token came meanwhile. So the observed time of an answer is a sum of three
parts: the fixed part of its steps, the own seconds of all decodes in that time, and the prompts in that time. Answers
with different parts tell three factors apart. Factors start from 1, so few answers move them little.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.billing.step_seconds import Floats, StepCoefficients, StepSeconds

_MIN_STEPS: Final = 16
"""Decode steps below which an answer says little, because single steps differ."""
_NOISE: Final = 0.2
"""Standard deviation of the observed time of an answer, relative to the time."""
_PRIOR: Final = (3.0, 0.5, 0.5)
"""Standard deviations of the factors on fixed, decode and prompt seconds, before anything is observed."""
_LOWEST, _HIGHEST = 0.2, 5.0
_PASSES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedAnswers:
    """Times of answers at their replicas, as columns, and the seconds that they were predicted to add to steps."""

    endpoint: Sequence[str]
    sent_s: Floats
    first_s: Floats
    """Times of the first tokens; NaN for an answer that was not a stream."""
    ended_s: Floats
    predicted: StepSeconds

    @property
    def decode_begun_s(self) -> Floats:
        """Times of the first tokens, as predicted where they were not seen."""
        predicted_s = np.minimum(self.sent_s + self.predicted.prefill_s, self.ended_s)
        return np.where(np.isnan(self.first_s), predicted_s, self.first_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedScale:
    """Factors on predicted seconds."""

    prefill: float = 1.0
    decode: float = 1.0


def correct_coefficients(
    coefficients: StepCoefficients, answers: ObservedAnswers, mean_batch: float
) -> StepCoefficients:
    """Return a pool's coefficients with the corrections that explain the decode times of its answers."""
    scale = observed_scale(answers, coefficients.shared_step_s(mean_batch))
    return replace(
        coefficients,
        prefill_correction=coefficients.prefill_correction * scale.prefill,
        decode_correction=coefficients.decode_correction * scale.decode,
    )


def observed_scale(answers: ObservedAnswers, step_s: float) -> ObservedScale:
    """Return the factors that explain the decode times of a pool. `step_s` is the predicted fixed part of a step.

    When a prompt was computed follows from its first token and its own seconds, so the factors are found in passes.
    """
    names, numbers = np.unique(np.array(answers.endpoint, str), return_inverse=True)
    scale = ObservedScale()
    for _ in range(_PASSES):
        parts = [_parts(answers, np.flatnonzero(numbers == at), step_s, scale.prefill) for at in range(len(names))]
        scale = _fit(parts)
    return scale


def _fit(parts: Sequence[Floats]) -> ObservedScale:
    """Return the factors for which the parts of each observed time add up to 1, with least squares and a prior."""
    prior = 1.0 / np.array(_PRIOR)
    rows = np.vstack([np.diag(prior), *(part / _NOISE for part in parts)])
    wanted = np.concatenate([prior, *(np.full(len(part), 1.0 / _NOISE) for part in parts)])
    _, decode, prefill = np.clip(np.linalg.lstsq(rows, wanted, rcond=None)[0], _LOWEST, _HIGHEST)
    return ObservedScale(prefill=float(prefill), decode=float(decode))


def _parts(answers: ObservedAnswers, mine: NDArray[np.intp], step_s: float, prefill: float) -> Floats:
    """Return fixed, decode and prompt seconds of each long answer of one replica, relative to its observed time."""
    predicted = answers.predicted
    first_s, ended_s = answers.decode_begun_s[mine], answers.ended_s[mine]
    prompt_s, own_s = predicted.prefill_s[mine], (predicted.decode_s + predicted.residency_s)[mine]
    steps, seen = predicted.steps[mine] - 1, ~np.isnan(answers.first_s[mine])
    long = np.flatnonzero(seen & (steps >= _MIN_STEPS) & (ended_s > first_s))
    spans = (first_s[long], ended_s[long])
    prompt_begun_s = first_s - prefill * prompt_s
    prompts = _inside(prompt_begun_s, first_s, prompt_s, *spans)
    rest_s = _without_prompts(prompt_begun_s, first_s)
    decodes = _inside(rest_s(first_s), rest_s(ended_s), own_s, *(rest_s(at_s) for at_s in spans))
    parts = np.column_stack([steps[long] * step_s, decodes, prompts])
    relative: Floats = parts / (ended_s - first_s)[long, None]
    return relative


def _without_prompts(start_s: Floats, stop_s: Floats) -> Callable[..., Floats]:
    """Return a clock that stands while a prompt is computed. Tokens of a decode are evenly apart on this clock."""
    at_s = np.sort(np.concatenate([start_s, stop_s]))
    open_prompts = np.searchsorted(np.sort(start_s), at_s, "right") - np.searchsorted(np.sort(stop_s), at_s, "right")
    rest_s = np.concatenate([[0.0], np.cumsum(np.diff(at_s) * (open_prompts[:-1] == 0))])
    return lambda asked_s: np.interp(asked_s, at_s, rest_s) + np.maximum(0.0, asked_s - at_s[-1])


def _inside(
    start_s: Floats,
    stop_s: Floats,
    amount: Floats,
    from_s: Floats,
    to_s: Floats,
) -> Floats:
    """Return how much of all amounts lies in each span of time, if each amount is spread evenly over its own time."""
    rate = amount / np.maximum(stop_s - start_s, 1e-9)
    at_s = np.concatenate([start_s, start_s + np.maximum(stop_s - start_s, 1e-9)])
    order = np.argsort(at_s, kind="stable")
    at_s, change = at_s[order], np.concatenate([rate, -rate])[order]
    done = np.concatenate([[0.0], np.cumsum(np.cumsum(change)[:-1] * np.diff(at_s))])
    inside: Floats = np.interp(to_s, at_s, done) - np.interp(from_s, at_s, done)
    return inside
