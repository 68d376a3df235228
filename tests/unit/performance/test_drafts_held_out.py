"""How wrong drafting runs are predicted where nothing like them was seen."""

from math import isclose
from statistics import median

import numpy as np
import pytest

from penstock.catalog import load_accelerator
from penstock.performance.calibration.draft_acceptance import fit_drafts, from_document, to_document
from penstock.performance.calibration.drafted_evidence import groups_of
from penstock.performance.power.power_model import Utilisation, kernels_of
from penstock.performance.shipped.shipped_drafts import (
    Known,
    held_out_drafts,
    published_acceptance,
    shipped_drafted_rows,
    shipped_drafts,
    shipped_solution,
)
from penstock.performance.shipped.shipped_energy import shipped_power
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.performance.similarity.draft_evidence import UnseenDraft

pytestmark = pytest.mark.refit


def test_shipped_acceptances_are_what_the_shipped_pairs_give() -> None:
    """Near them: they also stand on the slowdowns, which are fitted apart."""
    shipped, again = shipped_drafts(), fit_drafts(shipped_drafted_rows(), published_acceptance())
    assert from_document(to_document(shipped)) == shipped
    assert shipped.pairs == again.pairs
    for key in again.powers:
        assert isclose(shipped.accepted_tokens(key, 3), again.accepted_tokens(key, 3), rel_tol=0.05)


@pytest.mark.parametrize(("known", "error"), [("other loads", 0.05), ("without drafts", 0.11), ("nothing", 0.15)])
def test_time_per_token_of_drafting_runs_held_out(known: Known, error: float) -> None:
    """Of the setup, known are: other loads with drafts; runs without drafts only; nothing."""
    held = held_out_drafts(known)
    assert len(held) >= (1_200 if known == "nothing" else 1_500)
    assert median(abs(entry.error) for entry in held) <= error


def test_drafting_runs_of_the_cookbook_with_their_setup_held_out() -> None:
    held = [entry for entry in held_out_drafts("nothing") if entry.row.measurement.source == "sglang-cookbook"]
    assert len(held) >= 50
    assert median(abs(entry.error) for entry in held) <= 0.2


@pytest.mark.parametrize("vendor", ["amd", "nvidia"])
def test_joules_of_drafting_runs_follow_from_a_draw_fitted_without_them(vendor: str) -> None:
    """At their own speed, with the work of a drafting step."""
    errors = []
    for row in shipped_drafted_rows():
        seen, accelerator = row.measurement, load_accelerator(row.measurement.accelerator)
        if accelerator.vendor != vendor or not seen.joules_per_output_token or not seen.output_tokens_per_s:
            continue
        accepted = shipped_drafts().accepted_tokens(row.key, row.drafted)
        seconds = (seen.concurrency or 1.0) / seen.output_tokens_per_s
        draw, factor, _ = shipped_power().of(
            accelerator, kernels_of(accelerator.id, seen.engine, row.shape, seen.weights)
        )
        busy = Utilisation.of(row.roofline(accepted)[None, :], np.array([seconds]))
        watts = float(draw.shares(busy, factor)[0]) * (accelerator.tdp_watts or 0.0)
        joules = watts * seen.devices / seen.output_tokens_per_s
        errors.append(abs(joules / seen.joules_per_output_token - 1))
    assert len(errors) >= 300
    assert median(errors) <= 0.10


@pytest.mark.parametrize("unseen", ["load", "setup"])
def test_each_gain_lies_in_its_interval_as_often_as_it_says(unseen: UnseenDraft) -> None:
    evidence, solved = shipped_efficiencies().drafted, shipped_solution()
    assert evidence is not None
    shifts, spreads = solved.without(groups_of(solved.measured.cases, unseen))
    low, high = evidence.intervals[unseen]
    inside = np.abs((solved.deviations - shifts) / spreads - (low + high) / 2) <= (high - low) / 2
    assert 0.75 <= np.mean(inside) <= 0.85
    assert low < 0 < high
