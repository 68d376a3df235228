"""Loads the acceptance of drafts in the shipped runs, and computes a held-out prediction of each run with drafts."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import exp
from typing import Literal

from penstock.catalog import load_accelerator, load_drafts, load_measurements
from penstock.catalog.measurement import Measurement
from penstock.model import ModelSpec, Part
from penstock.performance.calibration.draft_acceptance import (
    DraftedRow,
    DraftModel,
    draft_spreads,
    drafted_rows,
    from_document,
    predicted_log_gain,
    without_each_draft,
)
from penstock.performance.calibration.first_token_waits import measured_loop
from penstock.performance.calibration.measured_runs import measured_deployment, setup_of
from penstock.performance.prediction.multi_token_prediction import multi_token_prediction, usual_drafted
from penstock.performance.prediction.predict_deployment import Speculation
from penstock.performance.prediction.serving_stack import stack_of
from penstock.performance.shipped.shipped_runs import model_of, predicted_without, shipped_efficiencies
from penstock.performance.step.step_work import Array, ReplicaWork

Known = Literal["without drafts", "nothing"]
"""Measurements that the prediction of a run with drafts may use: those of the same setup without drafts, or none of the
same setup."""


@cache
def shipped_drafts() -> DraftModel:
    """Return the shipped acceptance model that commands use."""
    return from_document(load_drafts())


def own_drafts(model: ModelSpec, measured_engine: str, vendor: str, ranks: int = 1) -> Speculation | None:
    """Return the settings of speculative decoding with a checkpoint's own layers, as in the measured runs.

    None if the checkpoint has no multi-token-prediction layers.
    """
    if not any(weight.part is Part.MTP for weight in model.weights):
        return None
    drafted = usual_drafted(model, measured_engine, vendor, ranks)
    return multi_token_prediction(model, measured_engine, shipped_drafts(), drafted_tokens=drafted)


@cache
def shipped_drafted_rows() -> tuple[DraftedRow, ...]:
    """Return every shipped single-engine run with drafts."""

    def slowdowns_of(row: Measurement, _: ReplicaWork) -> Array:
        return _work_and_slowdowns(setup_of(row), row)[1]

    return tuple(drafted_rows(load_measurements(), model_of, load_accelerator, slowdowns_of))


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedDraft:
    """Run with drafts, and its prediction from evidence without the drafted runs of the same curve."""

    row: DraftedRow
    predicted_s: float

    @property
    def error(self) -> float:
        """Return the relative error of the predicted time per output token."""
        return self.predicted_s / (self.row.measurement.tpot_s or 0.0) - 1


@cache
def held_out_drafts(known: Known) -> tuple[PredictedDraft, ...]:
    """Predict every run with drafts, with runs of its curve held out.

    If `known` is `without drafts`, only the drafted runs of the curve are held out. If `known` is `nothing`, all runs
    of the curve are held out, so the time without drafts is a held-out prediction too. The gain from drafts is computed
    with the shipped slowdowns in both cases.
    """
    rows = shipped_drafted_rows()
    spreads = draft_spreads(rows)
    return tuple(
        entry
        for model, held in without_each_draft(rows, "split", spreads)
        for entry in _predict_rows(model, held, known)
    )


def _predict_rows(model: DraftModel, held: list[DraftedRow], known: Known) -> Iterator[PredictedDraft]:
    for row in held:
        plain_s = _plain_s(row.measurement) if known == "without drafts" else _unseen_s(row)
        if plain_s is not None:
            yield PredictedDraft(row=row, predicted_s=plain_s * exp(predicted_log_gain(model, row)))


def _plain_s(row: Measurement) -> float:
    work, slowdowns = _work_and_slowdowns(setup_of(row), row)
    return float((work.roofline(measured_loop(row)[0].average()) @ slowdowns)[0])


def _unseen_s(row: DraftedRow) -> float | None:
    found = None if row.pair is None else predicted_without("setup", row.pair)
    return None if found is None else found[0]


_PLACED: dict[tuple[object, ...], tuple[ReplicaWork, Array]] = {}


def _work_and_slowdowns(setup: tuple[object, ...], row: Measurement) -> tuple[ReplicaWork, Array]:
    if setup not in _PLACED:
        work = ReplicaWork(measured_deployment(row, model_of, load_accelerator))
        _PLACED[setup] = work, stack_of(work, row.engine, shipped_efficiencies()).slowdowns
    return _PLACED[setup]
