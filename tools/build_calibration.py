"""Learns from the shipped measurements what commands predict with; `make calibration` runs it (twenty minutes).

Spreads are fitted only when asked for (`--spreads`): a new row changes what is said, not how alike rows are.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
from calibration.spreads import fit_spreads

from penstock.catalog import load_efficiencies
from penstock.performance.calibration.efficiencies import Efficiencies, Novelty, to_arrays, to_document
from penstock.performance.calibration.error_summary import Logs, intervals
from penstock.performance.calibration.first_token_waits import Waited, first_token_rows, fit_first_tokens
from penstock.performance.calibration.held_out import (
    FOLDS,
    Dated,
    Folds,
    Held,
    HeldOut,
    errors_of,
    first_tokens_without,
    folds_of,
)
from penstock.performance.calibration.measured_runs import Run, as_columns
from penstock.performance.calibration.repeated_runs import repeat_spread
from penstock.performance.shipped.shipped_runs import shipped_runs
from penstock.performance.similarity.covariance import Spreads
from penstock.performance.similarity.posterior import Measured, solve
from penstock.performance.step.step_work import Array

DATA = Path(__file__).resolve().parent.parent / "src/penstock/catalog/data"
_FIRST_BY: Mapping[Novelty, str] = {
    "shape": "lengths",
    "configuration": "setup",
    "model": "model",
    "accelerator": "accelerator",
}
_BY: Mapping[Novelty, str] = {**_FIRST_BY, "shape": "month", "load": "load"}
"""Fold whose held-out errors determine the interval for each novelty. For a known setup it is the month."""


def main() -> int:
    """Fit, hold out and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spreads", action="store_true", help="fit how alike rows are, too")
    found = shipped_runs()
    spreads = _fitted(found) if parser.parse_args().spreads else Spreads.from_document(load_efficiencies()["spreads"])
    evidence = solve(as_columns(found), spreads)
    _say(f"{len(found):,} rows solved")
    everything = HeldOut(found, spreads)
    held = everything.without(*FOLDS)
    _say("held out")
    waits, known = first_token_rows(found), Dated(evidence)
    numbers = {run.row.id: number for number, run in enumerate(found)}
    at = np.array([numbers[item.run.row.id] for item in waits])
    efficiencies = Efficiencies(
        evidence=evidence,
        intervals={new: _intervals(evidence.measured, by, held[by]) for new, by in _BY.items()},
        first=fit_first_tokens(waits, known),
        first_spreads={
            new: _first_spread(waits, folds_of(evidence.cases, by)[at], known, held[by].slowdowns[at])
            for new, by in _FIRST_BY.items()
        },
        repeats=repeat_spread(evidence.measured, evidence.measured.seconds),
        first_repeats=repeat_spread(evidence.measured, evidence.measured.first_s),
        fitted_on=datetime.now(tz=UTC).date().isoformat(),
    )
    (DATA / "efficiencies.json").write_text(json.dumps(to_document(efficiencies), indent=1) + "\n", encoding="utf-8")
    np.savez_compressed(DATA / "evidence.npz", **to_arrays(efficiencies))  # type: ignore[arg-type]
    np.savez_compressed(DATA / "held_out.npz", **_kept(held))  # type: ignore[arg-type]
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _fitted(found: Sequence[Run]) -> Spreads:
    measured = as_columns(found)
    return Spreads.from_document(fit_spreads(measured.cases, measured.seconds, seed=0).to_document())


def _intervals(measured: Measured, by: str, held: Held) -> dict[str, Logs]:
    return intervals(errors_of(measured, by, held.predicted_s, held.uncertainty))


def _first_spread(waits: Sequence[Waited], folds: Folds, known: Dated, slowdowns: Array) -> Logs:
    predicted = first_tokens_without(waits, folds, known, slowdowns)
    off = np.log(np.array([item.seconds for item in waits]) / predicted)
    return float(np.quantile(off, 0.1)), float(np.quantile(off, 0.9))


def _kept(held: Mapping[str, Held]) -> dict[str, npt.NDArray[np.float32]]:
    written = {f"{name}_predicted_s": each.predicted_s.astype(np.float32) for name, each in held.items()}
    return written | {f"{name}_doubt": each.uncertainty.astype(np.float32) for name, each in held.items()}


if __name__ == "__main__":
    sys.exit(main())
