"""Loads the acceptance of drafts in the shipped runs, and computes a held-out prediction of each run with drafts."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from penstock.catalog import load_accelerator, load_acceptance_lengths, load_drafts, load_measurements, model_ids
from penstock.catalog.measurement import Measurement
from penstock.model import ModelSpec, Part
from penstock.performance.calibration.acceptance_curves import AcceptanceCurves, acceptance_curves
from penstock.performance.calibration.cold_starts import without_cold_starts
from penstock.performance.calibration.draft_acceptance import (
    DraftedRow,
    DraftModel,
    drafted_rows,
    fit_drafts,
    from_document,
)
from penstock.performance.calibration.drafted_evidence import groups_of, solve_drafts, step_model_log_s
from penstock.performance.calibration.measured_runs import medians_of_runs, merge_nightly, setup_of
from penstock.performance.prediction.multi_token_prediction import multi_token_prediction, usual_drafted
from penstock.performance.prediction.serving_stack import Stack, stack_of
from penstock.performance.prediction.speculation import Speculation
from penstock.performance.shipped.shipped_runs import model_of, plain_efficiencies, predicted_without, shape_of_name
from penstock.performance.similarity.draft_evidence import SolvedDrafts, UnseenDraft
from penstock.performance.step.step_work import Array, ReplicaWork

Known = Literal["other loads", "without drafts", "nothing"]
"""Measurements that the prediction of a run with drafts may use: all but those of its load, those of the same setup
without drafts, or none of the same setup."""


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
    return multi_token_prediction(model, shipped_drafts(), drafted_tokens=drafted)


@cache
def published_acceptance() -> AcceptanceCurves:
    """Return the acceptance of each drafted token, from the published acceptance lengths.

    A model that is not in the catalog has its name as the key: it only contributes to the usual curve.
    """
    known = set(model_ids())
    return acceptance_curves(load_acceptance_lengths(), lambda name: shape_of_name(name) if name in known else name)


@cache
def shipped_drafted_rows() -> tuple[DraftedRow, ...]:
    """Return every shipped single-engine run with drafts. Nightly repetitions are merged into one row per month."""
    stacks: dict[tuple[object, ...], Stack] = {}

    def slowdowns_of(row: Measurement, work: ReplicaWork) -> Array:
        if setup_of(row) not in stacks:
            stacks[setup_of(row)] = stack_of(work, row.engine, plain_efficiencies())
        return stacks[setup_of(row)].slowdowns

    merged = merge_nightly(without_cold_starts((row for row in load_measurements() if not row.twin), setup_of))
    return tuple(drafted_rows(merged, model_of, load_accelerator, slowdowns_of, published_acceptance()))


@cache
def shipped_solution() -> SolvedDrafts:
    """Return the solved covariance of the shipped runs with drafts."""
    rows = shipped_drafted_rows()
    return solve_drafts(rows, fit_drafts(rows, published_acceptance()), medians_of_runs(load_measurements()))


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedDraft:
    """Run with drafts, and its prediction from evidence without runs of the same load or setup."""

    row: DraftedRow
    predicted_s: float

    @property
    def error(self) -> float:
        """Return the relative error of the predicted time per output token."""
        return self.predicted_s / (self.row.measurement.tpot_s or 0.0) - 1


@cache
def held_out_drafts(known: Known) -> tuple[PredictedDraft, ...]:
    """Predict every run with drafts, with runs of its load or setup held out.

    If `known` is `nothing`, the time without drafts is a held-out prediction too. Runs whose setup was measured without
    drafts, but not at this load, are then left out. The gain from drafts is computed with the shipped slowdowns and the
    expected acceptance of all rows: fitting the acceptance again without each tenth of the setups changes the median
    error by 0.1 points.
    """
    rows, solved = shipped_drafted_rows(), shipped_solution()
    unseen: UnseenDraft = "load" if known == "other loads" else "setup"
    shifts, _ = solved.without(groups_of(solved.measured.cases, unseen))
    predicted = step_model_log_s(rows, solved.measured.cases) + shifts
    if known == "nothing":
        predicted += [_without_plain(row) for row in rows]
    return tuple(
        PredictedDraft(row=row, predicted_s=float(np.exp(log_s)))
        for row, log_s in zip(rows, predicted.tolist(), strict=True)
        if np.isfinite(log_s)
    )


def _without_plain(row: DraftedRow) -> float:
    """Return by how much the log time without drafts changes if the setup is held out. NaN if this is unknown."""
    efficiencies, deployed = plain_efficiencies(), row.work
    if not len(efficiencies.rows_of(deployed, row.measurement.engine)):
        return 0.0
    found = None if row.pair is None else predicted_without("setup", row.pair)
    return np.nan if found is None else float(np.log(found[0]) - np.log(row.plain_s))
