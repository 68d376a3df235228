"""Computes latencies and the bottleneck of prefill and decode pools in steady state, from users or a request rate.

The solver and the simulator use the same step costs, so their results agree. The solver takes microseconds and does not
simulate a queue. Many deployments are solved at once. Every array has one entry per deployment and load.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from penstock.performance.step.step_cost import StepCost
from penstock.performance.step.step_work import Array, pairs

HANDOVER_S: Final = 0.05
"""Seconds from the end of a prefill to the start of its transfer, plus seconds from the end of the transfer to
admission. The value is the median over 27 InferenceX runs with 16 users or fewer. The handover time of a run is the
delay of the first token relative to one engine of the same split (0.04 s at 900 prompt tokens, 0.08 s at 7,400;
`shipped_disaggregated.handovers`)."""
_HALVINGS: Final = 48
_ROUNDS: Final = 16
_ALMOST: Final = 1 - 1e-6
_FULL: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoPools:
    """Identical prefill workers, identical decode workers, and one link per prefill worker."""

    prefill: StepCost
    decode: StepCost
    prefill_workers: int
    decode_workers: int
    batched_tokens: int
    """Maximum number of prompt tokens that a prefill worker processes in one step."""
    seats: int
    """Maximum number of requests that a decode worker runs concurrently."""
    transfer_token_s: float = 0.0
    """Seconds for which the link of a prefill worker is busy sending the KV of one token."""
    transfer_start_s: float = HANDOVER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsDemand:
    """Load on both pools: a closed loop of users, or requests per second."""

    input_tokens: float
    output_tokens: float
    users: float | None = None
    requests_per_s: float | None = None

    def __post_init__(self) -> None:
        if (self.users is None) == (self.requests_per_s is None):
            raise ValueError("give either `users` or `requests_per_s`, and not both")


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """Steady state of both pools."""

    requests_per_s: float
    tpot_s: float
    ttft_s: float
    """Seconds until the decode worker returns the first token. Infinite if the request rate exceeds the capacity."""
    served_s: float
    """Part of `ttft_s` spent in steps, in seconds. This time includes the steps of the prompt and the step that yields
    the first token. Waiting and transfer are not included."""
    decoding: float
    """Number of requests in the batch of one decode worker."""
    prefill_busy: float
    """Utilisation of the prefill workers, 0 to 1."""
    bound_by: Literal["prefill", "decode", "users"]
    """The saturated pool, or `users` if neither pool is saturated. If the value is `users`, more users would increase
    the throughput."""


class Columns:
    """Coefficients of many deployments. Each deployment has its own token lengths."""

    def __init__(self, cases: Sequence[tuple[TwoPools, PoolsDemand]]) -> None:
        self.inputs = _array(demand.input_tokens for _, demand in cases)
        self.outputs = _array(demand.output_tokens for _, demand in cases)
        self.prefills = _array(pools.prefill_workers for pools, _ in cases)
        self.decodes = _array(pools.decode_workers for pools, _ in cases)
        self.seats = _array(pools.seats for pools, _ in cases)
        budget = _array(pools.batched_tokens for pools, _ in cases)
        self.parts = np.maximum(1.0, np.ceil(self.inputs / budget))
        """Number of steps per prompt."""
        self.most = np.maximum(1.0, np.floor(budget / self.inputs))
        """Maximum number of prompts per step."""
        self.link_s = _array(pools.transfer_token_s * demand.input_tokens for pools, demand in cases)
        self.start_s = _array(pools.transfer_start_s for pools, _ in cases)
        ahead, after = [pools.prefill for pools, _ in cases], [pools.decode for pools, _ in cases]
        self.ahead, self.after = _Steps(ahead), _Steps(after)
        self.prompt_s = _array(_prompt_s(pools.prefill, demand.input_tokens) for pools, demand in cases)
        self.answer_s = _array(
            _read_s(pools.decode, demand.input_tokens + demand.output_tokens / 2) for pools, demand in cases
        )

    def prefill_step_s(self, prompts: Array) -> Array:
        """Return the seconds of all steps that process `prompts` prompts in one batch."""
        tokens = prompts * self.inputs / self.parts
        return self.parts * self.ahead.fixed_s(tokens) + prompts * self.prompt_s

    def decode_step_s(self, decoding: Array) -> Array:
        """Return the seconds of a decode step with `decoding` requests in its batch."""
        return self.after.fixed_s(decoding) + decoding * self.answer_s

    @property
    def prefill_limit(self) -> Array:
        """Return the request rate, per second, at which prefill steps or links saturate."""
        steps = self.most / self.prefill_step_s(self.most)
        links = 1 / np.maximum(self.link_s, 1e-12)
        return self.prefills * np.minimum(steps, links)

    @property
    def decode_limit(self) -> Array:
        """Return the request rate, per second, at which decode steps saturate."""
        return self.decodes * self.seats / (self.outputs * self.decode_step_s(self.seats))

    def prefilling_s(self, rate: Array) -> tuple[Array, Array]:
        """Return the seconds that a prompt waits for a worker at a request rate, and the seconds of the prompt's steps.

        Prompts that arrive during a step are batched in the next step. So a step becomes larger with the request rate,
        until it reaches the token budget. At higher rates a queue forms in front of all workers. The wait in the
        prefill queue is computed with Sakasegawa's formula for constant service times. The exponent of the utilisation
        is one larger than in Sakasegawa's formula, because a closed loop sends fewer requests while requests wait.
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
        """Return the number of requests in the batch of one decode worker at a request rate."""
        low, high = np.zeros_like(rate), self.seats.copy()
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            more = self.decodes * middle < rate * self.outputs * self.decode_step_s(middle)
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        return high

    def first_token_s(self, rate: Array, decode_s: Array) -> tuple[Array, Array]:
        """Return the time to first token, and the part of this time that is spent in steps, both in seconds.

        The time to first token includes the wait for a prefill worker, the prefill, the transfer, the wait for the end
        of a decode step, and the step that yields the first token.
        """
        waited_s, prefill_s = self.prefilling_s(rate)
        served_s = prefill_s + decode_s
        return waited_s + self.link_s + self.start_s + decode_s / 2 + served_s, served_s


class _Steps:
    """The part of the step time that does not depend on context lengths."""

    def __init__(self, costs: Sequence[StepCost]) -> None:
        self.step_s, self.expert_s = _array(c.step_s for c in costs), _array(c.expert_s for c in costs)
        self.expert_miss = _array(c.expert_miss for c in costs)

    def fixed_s(self, tokens: Array) -> Array:
        return self.step_s + self.expert_s * (1 - self.expert_miss**tokens)


def steady(cases: Sequence[tuple[TwoPools, PoolsDemand]]) -> list[Steady]:
    """Return the steady state of each deployment under its demand."""
    columns = Columns(cases)
    limit = np.minimum(columns.prefill_limit * _ALMOST, columns.decode_limit)
    users = _array(demand.users or np.inf for _, demand in cases)
    asked = _array(demand.requests_per_s or np.inf for _, demand in cases)
    closed = np.isinf(asked)
    rate = (
        np.where(closed, _closed_loop_rate(columns, limit, np.where(closed, users, 1.0)), asked)
        if closed.any()
        else asked
    )
    served = np.minimum(rate, limit)
    decoding = columns.decoding(served)
    step_s = columns.decode_step_s(decoding)
    ttft_s, served_s = columns.first_token_s(served, step_s)
    ttft_s = np.where(closed | (asked <= limit), ttft_s, np.inf)
    # A user who is not decoding waits for a first token, so the users determine the length of the queue.
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


def _closed_loop_rate(columns: Columns, limit: Array, users: Array) -> Array:
    """Return the request rate at which the number of requests in the deployment equals the number of users.

    The rate is found by bisection over the number of decoding requests.
    """
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
    """Return the seconds that one whole prompt adds to the steps that process it."""
    attention = sum(
        s * float(pairs(np.array([tokens]), limit)[0]) for s, limit in zip(cost.pair_s, cost.limits, strict=True)
    )
    return tokens * cost.prefill_token_s + attention


def _read_s(cost: StepCost, context: float) -> float:
    """Return the seconds that one decoding request adds to a step."""
    return cost.decode_s + sum(s * min(context, limit) for s, limit in zip(cost.context_s, cost.limits, strict=True))
