"""What do prefill and decode pools do together, in the long run? Users or a rate in, times and the tighter pool out.

The same step costs the simulator runs on, so that both answer alike; this one takes microseconds and has no queue of
its own to draw. Many deployments are solved at once: every array has one entry per deployment and load.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from penstock.performance.step.step_cost import StepCost
from penstock.performance.step.step_work import Array, pairs

HANDOVER_S: Final = 0.05
"""Seconds from the end of a prefill to the start of its transfer and from its end to a seat. How much later a first
token comes than from one engine of the same split at 16 users or fewer: 0.05 s, the median over 27 InferenceX runs
(0.04 s at 900 prompt tokens, 0.08 s at 7,400; `benchmark.disaggregated.handovers`)."""
_HALVINGS: Final = 48
_ROUNDS: Final = 16
_ALMOST: Final = 1 - 1e-6
_FULL: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoPools:
    """Equal workers that only prefill, equal workers that only decode, and a link for each of the first."""

    prefill: StepCost
    decode: StepCost
    prefill_workers: int
    decode_workers: int
    batched_tokens: int
    """Prompt tokens a prefill worker takes in one step."""
    seats: int
    """Requests a decode worker runs together."""
    transfer_token_s: float = 0.0
    """Seconds a prefill worker's link is busy with one token's KV."""
    transfer_start_s: float = HANDOVER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsDemand:
    """What is asked of them: a closed loop of users, or requests a second."""

    input_tokens: float
    output_tokens: float
    users: float | None = None
    requests_per_s: float | None = None

    def __post_init__(self) -> None:
        if (self.users is None) == (self.requests_per_s is None):
            raise ValueError("either users or a rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """What they do in the long run."""

    requests_per_s: float
    tpot_s: float
    ttft_s: float
    """Until the decode worker gives the first token; without end where a rate is more than they can serve."""
    served_s: float
    """Of that, steps: those of the prompt and the one with the first token, no waiting and no transfer."""
    decoding: float
    """Requests in a decode worker's step."""
    prefill_busy: float
    """Share of what the prefill workers could do."""
    bound_by: Literal["prefill", "decode", "users"]
    """The pool that is full, or neither: then more users get more."""


class Columns:
    """Coefficients of many deployments, each at its lengths."""

    def __init__(self, cases: Sequence[tuple[TwoPools, PoolsDemand]]) -> None:
        self.inputs = _array(demand.input_tokens for _, demand in cases)
        self.outputs = _array(demand.output_tokens for _, demand in cases)
        self.prefills = _array(pools.prefill_workers for pools, _ in cases)
        self.decodes = _array(pools.decode_workers for pools, _ in cases)
        self.seats = _array(pools.seats for pools, _ in cases)
        budget = _array(pools.batched_tokens for pools, _ in cases)
        self.parts = np.maximum(1.0, np.ceil(self.inputs / budget))
        """Steps one prompt takes."""
        self.most = np.maximum(1.0, np.floor(budget / self.inputs))
        """Prompts of one step."""
        self.link_s = _array(pools.transfer_token_s * demand.input_tokens for pools, demand in cases)
        self.start_s = _array(pools.transfer_start_s for pools, _ in cases)
        ahead, after = [pools.prefill for pools, _ in cases], [pools.decode for pools, _ in cases]
        self.ahead, self.after = _Steps(ahead), _Steps(after)
        self.prompt_s = _array(_prompt_s(pools.prefill, demand.input_tokens) for pools, demand in cases)
        self.answer_s = _array(
            _read_s(pools.decode, demand.input_tokens + demand.output_tokens / 2) for pools, demand in cases
        )

    def prefill_step_s(self, prompts: Array) -> Array:
        """Time of the steps that take so many prompts together from beginning to end."""
        tokens = prompts * self.inputs / self.parts
        return self.parts * self.ahead.fixed_s(tokens) + prompts * self.prompt_s

    def decode_step_s(self, decoding: Array) -> Array:
        """Time of a step with so many requests."""
        return self.after.fixed_s(decoding) + decoding * self.answer_s

    @property
    def prefill_limit(self) -> Array:
        """Requests a second that full prefill steps allow, or full links."""
        steps = self.most / self.prefill_step_s(self.most)
        links = 1 / np.maximum(self.link_s, 1e-12)
        return self.prefills * np.minimum(steps, links)

    @property
    def decode_limit(self) -> Array:
        """Requests a second that full decode steps allow."""
        return self.decodes * self.seats / (self.outputs * self.decode_step_s(self.seats))

    def prefilling_s(self, rate: Array) -> tuple[Array, Array]:
        """Time a prompt waits for a worker at a rate, and that of its steps.

        What came during a step is taken in the next one together, so steps grow with the rate up to the budget.
        Beyond that a queue forms in front of all workers, with constant service (Sakasegawa's formula, with one more
        power of the load because a closed loop sends less when its requests wait).
        """
        each, together = rate / self.prefills, np.ones_like(rate)
        for _ in range(_ROUNDS):
            together = np.clip(each * self.prefill_step_s(together), 1.0, self.most)
        step_s, full_s = self.prefill_step_s(together), self.prefill_step_s(self.most)
        busy = np.minimum(1.0, each * step_s / together)
        load = np.minimum(rate / self.prefill_limit, _ALMOST)
        with_load_spike = load ** np.sqrt(2 * (self.prefills + 1)) / (1 - load)
        queued_s = full_s / self.most / self.prefills * with_load_spike / 2
        return np.where(self.most > 1, busy * step_s / 2, 0.0) + queued_s, step_s

    def decoding(self, rate: Array) -> Array:
        """Requests in a decode worker's step at a rate: those whose answers are being written."""
        low, high = np.zeros_like(rate), self.seats.copy()
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            more = self.decodes * middle < rate * self.outputs * self.decode_step_s(middle)
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        return high

    def first_token_s(self, rate: Array, decode_s: Array) -> tuple[Array, Array]:
        """Waiting for a prefill worker and for the end of a decode step; prefill, transfer and the step with the token.

        The second is the part that is steps.
        """
        waited_s, prefill_s = self.prefilling_s(rate)
        served_s = prefill_s + decode_s
        return waited_s + self.link_s + self.start_s + decode_s / 2 + served_s, served_s


class _Steps:
    """What a step takes whatever the contexts in it."""

    def __init__(self, costs: Sequence[StepCost]) -> None:
        self.step_s, self.expert_s = _array(c.step_s for c in costs), _array(c.expert_s for c in costs)
        self.expert_miss = _array(c.expert_miss for c in costs)

    def fixed_s(self, tokens: Array) -> Array:
        return self.step_s + self.expert_s * (1 - self.expert_miss**tokens)


def steady(cases: Sequence[tuple[TwoPools, PoolsDemand]]) -> list[Steady]:
    """Solve each deployment under its demand."""
    columns = Columns(cases)
    limit = np.minimum(columns.prefill_limit * _ALMOST, columns.decode_limit)
    users = _array(demand.users or np.inf for _, demand in cases)
    asked = _array(demand.requests_per_s or np.inf for _, demand in cases)
    closed = np.isinf(asked)
    rate = np.where(closed, _closed(columns, limit, np.where(closed, users, 1.0)), asked) if closed.any() else asked
    served = np.minimum(rate, limit)
    decoding = columns.decoding(served)
    step_s = columns.decode_step_s(decoding)
    ttft_s, served_s = columns.first_token_s(served, step_s)
    ttft_s = np.where(closed | (asked <= limit), ttft_s, np.inf)
    # Whoever is not decoding waits for a first token: the queue is as long as the users make it.
    ttft_s = np.where(np.isinf(users), ttft_s, users / served - (columns.outputs - 1) * step_s)
    full = columns.prefill_limit <= columns.decode_limit
    return [
        Steady(
            requests_per_s=float(served[n]),
            tpot_s=float(step_s[n]),
            ttft_s=float(ttft_s[n]),
            served_s=float(served_s[n]),
            decoding=float(decoding[n]),
            prefill_busy=float(served[n] / columns.prefill_limit[n]),
            bound_by="users" if served[n] < _FULL * limit[n] else ("prefill" if full[n] else "decode"),
        )
        for n in range(len(cases))
    ]


def _closed(columns: Columns, limit: Array, users: Array) -> Array:
    """The rate at which those in the deployment are as many as the users, sought by how many decode."""
    low, high = np.zeros_like(limit), columns.seats.copy()
    for _ in range(_HALVINGS):
        decoding = (low + high) / 2
        step_s = columns.decode_step_s(decoding)
        rate = columns.decodes * decoding / (columns.outputs * step_s)
        first_s, _ = columns.first_token_s(np.minimum(rate, limit), step_s)
        fewer = (rate < limit) & (rate * (first_s + (columns.outputs - 1) * step_s) < users)
        low, high = np.where(fewer, decoding, low), np.where(fewer, high, decoding)
    return columns.decodes * high / (columns.outputs * columns.decode_step_s(high))


def _array(values: Iterable[float]) -> Array:
    return np.array(list(values), np.float64)


def _prompt_s(cost: StepCost, tokens: float) -> float:
    """Seconds a whole prompt adds to the steps that carry it."""
    attention = sum(
        s * float(pairs(np.array([tokens]), limit)[0]) for s, limit in zip(cost.pair_s, cost.limits, strict=True)
    )
    return tokens * cost.prefill_token_s + attention


def _read_s(cost: StepCost, context: float) -> float:
    """Seconds a decoding request adds to a step."""
    return cost.decode_s + sum(s * min(context, limit) for s, limit in zip(cost.context_s, cost.limits, strict=True))
