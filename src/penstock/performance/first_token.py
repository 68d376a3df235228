"""How long until the first token? What a request waits for, in closed form, and how much longer that really takes.

The closed form is what the simulator gives for the same loop: the step that carries the prompt among the decodes of the
others, and for a mean also the start, when every user's prompt comes at once. Measured times are longer: by seconds a
request spends outside the engine's steps, by a ratio (prompts run without graphs, and beside each other), and by the
steps a scheduler lets pass before it takes a prompt. Those three are fitted like slowdowns, with the same kin.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

import numpy as np

from penstock.catalog.measurement import Measurement
from penstock.performance.calibration import Calibration, Row, Terms, calibrate, factor
from penstock.performance.evidence import AcceleratorOf, ModelOf, measured_deployment
from penstock.performance.harness import harness_of
from penstock.performance.work import PARTS, Array, Load, ReplicaWork

FIRST: Final = ("request_s", "ratio", "held")
"""The fitted columns: seconds of a request outside the steps, the closed form, the steps a prompt is held."""
_TERMS: Final = Terms(
    least=np.array([0.0, 0.5, 0.0]),
    prior=np.array([20e-3, 1.3, 1.0]),
    floor=np.array([10e-3, 0.2, 0.3]),
    logarithmic=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """So many users, each sending its next request when its last is answered."""

    users: float
    input_tokens: float
    output_tokens: float
    batched_tokens: float = 8192
    """Prompt tokens the replica takes in one step."""
    burst_share: float = 0.0
    """Share of the requests that are the first of their user, all sent at once."""


def served(work: ReplicaWork, loop: ClosedLoop) -> Array:
    """Return the work of everything from the arrival of a request to its first token, on average."""
    steps = max(1, ceil(loop.input_tokens / loop.batched_tokens))
    carrying = steps * _carrying(work, loop, loop.users - 1, loop.input_tokens / steps)
    if not loop.burst_share:
        return carrying
    everything = loop.users * loop.input_tokens
    waves = ceil(everything / loop.batched_tokens)
    burst = (waves + 1) / 2 * _carrying(work, loop, loop.users / 2, min(everything, loop.batched_tokens))
    return (1 - loop.burst_share) * carrying + loop.burst_share * burst


def _carrying(work: ReplicaWork, loop: ClosedLoop, decodes: float, prefill_tokens: float) -> Array:
    """One step with prompt tokens in it; they visit experts like any other."""
    load = Load(
        decodes=np.array([decodes]),
        context_tokens=np.array([loop.input_tokens + loop.output_tokens / 2]),
        prefill_tokens=np.array([prefill_tokens]),
        prompt_tokens=np.array([loop.input_tokens]),
    )
    light: Array = work.light(load)[0]
    read = float(work.experts_read(np.array([decodes + prefill_tokens]))[0])
    light[PARTS.index("experts")] = work.expert_bytes / work.bytes_per_s * read
    return light


def decode_step(work: ReplicaWork, loop: ClosedLoop) -> Array:
    """Return the work of a step without any prompt in it."""
    load = Load.closed_loop(np.array([loop.users]), np.array([loop.input_tokens]), np.array([loop.output_tokens]))
    light: Array = work.light(replace(load, prefill_tokens=np.zeros(1)))[0]
    return light


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """A measured time to first token, and the work it waited for."""

    measurement: Measurement
    row: Row
    """The same run's time per output token, which names its pool and its factors."""
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
                served=served(compiled[key], loop),
                held=held_steps * decode_step(compiled[key], loop),
            )
        )
    return found


def measured_loop(measurement: Measurement) -> tuple[ClosedLoop, float]:
    """Return the loop a row was measured under, and the steps its prompts were held back."""
    harness = harness_of(measurement)
    loop = ClosedLoop(
        users=measurement.concurrency or 1.0,
        input_tokens=measurement.input_tokens,
        output_tokens=measurement.output_tokens,
        batched_tokens=harness.batched_tokens * measurement.dp,
        burst_share=harness.burst_share,
    )
    return loop, harness.held_steps


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Both halves of what was fitted to some rows: of a step, and of a first token."""

    step: Calibration
    first: Calibration

    def slowdowns(self, row: Row) -> Array:
        """Return the slowdowns of a row's pool with all of the row's factors."""
        _, pool = self.step.nearest(row.pool)
        return pool.slowdowns * float(np.exp(factor(pool, row)))

    def first_token_s(self, item: Waited, served_s: float | None = None) -> float:
        """Predict a time to first token, from the closed form or from what a simulation says instead of it."""
        row = _first_row(item, self.slowdowns(item.row))
        if served_s is not None:
            row.light[FIRST.index("ratio")] = served_s
        return self.first.seconds(row)


def fit_both(rows: Sequence[Row], waits: Sequence[Waited]) -> Fitted:
    """Fit the steps first, then what a first token takes beyond them."""
    step = calibrate(rows)
    alone = Fitted(step=step, first=Calibration(pools={}))
    return Fitted(step=step, first=calibrate([_first_row(item, alone.slowdowns(item.row)) for item in waits], _TERMS))


def _first_row(item: Waited, slowdowns: Array) -> Row:
    light = np.array([1.0, float(item.served @ slowdowns), float(item.held @ slowdowns)])
    return replace(item.row, light=light, seconds=item.seconds)
