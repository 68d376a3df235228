"""How long until the first token? What a request waits for, in closed form, and how much longer that really takes.

The closed form is what the simulator gives for the same loop: the step that carries the prompt among the decodes of the
others, and for a mean also the start, when every user's prompt comes at once. Measured times are longer: by seconds a
request spends outside the engine's steps, by a ratio (prompts run without graphs, and beside each other), and by the
steps a scheduler lets pass before it takes a prompt. Those three are fitted like slowdowns, with the same kin.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from penstock.catalog.measurement import Measurement
from penstock.performance.calibration import Calibration, FitTerms, Row, calibrate
from penstock.performance.evidence import AcceleratorOf, ModelOf, batched_tokens, measured_deployment
from penstock.performance.harness import harness_of
from penstock.performance.work import Array, Load, ReplicaWork, carrying_steps

FIRST: Final = ("request_s", "ratio", "held")
"""The fitted columns: seconds of a request outside the steps, the closed form, the steps a prompt is held."""
_TERMS: Final = FitTerms(
    least=np.array([0.0, 0.5, 0.0]),
    prior=np.array([20e-3, 1.3, 1.0]),
    floor=np.array([10e-3, 0.2, 0.3]),
    logarithmic=True,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoopLoad:
    """So many users, each sending its next request when its last is answered; one entry per number of users."""

    users: Array
    input_tokens: float
    output_tokens: float
    batched_tokens: float = 8192
    """Prompt tokens the replica takes in one step."""
    burst_share: float = 0.0
    """Share of the requests that are the first of their user, all sent at once."""
    drafted_tokens: float = 0.0
    """Speculative tokens the others verify beside each decoded one."""

    def average(self, accepted_tokens: float = 1.0) -> Load:
        """Return the average step; one that yields several tokens of each request comes that much less often."""
        inputs, outputs = (np.full_like(self.users, tokens) for tokens in (self.input_tokens, self.output_tokens))
        steps = Load.closed_loop(self.users, inputs, outputs / accepted_tokens, self.batched_tokens)
        return replace(steps, context_tokens=inputs + outputs / 2, drafted_tokens=self.drafted_tokens)


def served(work: ReplicaWork, loop: LoopLoad) -> Array:
    """Return the work of everything from the arrival of a request to its first token, on average: a row per entry."""
    steps = carrying_steps(np.full_like(loop.users, loop.input_tokens), loop.batched_tokens)
    carrying = steps[:, None] * _carrying(work, loop, loop.users - 1, loop.input_tokens / steps)
    if not loop.burst_share:
        return carrying
    everything = loop.users * loop.input_tokens
    waves = np.ceil(everything / loop.batched_tokens)
    waited_for = (waves[:, None] + 1) / 2
    burst = waited_for * _carrying(work, loop, loop.users / 2, np.minimum(everything, loop.batched_tokens))
    return (1 - loop.burst_share) * carrying + loop.burst_share * burst


def _carrying(work: ReplicaWork, loop: LoopLoad, decodes: Array, prefill_tokens: Array) -> Array:
    """One step with prompt tokens in it."""
    one = np.ones_like(decodes)
    return work.light(replace(loop.average(), decodes=decodes, prefill_tokens=prefill_tokens, carrying_share=one))


def decode_step(work: ReplicaWork, loop: LoopLoad) -> Array:
    """Return the work of a step without any prompt in it."""
    return work.light(replace(loop.average(), prefill_tokens=np.zeros_like(loop.users)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """A measured time to first token, and the work it waited for."""

    measurement: Measurement
    row: Row
    """The same run's time per output token, which names its kin and its factors."""
    seconds: float
    served: Array
    held: Array


def waited(pairs: Iterable[tuple[Measurement, Row]], model_of: ModelOf, accelerator_of: AcceleratorOf) -> list[Waited]:
    """Find every row that states a time to first token under a closed loop."""
    compiled: dict[tuple[object, ...], ReplicaWork] = {}
    found = []
    for measurement, row in pairs:
        if measurement.scenario != "online" or not measurement.ttft_s or not measurement.concurrency:
            continue
        m = measurement
        key = (m.model, m.weights, m.accelerator, m.tp, m.dp, m.ep, m.kv)
        if key not in compiled:
            compiled[key] = ReplicaWork(measured_deployment(m, model_of, accelerator_of))
        loop, held_steps = measured_loop(m)
        found.append(
            Waited(
                measurement=m,
                row=row,
                seconds=measurement.ttft_s,
                served=served(compiled[key], loop)[0],
                held=held_steps * decode_step(compiled[key], loop)[0],
            )
        )
    return found


def measured_loop(measurement: Measurement) -> tuple[LoopLoad, float]:
    """Return the loop a row was measured under, and the steps its prompts were held back."""
    harness = harness_of(measurement)
    loop = LoopLoad(
        users=np.array([measurement.concurrency or 1.0]),
        input_tokens=measurement.input_tokens,
        output_tokens=measurement.output_tokens,
        batched_tokens=batched_tokens(measurement),
        burst_share=harness.burst_share,
    )
    return loop, harness.held_steps


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Both halves of what was fitted to some rows: of a step, and of a first token."""

    step: Calibration
    first: Calibration

    def first_token_s(self, item: Waited, served_s: float | None = None) -> float:
        """Predict a time to first token, from the closed form or from what a simulation says instead of it."""
        row = _first_row(item, self.step.slowdowns(item.row))
        if served_s is not None:
            row.light[FIRST.index("ratio")] = served_s
        return self.first.seconds(row)


def fit_both(rows: Sequence[Row], waits: Sequence[Waited]) -> Fitted:
    """Fit the steps first, then what a first token takes beyond them."""
    step = calibrate(rows)
    return Fitted(step=step, first=calibrate([_first_row(item, step.slowdowns(item.row)) for item in waits], _TERMS))


def _first_row(item: Waited, slowdowns: Array) -> Row:
    light = np.array([1.0, float(item.served @ slowdowns), float(item.held @ slowdowns)])
    return replace(item.row, light=light, seconds=item.seconds)
