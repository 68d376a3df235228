"""Fits the part of the measured time to first token that the steps of the engine do not explain.

Three fitted terms explain why measured times differ from the closed form in `step.first_token`. The first term is the
time that a request spends outside the engine's steps. The second term multiplies the closed form, because prompts run
without graphs and alongside other prompts. The third term multiplies the time of the steps by which a scheduler delays
a prompt. All three terms are fitted with shrinkage across setups (`first_token_regression`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.catalog.measurement import Measurement
from penstock.fleet.deployment import Deployment
from penstock.performance.calibration.benchmark_harness import harness_of
from penstock.performance.calibration.first_token_regression import Calibration, FitTerms, Row, Software, calibrate
from penstock.performance.calibration.measured_runs import Run, batched_tokens
from penstock.performance.similarity.cases import family_of, weights_label
from penstock.performance.step.first_token import LoopLoad, decode_step, first_token_work
from penstock.performance.step.step_work import Array

FIRST: Final = ("request_s", "ratio", "held")
"""Fitted terms. `request_s` is the time that a request spends outside the engine's steps, in seconds. `ratio`
multiplies the closed form of the time in steps. `held` multiplies the time of the steps by which a prompt is
delayed."""
_TERMS: Final = FitTerms(
    lower_bounds=np.array([10e-3, 0.5, 0.0]),
    prior=np.array([20e-3, 1.3, 1.0]),
    floor=np.array([10e-3, 0.2, 0.3]),
)
"""Lower bounds, priors and minimum standard deviations of the three terms. A request is read, tokenised and answered
over HTTP, which takes at least ten milliseconds."""
_STATED: Final = ("inferencex", "inferencex-via-aiconfigurator", "aiconfigurator-silicon")
"""Sources for which `harness_of` knows how prompts were sent and batched."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waited:
    """Measured time to first token, and the work that the request waited for."""

    run: Run
    seconds: float
    served: Array
    held: Array

    @property
    def measurement(self) -> Measurement:
        """Return the measured row."""
        return self.run.row


def first_token_rows(found: Iterable[Run]) -> list[Waited]:
    """Return every closed-loop row that states a time to first token and whose benchmark settings are known."""
    waits = []
    for run in found:
        row = run.row
        if row.scenario != "online" or not row.ttft_s or not row.concurrency or row.source not in _STATED:
            continue
        loop, held_steps = measured_loop(row)
        waits.append(
            Waited(
                run=run,
                seconds=row.ttft_s,
                served=first_token_work(run.work, loop)[0],
                held=held_steps * decode_step(run.work, loop)[0],
            )
        )
    return waits


def measured_loop(measurement: Measurement) -> tuple[LoopLoad, float]:
    """Return the closed-loop load of a row, and the number of steps by which the row's prompts were delayed."""
    harness = harness_of(measurement)
    loop = LoopLoad(
        users=np.array([measurement.concurrency or 1.0]),
        input_tokens=measurement.input_tokens,
        output_tokens=measurement.output_tokens,
        batched_tokens=batched_tokens(measurement),
        burst_share=harness.burst_share,
    )
    return loop, harness.held_steps


SlowdownsOf = Callable[[Run], Array]


def fit_first_tokens(waits: Sequence[Waited], slowdowns_of: SlowdownsOf) -> Calibration:
    """Fit the part of the time to first token that the steps do not explain, given the slowdowns of the steps."""
    return calibrate([first_row(item, slowdowns_of(item.run)) for item in waits], _TERMS)


def first_row(item: Waited, slowdowns: Array, served_s: float | None = None) -> Row:
    """Return a measured time to first token as a row of the fit.

    `served_s` is the simulated time of the steps before the first token. If `served_s` is None, this time is computed
    in closed form.
    """
    waited_s = float(item.served @ slowdowns) if served_s is None else served_s
    row, placed = item.run.row, item.run.work.deployment
    return Row(
        roofline=np.array([1.0, waited_s, float(item.held @ slowdowns)]),
        seconds=item.seconds,
        path=stack_path(placed, row.engine),
        family=family_of(placed.model),
        software=Software(row.scenario, row.version, row.date),
        configuration=configuration_of(placed),
    )


def stack_path(deployment: Deployment, engine: str) -> tuple[str, ...]:
    """Return the labels of a deployment's fit, most general first: architecture, accelerator and engine."""
    return deployment.accelerator.architecture, deployment.accelerator.id, engine


def configuration_of(deployment: Deployment) -> str:
    """Return the key of a deployment's model, format and split. The key does not depend on token lengths or load."""
    model, split = deployment.model, deployment.parallelism
    return f"{family_of(model)} {weights_label(model)} tp{split.tp} dp{split.dp} ep{int(split.expert_parallel)}"
