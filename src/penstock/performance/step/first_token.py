"""Computes the work of the steps that carry the prompt of one request, and of the average step of a closed loop.

No prompt waits for another prompt here. `prompt_queue` follows a closed loop in which prompts wait.
"""

from dataclasses import dataclass, replace

import numpy as np

from penstock.performance.step.step_work import Array, Load, ReplicaWork, carrying_steps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoopLoad:
    """Closed loop of users. Each user sends the next request when the previous one is answered.

    Arrays have one entry per number of users.
    """

    users: Array
    input_tokens: float
    output_tokens: float
    batched_tokens: float = 8192
    """Maximum number of prompt tokens that the replica processes in one step."""
    drafted_tokens: float = 0.0
    """Speculative tokens verified along with each decoded token of the other requests."""

    def average(self, accepted_tokens: float = 1.0) -> Load:
        """Return the average step of the closed loop.

        If a step yields several tokens per request, a request takes fewer steps, so each step carries more prompt
        tokens.
        """
        inputs, outputs = (np.full_like(self.users, tokens) for tokens in (self.input_tokens, self.output_tokens))
        steps = Load.closed_loop(self.users, inputs, outputs / accepted_tokens, self.batched_tokens)
        return replace(steps, context_tokens=inputs + outputs / 2, drafted_tokens=self.drafted_tokens)


def first_token_work(work: ReplicaWork, loop: LoopLoad) -> Array:
    """Return the work of the steps that carry a prompt alongside all other users, one row per number of users."""
    steps = carrying_steps(np.full_like(loop.users, loop.input_tokens), loop.batched_tokens)
    return np.asarray(steps[:, None] * _carrying(work, loop, loop.users - 1, loop.input_tokens / steps))


def _carrying(work: ReplicaWork, loop: LoopLoad, decodes: Array, prefill_tokens: Array) -> Array:
    """Return the work of one step that carries prompt tokens."""
    one = np.ones_like(decodes)
    return work.roofline(replace(loop.average(), decodes=decodes, prefill_tokens=prefill_tokens, carrying_share=one))


def decode_step(work: ReplicaWork, loop: LoopLoad) -> Array:
    """Return the work of a step without prompt tokens."""
    return work.roofline(replace(loop.average(), prefill_tokens=np.zeros_like(loop.users)))
