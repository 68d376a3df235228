"""Turns measured runs with drafts into evidence, with the errors of held-out predictions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.performance.calibration.draft_acceptance import DraftedRow, DraftModel
from penstock.performance.calibration.measured_runs import Run, as_columns
from penstock.performance.similarity.cases import Cases
from penstock.performance.similarity.draft_evidence import DraftEvidence, SolvedDrafts, UnseenDraft
from penstock.performance.step.step_work import Array


def solve_drafts(rows: Sequence[DraftedRow], model: DraftModel, medians: Mapping[str, float]) -> SolvedDrafts:
    """Compute the weights of runs with drafts, given the expected acceptance of their drafts."""
    measured = as_columns([_run(row, model) for row in rows], medians)
    return SolvedDrafts(measured, np.log(measured.seconds) - step_model_log_s(rows, measured.cases))


def _run(row: DraftedRow, model: DraftModel) -> Run:
    return Run(
        row=row.measurement,
        words=dict(row.words),
        work=row.work,
        users=row.measurement.concurrency or 1.0,
        roofline=row.roofline(model.accepted_tokens(row.key, row.drafted)),
        seconds=row.measurement.tpot_s or 0.0,
    )


def step_model_log_s(rows: Sequence[DraftedRow], cases: Cases) -> Array:
    """Return the log time per token of each run as the step model predicts it, before any evidence with drafts."""
    slowdowns = np.array([row.slowdowns for row in rows])
    return np.asarray(np.log(np.sum(cases.roofline * slowdowns, axis=1)))


def groups_of(cases: Cases, unseen: UnseenDraft) -> npt.NDArray[np.str_]:
    """Return the key of the rows that are held out together: one load of a setup, or all rows of a setup."""
    if unseen == "setup":
        return cases.labels["setup without drafts"].astype(np.str_)
    loads = zip(cases.labels["setup"], cases.users, cases.input_tokens, cases.output_tokens, strict=True)
    return np.array([f"{setup} {users:g} {inputs:.0f} {outputs:.0f}" for setup, users, inputs, outputs in loads])


def draft_intervals(solved: SolvedDrafts) -> dict[UnseenDraft, tuple[float, float]]:
    """Return P10 and P90 of held-out errors, in units of the standard deviation that each prediction states."""
    return {"load": _interval(solved, "load"), "setup": _interval(solved, "setup")}


def draft_evidence_of(document: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> DraftEvidence:
    """Parse the shipped evidence with drafts: the entry `intervals` of the document, and the arrays of the rows."""
    intervals = {name: (span[0], span[1]) for name, span in document["intervals"].items()}
    return DraftEvidence.from_arrays(arrays, intervals)


def _interval(solved: SolvedDrafts, unseen: UnseenDraft) -> tuple[float, float]:
    shifts, spreads = solved.without(groups_of(solved.measured.cases, unseen))
    low, high = np.quantile((solved.deviations - shifts) / spreads, [0.1, 0.9])
    return float(low), float(high)
