"""Fits what is accepted of drafts to the shipped runs with and without them; `make drafts` runs it (a minute)."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from penstock.performance.calibration.draft_acceptance import fit_drafts, to_document
from penstock.performance.calibration.drafted_evidence import draft_intervals
from penstock.performance.shipped.shipped_drafts import (
    Known,
    PredictedDraft,
    held_out_drafts,
    published_acceptance,
    shipped_drafted_rows,
    shipped_solution,
)

DATA = Path(__file__).resolve().parent.parent / "src/penstock/catalog/data"


def main() -> int:
    """Fit, write, and say how wrong it is with a load or a setup held out."""
    rows = shipped_drafted_rows()
    fitted = fit_drafts(rows, published_acceptance())
    evidence = shipped_solution().evidence(draft_intervals(shipped_solution()))
    intervals = {name: [round(end, 4) for end in span] for name, span in evidence.intervals.items()}
    document = to_document(fitted) | {"intervals": intervals}
    (DATA / "drafts.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    np.savez_compressed(DATA / "drafted_evidence.npz", **evidence.to_arrays())  # type: ignore[arg-type]
    print(f"{len(rows)} runs, {sum(fitted.pairs.values())} pairs: {document}")
    kinds: tuple[Known, ...] = ("nothing", "without drafts", "other loads")
    for known in kinds:
        held = held_out_drafts(known)
        print(f"of its setup was known: {known}")
        print(f"  all {_errors(held)}")
        _print_by(held, lambda entry: entry.row.measurement.source)
        _print_by(held, lambda entry: entry.row.measurement.model)
        _print_by(held, lambda entry: entry.row.measurement.accelerator)
    return 0


def _print_by(held: Sequence[PredictedDraft], label: Callable[[PredictedDraft], str]) -> None:
    for name in sorted({label(entry) for entry in held}):
        print(f"  {name} {_errors([entry for entry in held if label(entry) == name])}")


def _errors(held: Sequence[PredictedDraft]) -> str:
    errors = [entry.error for entry in held]
    sizes = sorted(map(abs, errors))
    return f"{len(held)} runs, {median(sizes):.1%} (p90 {sizes[int(0.9 * len(sizes))]:.0%}, bias {median(errors):+.1%})"


if __name__ == "__main__":
    sys.exit(main())
