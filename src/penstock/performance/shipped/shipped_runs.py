"""Joins the shipped measurements with the models and the performance model."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import isnan

import numpy as np

from penstock.catalog import (
    load_accelerator,
    load_drafted_evidence,
    load_drafts,
    load_efficiencies,
    load_evidence,
    load_held_out,
    load_measurements,
)
from penstock.catalog.measurement import Measurement
from penstock.checkpoint import open_checkpoint
from penstock.model import ModelSpec
from penstock.performance.calibration.drafted_evidence import draft_evidence_of
from penstock.performance.calibration.efficiencies import Efficiencies, from_document
from penstock.performance.calibration.error_summary import Errors
from penstock.performance.calibration.first_token_waits import Waited, drafting_runs, first_token_rows
from penstock.performance.calibration.held_out import errors_of
from penstock.performance.calibration.measured_runs import Run, runs, usable_runs
from penstock.performance.similarity.cases import shape_of
from penstock.performance.similarity.posterior import Measured


@cache
def model_of(name: str) -> ModelSpec:
    """Read a catalog model. The result is cached."""
    return open_checkpoint(name).spec


@cache
def shape_of_name(name: str) -> str:
    """Return the shape name of a catalog model. If the model was measured, its config is not read."""
    texts = plain_efficiencies().evidence.measured.texts
    known = dict(zip(texts["model"], texts["family"], strict=True))
    return known.get(name) or shape_of(model_of(name))


@cache
def shipped_runs() -> tuple[Run, ...]:
    """Return the fitted measurements of the shipped efficiencies, each as the work and the time of its average step."""
    return tuple(runs(usable_runs(load_measurements()), model_of, load_accelerator))


@cache
def shipped_first_tokens() -> tuple[Waited, ...]:
    """Return the measured times to first token to which the shipped efficiencies are fitted, with and without drafts.

    Rows without drafts come first, in the order of `shipped_runs`.
    """
    drafting = drafting_runs(load_measurements(), model_of, load_accelerator)
    return tuple(first_token_rows([*shipped_runs(), *drafting]))


@cache
def shipped_efficiencies() -> Efficiencies:
    """Return the shipped efficiencies that commands use for predictions."""
    return replace(plain_efficiencies(), drafted=draft_evidence_of(load_drafts(), load_drafted_evidence()))


@cache
def plain_efficiencies() -> Efficiencies:
    """Return the shipped efficiencies without the runs with drafts. The evidence with drafts is fitted on top of it."""
    return from_document(load_efficiencies(), load_evidence())


def shipped_errors(name: str) -> tuple[Errors, Measured]:
    """Return the shipped serving rows and the errors of their held-out predictions, errors first.

    `name` is the held-out unit: month, load, setup, model or accelerator. Rows without a held-out prediction are left
    out.
    """
    measured, held = plain_efficiencies().evidence.measured, load_held_out()
    predicted_s, uncertainty = (held[f"{name}_{kind}"].astype(np.float64) for kind in ("predicted_s", "doubt"))
    return errors_of(measured, name, predicted_s, uncertainty), measured.take(~np.isnan(predicted_s))


@cache
def _held_out_of(name: str) -> Mapping[str, tuple[float, float]]:
    held = load_held_out()
    predicted_s, uncertainty = (held[f"{name}_{kind}"].tolist() for kind in ("predicted_s", "doubt"))
    ids = (run.row.id for run in shipped_runs())
    return {ident: (s, d) for ident, s, d in zip(ids, predicted_s, uncertainty, strict=True) if not isnan(s)}


def predicted_without(name: str, row: Measurement) -> tuple[float, float] | None:
    """Return the held-out prediction of a row's seconds per output token, and the standard deviation of its logarithm.

    `name` is the held-out unit, such as setup. If a median over runs has a dated row of the same run, the prediction of
    the dated row is returned. None if the row has no held-out prediction.
    """
    held = _held_out_of(name)
    return held.get(row.id) or held.get(row.twin)
