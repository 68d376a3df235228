"""Fits the part of the measured time to first token that the steps of the engine do not explain.

Three fitted terms explain why measured times differ from the closed loop in `step.prompt_queue`. The first term is the
time that a request spends outside the engine's steps. The second term multiplies the time in the loop, because prompts
run without graphs. The third term multiplies the time of the steps by which a scheduler delays a prompt. All three
terms are fitted with shrinkage across setups (`first_token_regression`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import Final

import numpy as np

from penstock.catalog.measurement import Measurement
from penstock.fleet.deployment import Deployment
from penstock.performance.calibration.benchmark_harness import (
    Harness,
    Sending,
    drafted_tokens,
    harness_of,
    prompts_first,
    schedules_ahead,
)
from penstock.performance.calibration.first_token_regression import Calibration, FitTerms, Row, Software, calibrate
from penstock.performance.calibration.measured_runs import (
    AcceleratorOf,
    ModelOf,
    Run,
    batched_tokens,
    described_runs,
    usable_runs,
)
from penstock.performance.similarity.cases import family_of, weights_label
from penstock.performance.step.drafting_step import drafting_cost, expected_tokens
from penstock.performance.step.first_token import LoopLoad, decode_step
from penstock.performance.step.prompt_queue import PromptLoop, run_prompt_loop
from penstock.performance.step.step_cost import StepCost, step_cost
from penstock.performance.step.step_work import Array

FIRST: Final = ("request_s", "ratio", "held")
"""Fitted terms. `request_s` is the time that a request spends outside the engine's steps, in seconds. `ratio`
multiplies the time in the queue of prompts and in the steps of the prompt. `held` multiplies the time of the steps by
which a prompt is delayed."""
_TERMS: Final = FitTerms(
    lower_bounds=np.array([10e-3, 0.5, 0.0]),
    prior=np.array([20e-3, 1.3, 1.0]),
    floor=np.array([10e-3, 0.2, 0.3]),
)
"""Lower bounds, priors and minimum standard deviations of the three terms. A request is read, tokenised and answered
over HTTP, which takes at least ten milliseconds."""
_ACCEPTANCE: Final = 0.69
"""Probability that a drafted token is accepted, for rows that do not state it: the value of models without data."""
_STATED: Final = (
    "inferencex",
    "inferencex-via-aiconfigurator",
    "aiconfigurator-silicon",
    "rocm-atom-nightly",
    "sglang-cookbook",
)
"""Sources for which `harness_of` knows how prompts were sent and batched."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waited:
    """Measured time to first token, and the closed loop in which it was measured."""

    run: Run
    seconds: float
    harness: Harness
    held: Array
    """Work of the steps by which the engine delays a prompt on purpose."""

    @property
    def measurement(self) -> Measurement:
        """Return the measured row."""
        return self.run.row

    def loop_s(self, slowdowns: Array) -> float:
        """Return the time to first token of the closed loop, from the engine's steps alone, in seconds."""
        row, cost = self.run.row, step_cost(self.run.work, slowdowns)
        tokens = float(self.harness.batched_tokens * row.dp)
        drafted = drafted_tokens(row)
        if drafted:
            accepted = row.accepted_length or expected_tokens([_ACCEPTANCE] * drafted)
            cost, tokens = drafting_cost(self.run.work, slowdowns, drafted, accepted), tokens / accepted
        sending = self.harness.sending
        loop = PromptLoop(
            users=max(1, round(row.concurrency or 1.0)),
            input_tokens=row.input_tokens,
            output_tokens=row.output_tokens,
            batched_tokens=tokens,
            seats=inf if row.max_running is None else row.max_running,
            requests_per_user=sending.requests_per_user,
            length_spread=sending.length_spread,
            prompts_first=prompts_first(row.engine),
            schedules_ahead=schedules_ahead(row.engine, row.date),
        )
        return _first_token_s(cost, loop, sending)


@lru_cache(maxsize=2**14)
def _first_token_s(cost: StepCost, loop: PromptLoop, sending: Sending) -> float:
    return sending.first_token_s(run_prompt_loop(cost, loop))


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
                harness=harness_of(row),
                held=held_steps * decode_step(run.work, loop)[0],
            )
        )
    return waits


def drafting_runs(rows: Iterable[Measurement], model_of: ModelOf, accelerator_of: AcceleratorOf) -> list[Run]:
    """Return rows with drafts as runs of the same engine without drafts, for their times to first token.

    The time per token of such a run is that of the row, so it is not evidence of a step.
    """
    drafted = {row.id: row for row in rows if row.scenario == "online" and drafted_tokens(row)}
    plain = usable_runs(replace(row, drafted="") for row in drafted.values())
    found = described_runs(plain, model_of, accelerator_of)
    return [replace(run, row=replace(drafted[run.row.id], ttft_s=run.row.ttft_s)) for run in found]


def measured_loop(measurement: Measurement) -> tuple[LoopLoad, float]:
    """Return the closed-loop load of a row, and the number of steps by which the row's prompts were delayed."""
    loop = LoopLoad(
        users=np.array([measurement.concurrency or 1.0]),
        input_tokens=measurement.input_tokens,
        output_tokens=measurement.output_tokens,
        batched_tokens=batched_tokens(measurement),
    )
    return loop, harness_of(measurement).held_steps


SlowdownsOf = Callable[[Run], Array]


def fit_first_tokens(waits: Sequence[Waited], slowdowns_of: SlowdownsOf) -> Calibration:
    """Fit the part of the time to first token that the steps do not explain, given the slowdowns of the steps."""
    return calibrate_first_tokens([first_row(item, slowdowns_of(item.run)) for item in waits])


def calibrate_first_tokens(rows: Iterable[Row]) -> Calibration:
    """Fit the three terms to rows."""
    return calibrate(rows, _TERMS)


def first_row(item: Waited, slowdowns: Array, served_s: float | None = None) -> Row:
    """Return a measured time to first token as a row of the fit.

    `served_s` is the simulated time of the steps before the first token. If `served_s` is None, the loop of
    `prompt_queue` gives this time.
    """
    waited_s = item.loop_s(slowdowns) if served_s is None else served_s
    row, placed = item.run.row, item.run.work.deployment
    return Row(
        roofline=np.array([1.0, waited_s, float(item.held @ slowdowns)]),
        seconds=item.seconds,
        path=stack_path(placed, row.engine),
        family=family_of(placed.model),
        software=Software(row.scenario, row.version, row.date),
        # A run with overlapping batches is no measurement of the configuration without overlap.
        configuration=" ".join(filter(None, (configuration_of(placed), row.overlap))),
    )


def stack_path(deployment: Deployment, engine: str) -> tuple[str, ...]:
    """Return the labels of a deployment's fit, most general first: architecture, accelerator and engine."""
    return deployment.accelerator.architecture, deployment.accelerator.id, engine


def configuration_of(deployment: Deployment) -> str:
    """Return the key of a deployment's model, format and split. The key does not depend on token lengths or load."""
    model, split = deployment.model, deployment.parallelism
    return f"{family_of(model)} {weights_label(model)} tp{split.tp} dp{split.dp} ep{int(split.expert_parallel)}"
