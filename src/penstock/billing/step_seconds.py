"""Computes the step seconds that a request causes on its replica.

The coefficients are those of an endpoint record, which simulator and routing policy use.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import UsageError
from penstock.routing.records import Record, Records

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWork:
    """Tokens of one request: prompt, the part of the prompt that was cached, and answer."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        if self.input_tokens < 0 or self.output_tokens < 0 or not 0 <= self.cached_tokens <= self.input_tokens:
            raise UsageError("a request has at least 0 tokens, and no more cached tokens than its prompt has")


TOKEN_WORK: Final = np.dtype([(one.name, "i8") for one in fields(TokenWork)])


def token_work(works: Iterable[TokenWork]) -> Records:
    """Return the work of requests as an array of `TOKEN_WORK`."""
    return np.array([(one.input_tokens, one.cached_tokens, one.output_tokens) for one in works], TOKEN_WORK)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeconds:
    """Seconds that each request adds to its replica's steps, and the number of steps in which it takes part."""

    prefill_s: Floats
    """Seconds to compute the part of the prompt that was not cached."""
    decode_s: Floats
    """Seconds that the answer's tokens add to their steps, whatever the length of the context."""
    residency_s: Floats
    """Seconds to read the request's own KV cache in each decode step."""
    credited_s: Floats
    """Prefill seconds that the cached prefix saved. They are not charged."""
    steps: NDArray[np.int64]

    @property
    def own_s(self) -> Floats:
        """All seconds that a request adds to its replica's steps."""
        return self.prefill_s + self.decode_s + self.residency_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCoefficients:
    """Seconds of one replica's steps: a fixed part, and what each token adds."""

    step_s: float = 0.0
    """Fixed seconds of any step, which its requests share."""
    expert_s: float = 0.0
    """Seconds to read all experts, which the requests of a step share."""
    expert_miss: float = 0.0
    """Probability that one token does not visit a given expert."""
    prompt_token_s: float
    prompt_pair_s: float = 0.0
    """Seconds per pair of a prompt token and a token that it attends to."""
    sequence_s: float
    """Seconds that a decoding request adds to a step."""
    context_token_s: float
    """Seconds that a token of context of a decoding request adds to a step."""
    step_tokens: int
    """Tokens of the largest step."""
    prefill_correction: float = 1.0
    """Observed over predicted seconds of prompts."""
    decode_correction: float = 1.0
    """Observed over predicted seconds of decode steps."""

    @staticmethod
    def of(endpoint: Record) -> "StepCoefficients":
        """Return the coefficients of an endpoint record, with its learned corrections."""
        return StepCoefficients(
            step_s=float(endpoint["step_s"]),
            expert_s=float(endpoint["expert_s"]),
            expert_miss=float(endpoint["expert_miss"]),
            prompt_token_s=float(endpoint["prompt_token_s"]),
            prompt_pair_s=float(endpoint["prompt_pair_s"]),
            sequence_s=float(endpoint["sequence_s"]),
            context_token_s=float(endpoint["context_token_s"]),
            step_tokens=int(endpoint["step_tokens"]),
            prefill_correction=float(endpoint["prefill_correction"]),
            decode_correction=float(endpoint["decode_correction"]),
        )

    def step_seconds(self, work: Records) -> StepSeconds:
        """Return the seconds that requests, given as `TOKEN_WORK`, add to the steps in which they take part.

        The last step of the prompt yields the first token, so `n` tokens take `n - 1` decode steps. A decode step reads
        the tokens that were computed before it.
        """
        inputs, cached = work["input_tokens"], work["cached_tokens"]
        decodes = np.maximum(0, work["output_tokens"] - 1)
        contexts = decodes * inputs + decodes * (decodes - 1) / 2
        return StepSeconds(
            prefill_s=self._prompt_s(cached, inputs),
            decode_s=self.decode_correction * decodes * self.sequence_s,
            residency_s=self.decode_correction * contexts * self.context_token_s,
            credited_s=self._prompt_s(np.zeros_like(cached), cached),
            steps=np.maximum(1, -(-(inputs - cached) // self.step_tokens)) + decodes,
        )

    def shared_step_s(self, mean_batch: float) -> float:
        """Return the seconds of a decode step that its requests share, for a mean number of requests per step."""
        experts_s = self.expert_s * (1.0 - self.expert_miss**mean_batch)
        return float(self.decode_correction * (self.step_s + experts_s))

    def _prompt_s(self, start: NDArray[np.int64], stop: NDArray[np.int64]) -> Floats:
        tokens, pairs = stop - start, 0.5 * (stop * stop - start * start)
        return self.prefill_correction * (tokens * self.prompt_token_s + pairs * self.prompt_pair_s)
