"""What do the shipped runs that draft say? Their acceptance, and each predicted by models that never saw its setup."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import exp
from typing import Literal

from penstock.benchmark.shipped_rows import efficiencies_without, model_of, shape_of_name, shipped_efficiencies
from penstock.catalog import load_accelerator, load_drafts, load_measurements
from penstock.catalog.measurement import Measurement
from penstock.performance.evidence.drafts import (
    DraftedRow,
    DraftModel,
    draft_spreads,
    drafted_rows,
    from_document,
    predicted_log_gain,
    without_each_draft,
)
from penstock.performance.evidence.efficiencies import Efficiencies
from penstock.performance.evidence.rows import measured_deployment
from penstock.performance.evidence.setups import closed_loop
from penstock.performance.power.fit import curve_of
from penstock.performance.prediction.stack import stack_of
from penstock.performance.step.work import Array, ReplicaWork

Known = Literal["without drafts", "nothing"]
"""What of the setup was seen: its runs without drafts, or none of its runs."""


@cache
def shipped_drafts() -> DraftModel:
    """Return what commands say is accepted."""
    return from_document(load_drafts())


@cache
def shipped_drafted_rows() -> tuple[DraftedRow, ...]:
    """Return every shipped run of one engine that drafts."""
    efficiencies = shipped_efficiencies()

    def slowdowns_of(row: Measurement, work: ReplicaWork) -> Array:
        return stack_of(work.deployment, row.engine, efficiencies).slowdowns

    return tuple(drafted_rows(load_measurements(), model_of, load_accelerator, slowdowns_of))


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedDraft:
    """One drafting run, predicted without its curve's drafting runs."""

    row: DraftedRow
    predicted_s: float

    @property
    def error(self) -> float:
        """Predicted over measured time per output token, minus one."""
        return self.predicted_s / (self.row.measurement.tpot_s or 0.0) - 1


@cache
def held_out_drafts(known: Known) -> tuple[PredictedDraft, ...]:
    """Predict every drafting run with its curve unseen drafting, or unseen altogether.

    Gains of the runs that are kept stand on the shipped slowdowns; the time they multiply does not.
    """
    rows = shipped_drafted_rows()
    spreads = draft_spreads(rows)
    return tuple(
        entry for model, held in without_each_draft(rows, "split", spreads) for entry in _predicted(model, held, known)
    )


def _predicted(model: DraftModel, held: list[DraftedRow], known: Known) -> Iterator[PredictedDraft]:
    unseen = {_curve(row.measurement) for row in held}
    efficiencies = (
        shipped_efficiencies() if known == "without drafts" else efficiencies_without(lambda row: _curve(row) in unseen)
    )
    stacks: dict[tuple[str, str], tuple[ReplicaWork, Array]] = {}
    for row in held:
        key = row.curve, row.measurement.kv
        if key not in stacks:
            stacks[key] = _placed(row.measurement, efficiencies)
        work, slowdowns = stacks[key]
        plain_s = float((work.light(closed_loop(row.measurement)) @ slowdowns)[0])
        yield PredictedDraft(row=row, predicted_s=plain_s * exp(predicted_log_gain(model, row)))


def _curve(row: Measurement) -> str:
    return curve_of(row, shape_of_name(row.model))


def _placed(row: Measurement, efficiencies: Efficiencies) -> tuple[ReplicaWork, Array]:
    placed = measured_deployment(row, model_of, load_accelerator)
    return ReplicaWork(placed), stack_of(placed, row.engine, efficiencies).slowdowns
