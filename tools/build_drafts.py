"""Fits what is accepted of drafts to the shipped runs with and without them; `make drafts` runs it (a minute)."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from penstock.performance.calibration.draft_acceptance import draft_spreads, fit_drafts, to_document
from penstock.performance.shipped.shipped_drafts import Known, PredictedDraft, held_out_drafts, shipped_drafted_rows

TARGET = Path(__file__).resolve().parent.parent / "src/penstock/catalog/data/drafts.json"


def main() -> int:
    """Fit, write, and say how wrong it is with a curve held out."""
    rows = shipped_drafted_rows()
    fitted = fit_drafts(rows, draft_spreads(rows))
    TARGET.write_text(json.dumps(to_document(fitted), indent=1) + "\n", encoding="utf-8")
    print(f"{len(rows)} runs, {sum(fitted.pairs.values())} pairs: {to_document(fitted)}")
    kinds: tuple[Known, ...] = ("nothing", "without drafts")
    for known in kinds:
        held = held_out_drafts(known)
        print(f"of its setup was known: {known}")
        print(f"  all {_errors(held)}")
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
