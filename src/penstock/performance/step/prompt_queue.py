"""Follows one engine through a closed loop of users in which prompts wait for prompts.

All users send their first prompt at once. Each user sends the next prompt when the previous answer is complete. The
steps are those of `step_cost`, and every decoding request has the mean context length, so a run takes milliseconds. The
simulator follows the same loop with the real content of every step, and both agree.
"""

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import Final

import numpy as np

from penstock.performance.step.step_cost import StepCost
from penstock.performance.step.step_work import Array

_INPUT_STRIDE, _OUTPUT_STRIDE = 2**0.5 - 1, (5**0.5 - 1) / 2
"""Irrational strides. Their multiples, without the integer part, are spread evenly between 0 and 1."""
DRAWN: Final = 1 / 9
"""Largest deviation of a length from the mean in InferenceX, which draws 80 to 100% of the nominal length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLoop:
    """A benchmark run: users who all start at once, and the limits of the engine that serves them."""

    users: int
    input_tokens: float
    output_tokens: float
    batched_tokens: float = 8192
    """Maximum number of tokens that the engine processes in one step."""
    seats: float = inf
    """Maximum number of requests that the engine runs at once. Further requests wait for admission."""
    requests_per_user: int = 10
    length_spread: float = DRAWN
    """Largest deviation of a length from its mean, as a fraction of the mean. If it is zero, users stay in step with
    each other, and each of their prompts waits like the first one."""
    prompts_first: bool = False
    """Whether no request decodes while a prompt waits, as in SGLang and ATOM. Otherwise a step decodes for all running
    requests and fills the rest of its token budget with prompts, as in vLLM and TensorRT-LLM."""

    schedules_ahead: bool = False
    """Whether the engine schedules a step before the step before it ends, as vLLM from 0.14. A prompt that arrives at
    the end of a step then waits for one more step, unless the engine is idle."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoopTimes:
    """Times of all requests of a run, in seconds, in the order of their first tokens."""

    ttft_s: Array
    tpot_s: Array
    makespan_s: float
    output_tokens: float
    """Output tokens of all requests."""


def run_prompt_loop(cost: StepCost, loop: PromptLoop) -> LoopTimes:
    """Return the times of all requests of a run."""
    return _Engine(cost, loop).run()


class _Engine:
    """State of the engine between two steps."""

    def __init__(self, cost: StepCost, loop: PromptLoop) -> None:
        self.cost, self.loop = cost, loop
        self.now_s, self.steps = 0.0, 0
        self.coming = iter(drawn_lengths(loop))
        self.waiting: deque[tuple[float, float, int]] = deque()
        """Waiting prompts: (arrival in seconds, input tokens, steps after the first token)."""
        self.late: deque[tuple[float, float, int]] = deque()
        """Prompts that arrived after the next step was scheduled."""
        self.begun = 0.0
        """Tokens of the first waiting prompt that earlier steps processed."""
        self.decoding: list[tuple[int, float, int]] = []
        """Heap of running requests: (step that yields the last token, time of the first token, steps after it)."""
        context = loop.input_tokens + loop.output_tokens / 2
        self.decode_s = cost.decode_s + sum(
            s * min(context, limit) for s, limit in zip(cost.context_s, cost.limits, strict=True)
        )
        self.attention = [(s, limit) for s, limit in zip(cost.pair_s, cost.limits, strict=True) if s]
        self.ttft_s: list[float] = []
        self.tpot_s: list[float] = []

    def run(self) -> LoopTimes:
        """Run all requests."""
        self._ask(self.loop.users)
        while self.waiting or self.decoding or self.late:
            late, self.late = self.late, deque()
            if self.waiting and len(self.decoding) < self.loop.seats:
                self._prompt_step()
            elif self.decoding:
                steps = 1 if late else self.decoding[0][0] - self.steps
                self.now_s += steps * self._seconds(len(self.decoding), 0.0)
                self.steps += steps
            self.waiting.extend(late)
            self._finish()
        outputs = sum(after + 1 for _, after in drawn_lengths(self.loop))
        return LoopTimes(
            ttft_s=np.array(self.ttft_s), tpot_s=np.array(self.tpot_s), makespan_s=self.now_s, output_tokens=outputs
        )

    def _ask(self, users: int) -> None:
        is_busy = bool(self.waiting or self.decoding)
        queue = self.late if self.loop.schedules_ahead and is_busy else self.waiting
        queue.extend((self.now_s, inputs, after) for inputs, after in islice(self.coming, users))

    def _prompt_step(self) -> None:
        """Run one step that carries prompts, in the order of their arrival."""
        decoding = 0 if self.loop.prompts_first else len(self.decoding)
        room = left = max(1.0, self.loop.batched_tokens - decoding)
        attention_s, complete, start = 0.0, 0, self.begun
        for _, inputs, _ in self.waiting:
            end = min(inputs, start + left)
            for per_pair_s, limit in self.attention:
                attention_s += per_pair_s * (_pairs(end, limit) - _pairs(start, limit))
            left -= end - start
            if end < inputs:
                start = end
                break
            complete, start = complete + 1, 0.0
            if left <= 0 or len(self.decoding) + complete >= self.loop.seats:
                break
        self.begun = start
        self.now_s += self._seconds(decoding, room - left) + self.cost.prompt_step_s + attention_s
        self.steps += 0 if self.loop.prompts_first else 1
        for _ in range(complete):
            arrival_s, _, after = self.waiting.popleft()
            self.ttft_s.append(self.now_s - arrival_s)
            heappush(self.decoding, (self.steps + after, self.now_s, after))

    def _finish(self) -> None:
        """Take the requests that are complete. Their users ask again."""
        decoding, finished = self.decoding, 0
        while decoding and decoding[0][0] <= self.steps:
            _, first_s, after = heappop(decoding)
            self.tpot_s.append((self.now_s - first_s) / after if after else 0.0)
            finished += 1
        if finished:
            self._ask(finished)

    def _seconds(self, decoding: int, tokens: float) -> float:
        cost = self.cost
        missed = float(cost.expert_miss ** (decoding + tokens))
        return cost.step_s + cost.expert_s * (1 - missed) + decoding * self.decode_s + tokens * cost.prefill_token_s


def _pairs(tokens: float, limit: float) -> float:
    seen = min(tokens, limit)
    return seen * (tokens - seen / 2)


def drawn_lengths(loop: PromptLoop) -> list[tuple[float, int]]:
    """Return the input tokens and the steps after the first token of each request.

    The lengths are spread evenly around their means.
    """
    number = np.arange(loop.users * loop.requests_per_user)
    inputs, outputs = (
        mean * (1 + loop.length_spread * (2 * ((0.5 + number * stride) % 1) - 1))
        for mean, stride in ((loop.input_tokens, _INPUT_STRIDE), (loop.output_tokens, _OUTPUT_STRIDE))
    )
    after = np.maximum(0, np.rint(outputs) - 1).astype(int)
    return list(zip(np.maximum(1.0, np.rint(inputs)).tolist(), after.tolist(), strict=True))
