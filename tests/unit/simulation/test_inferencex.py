"""Published closed loops, run again request by request with everything learnt from other lengths only."""

from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from rerun import Rerun, Reruns, rerun

from penstock.catalog import load_accelerator
from penstock.performance.calibration.error_summary import summarise
from penstock.performance.calibration.first_token_waits import Waited, first_token_rows
from penstock.performance.calibration.held_out import Dated, HeldOut, first_tokens_without, folds_of
from penstock.performance.calibration.measured_runs import cache_tokens, measured_engine
from penstock.performance.prediction.measured_load import RequestedLoad, time_per_token_at
from penstock.performance.prediction.serving_stack import stack_of
from penstock.performance.shipped.shipped_runs import model_of, shipped_efficiencies, shipped_runs
from penstock.performance.step.step_cost import step_cost

pytestmark = pytest.mark.refit

EVERY = 4
"""One in so many rows, by id: a sample that is the same everywhere."""
ACCELERATORS = {"mi300x", "mi325x", "h200_sxm", "b300_sxm"}


class Again:
    """A sample of rows, predicted without their lengths from other rows of the same parts, and simulated."""

    def __init__(self) -> None:
        evidence = shipped_efficiencies().evidence
        found = [run for run in shipped_runs() if run.row.accelerator in ACCELERATORS and run.row.scenario == "online"]
        everything = HeldOut(found, evidence.spreads)
        held = everything.without("lengths")["lengths"]
        published = first_token_rows(found)
        chosen = {ident for number, ident in enumerate(sorted(i.run.row.id for i in published)) if number % EVERY == 0}
        self.waits: list[Waited] = [item for item in published if item.run.row.id in chosen]
        numbers = {run.row.id: number for number, run in enumerate(found)}
        at = np.array([numbers[item.run.row.id] for item in self.waits])
        reruns = Reruns(model_of, load_accelerator)
        slowdowns = held.slowdowns[at]
        self.runs: list[Rerun] = [reruns(item.run.row, slow) for item, slow in zip(self.waits, slowdowns, strict=True)]
        self.tpot_s = np.einsum("ij,ij->i", everything.cases.roofline[at], slowdowns)
        simulated = np.array([run.ttft_s for run in self.runs])
        folds = folds_of(everything.cases, "lengths")[at]
        self.ttft_s = first_tokens_without(self.waits, folds, Dated(evidence), slowdowns, simulated)


@pytest.fixture(scope="module")
def again() -> Again:
    return Again()


def test_the_first_token_comes_when_it_was_measured(again: Again) -> None:
    simulated = summarise(again.ttft_s, np.array([item.seconds for item in again.waits]))
    assert simulated.rows >= 150
    assert simulated.median <= 0.25
    assert abs(simulated.bias) <= 0.12


def test_time_per_token_is_that_of_the_closed_form(again: Again) -> None:
    """Prompts that come together share a step outside captured graphs; the closed form gives each its own.

    Of ranks it assumes that they are even, where the slowest is waited for.
    """
    ratios = np.array([run.tpot_s for run in again.runs]) / again.tpot_s
    ranks = np.array([item.run.row.dp > 1 for item in again.waits])
    assert np.median(np.abs(ratios - 1)) < 0.04
    assert ratios.min() > 0.75
    assert ratios[~ranks].max() < 1.1
    assert ratios[ranks].max() < 1.15


def test_without_what_lies_beyond_the_steps_the_first_token_comes_too_early(again: Again) -> None:
    early = [run.ttft_s < item.seconds for run, item in zip(again.runs, again.waits, strict=True)]
    assert sum(early) / len(early) >= 0.85


def test_a_simulated_benchmark_takes_as_long_per_token_as_its_measurement_says() -> None:
    """What `predict` answers at a measured load, `simulate` and `plan` answer too."""
    efficiencies, ratios = shipped_efficiencies(), []
    recent = [run for run in shipped_runs() if run.row.scenario == "online" and run.row.date >= date(2026, 2, 1)]
    for run in sorted(recent, key=lambda run: run.row.id)[:: len(recent) // 24]:
        row, engine = run.row, measured_engine(run.row)
        stack = stack_of(run.work, engine, efficiencies)
        load = RequestedLoad(run.users, row.input_tokens, row.output_tokens)
        correction = time_per_token_at(stack, run.work, engine, efficiencies, load).log_factor
        factors = stack.curve.factors_by_users(row.input_tokens, row.output_tokens)
        cost = replace(step_cost(run.work, stack.slowdowns), batch_factors=factors)
        simulated = rerun(row, cost, cache_tokens(run.work.deployment)).tpot_s
        ratios.append(simulated / (float(run.roofline @ stack.slowdowns) * np.exp(correction)))
    assert np.median(np.abs(np.array(ratios) - 1)) < 0.03
    assert np.quantile(np.abs(np.array(ratios) - 1), 0.9) < 0.08
