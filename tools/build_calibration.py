"""Learns from the shipped measurements what commands predict with; `make calibration` runs it (twenty minutes).

Spreads are fitted only when asked for (`--spreads`): a new row changes what is said, not how alike rows are.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
from calibration.spreads import fit_spreads

from penstock.catalog import load_efficiencies, load_held_out, load_measurements
from penstock.performance.calibration.efficiencies import Novelty, to_arrays, to_document
from penstock.performance.calibration.error_summary import Logs, intervals
from penstock.performance.calibration.first_token_waits import Waited, fit_first_tokens
from penstock.performance.calibration.held_out import (
    FOLDS,
    Dated,
    Held,
    HeldOut,
    errors_of,
    first_tokens_without,
    folds_of_waits,
    slowdowns_matching,
    slowdowns_of_waits,
)
from penstock.performance.calibration.measured_runs import Run, as_columns, medians_of_runs
from penstock.performance.calibration.repeated_runs import repeat_spread
from penstock.performance.shipped.shipped_runs import shipped_efficiencies, shipped_first_tokens, shipped_runs
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
    parser.add_argument(
        "--first-tokens",
        action="store_true",
        help="fit times to first token only (five minutes); keep the held-out predictions of times per token",
    )
    asked = parser.parse_args()
    found = shipped_runs()
    spreads = _fitted(found) if asked.spreads else Spreads.from_document(load_efficiencies()["spreads"])
    if asked.first_tokens:
        known_before, slowdowns = shipped_efficiencies().evidence, None
        first_s = as_columns(found).first_s
        evidence = replace(known_before, measured=replace(known_before.measured, first_s=first_s))
        efficiencies = replace(shipped_efficiencies(), evidence=evidence)
    else:
        evidence = solve(as_columns(found, medians_of_runs(load_measurements())), spreads)
        _say(f"{len(found):,} rows solved")
        held = HeldOut(found, spreads).without(*FOLDS)
        _say("held out")
        slowdowns = {by: held[by].slowdowns for by in _FIRST_BY.values()}
        np.savez_compressed(DATA / "held_out.npz", **_kept(held))  # type: ignore[arg-type]
        efficiencies = replace(
            shipped_efficiencies(),
            evidence=evidence,
            intervals={new: _intervals(evidence.measured, by, held[by]) for new, by in _BY.items()},
            repeats=repeat_spread(evidence.measured, evidence.measured.seconds),
        )
    waits, known = shipped_first_tokens(), Dated(evidence)
    first = fit_first_tokens(waits, known)
    _say(f"{len(waits):,} times to first token fitted")
    efficiencies = replace(
        efficiencies,
        first=first,
        first_spreads={
            new: _first_spread(
                waits, by, known, (_matching(by, known, found) if slowdowns is None else slowdowns[by], found)
            )
            for new, by in _FIRST_BY.items()
        },
        first_repeats=repeat_spread(evidence.measured, evidence.measured.first_s),
        fitted_on=_today(),
    )
    (DATA / "efficiencies.json").write_text(json.dumps(to_document(efficiencies), indent=1) + "\n", encoding="utf-8")
    np.savez_compressed(DATA / "evidence.npz", **to_arrays(efficiencies))  # type: ignore[arg-type]
    return 0


def _today() -> str:
    return datetime.now(tz=UTC).date().isoformat()


def _matching(by: str, known: Dated, found: Sequence[Run]) -> Array:
    return slowdowns_matching(load_held_out()[f"{by}_predicted_s"].astype(np.float64), known, found)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _fitted(found: Sequence[Run]) -> Spreads:
    measured = as_columns(found)
    return Spreads.from_document(fit_spreads(measured.cases, measured.seconds, seed=0).to_document())


def _intervals(measured: Measured, by: str, held: Held) -> dict[str, Logs]:
    return intervals(errors_of(measured, by, held.predicted_s, held.uncertainty))


def _first_spread(waits: Sequence[Waited], by: str, known: Dated, held: tuple[Array, Sequence[Run]]) -> Logs:
    """Return P10 and P90 of measured over predicted time to first token, as logarithms, over rows without drafts.

    `held` are the slowdowns of each run without its fold, and the runs. The time in the loop is taken to change by the
    same factor as the time per token.
    """
    slowdowns = slowdowns_of_waits(waits, *held)
    rooflines = np.array([item.run.roofline for item in waits])
    own = np.array([known(item.run) for item in waits])
    factors = np.einsum("ij,ij->i", rooflines, slowdowns) / np.einsum("ij,ij->i", rooflines, own)
    loop_s = np.array([item.loop_s(each) for item, each in zip(waits, own, strict=True)])
    predicted = first_tokens_without(waits, folds_of_waits(waits, by), known, slowdowns, loop_s * factors)
    off = np.log(np.array([item.seconds for item in waits]) / predicted)
    return float(np.nanquantile(off, 0.1)), float(np.nanquantile(off, 0.9))


def _kept(held: Mapping[str, Held]) -> dict[str, npt.NDArray[np.float32]]:
    written = {f"{name}_predicted_s": each.predicted_s.astype(np.float32) for name, each in held.items()}
    return written | {f"{name}_doubt": each.uncertainty.astype(np.float32) for name, each in held.items()}


if __name__ == "__main__":
    sys.exit(main())
