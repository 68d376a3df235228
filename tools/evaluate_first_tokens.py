"""Prints how far predicted times to first token are from measured ones, with the configuration of each row held out.

Rows that no prediction is learnt from yet are included; nothing of their configuration is known. The fit is repeated
without each configuration. The steps of a configuration are those of the shipped held-out predictions.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from penstock.catalog import load_accelerator, load_held_out, load_measurements
from penstock.performance.calibration.first_token_waits import (
    Waited,
    calibrate_first_tokens,
    drafting_runs,
    first_row,
    first_token_rows,
)
from penstock.performance.calibration.held_out import Dated, folds_of_waits, slowdowns_matching
from penstock.performance.calibration.measured_runs import runs, usable_runs
from penstock.performance.shipped.shipped_runs import model_of, shipped_efficiencies, shipped_runs
from penstock.performance.step.step_work import Array

_FOLDS = 8
_UNLOADED_USERS = 4
_SOURCES = {
    "inferencex": "InferenceX",
    "inferencex-via-aiconfigurator": "InferenceX",
    "rocm-atom-nightly": "ATOM",
    "sglang-cookbook": "SGLang cookbook",
    "aiconfigurator-silicon": "AIConfigurator",
}


def main() -> int:
    """Predict all rows and print one table."""
    efficiencies = shipped_efficiencies()
    measurements, known = list(load_measurements()), Dated(efficiencies.evidence)
    plain, drafting = usable_runs(measurements), drafting_runs(measurements, model_of, load_accelerator)
    waits = first_token_rows([*runs(plain, model_of, load_accelerator), *drafting])
    print(f"{len(waits):,} rows", file=sys.stderr, flush=True)
    predicted = _predicted(waits, known)
    low, high = efficiencies.first_spreads["configuration"]
    measured = np.array([item.seconds for item in waits])
    inside = (predicted * np.exp(low) <= measured) & (measured <= predicted * np.exp(high))
    print("| rows of | users | drafts | rows | configurations | median error | P90 | bias | in P10-P90 |")
    print("|" + "---|" * 9)
    for (source, users, drafts), rows in sorted(_groups(waits).items()):
        off = predicted[rows] / measured[rows] - 1
        setups = {tuple(waits[row].run.words.values()) for row in rows}
        print(
            f"| {source} | {users} | {drafts} | {len(rows):,} | {len(setups)} | {np.median(np.abs(off)):.1%} "
            f"| {np.quantile(np.abs(off), 0.9):.1%} | {np.median(off):+.1%} | {np.mean(inside[rows]):.0%} |"
        )
    return 0


def _predicted(waits: Sequence[Waited], known: Dated) -> Array:
    """Return the predicted time to first token of each row, fitted to the rows of other configurations."""
    held = _step_factors(known)
    folds = folds_of_waits(waits, "setup") % _FOLDS
    rows = [first_row(item, known(item.run)) for item in waits]
    predicted = np.full(len(waits), np.nan)
    for fold in range(_FOLDS):
        first = calibrate_first_tokens([row for row, at in zip(rows, folds, strict=True) if at != fold])
        for number in np.flatnonzero(folds == fold).tolist():
            item, own = waits[number], known(waits[number].run)
            factor = held.get(item.run.row.id, 1.0)
            predicted[number] = first.seconds(first_row(item, own * factor, rows[number].roofline[1] * factor))
    return predicted


def _step_factors(known: Dated) -> dict[str, float]:
    """Return, by row, the held-out time per token over that of the slowdowns of the row's own setup."""
    found = shipped_runs()
    slowdowns = slowdowns_matching(load_held_out()["setup_predicted_s"].astype(np.float64), known, found)
    return {
        run.row.id: float(run.roofline @ each / (run.roofline @ known(run)))
        for run, each in zip(found, slowdowns, strict=True)
        if np.isfinite(each).all()
    }


def _groups(waits: Sequence[Waited]) -> dict[tuple[str, str, str], list[int]]:
    groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for number, item in enumerate(waits):
        row = item.run.row
        users = f"1-{_UNLOADED_USERS}" if (row.concurrency or 1) <= _UNLOADED_USERS else f"above {_UNLOADED_USERS}"
        for drafts in ("any", "with" if row.drafted else "without"):
            groups[_SOURCES[row.source], users, drafts].append(number)
    return groups


if __name__ == "__main__":
    sys.exit(main())
