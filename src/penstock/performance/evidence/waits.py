"""How much longer does a first token really take? What was measured beyond the steps it waits for.

Measured times are longer than the closed form: by seconds a request spends outside the engine's steps, by a ratio
(prompts run without graphs, and beside each other), and by the steps a scheduler lets pass before it takes a prompt.
Those three are fitted like slowdowns, with the same kin.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from penstock.catalog.measurement import Measurement
from penstock.performance.evidence.harness import harness_of
from penstock.performance.evidence.regression import Calibration, FitTerms, Row, calibrate
from penstock.performance.evidence.rows import AcceleratorOf, ModelOf, batched_tokens, measured_deployment
from penstock.performance.step.first_token import LoopLoad, decode_step, served
from penstock.performance.step.work import Array, ReplicaWork

FIRST: Final = ("request_s", "ratio", "held")
"""The fitted columns: seconds of a request outside the steps, the closed form, the steps a prompt is held."""
_TERMS: Final = FitTerms(
    least=np.array([0.0, 0.5, 0.0]),
    prior=np.array([20e-3, 1.3, 1.0]),
    floor=np.array([10e-3, 0.2, 0.3]),
    logarithmic=True,
)


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
