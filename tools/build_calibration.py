"""Fits the shipped efficiencies to the shipped measurements; `make calibration` runs it (about two minutes)."""

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from math import log
from pathlib import Path
from statistics import quantiles

from penstock.benchmark.shipped_rows import measured_pairs, model_of, near_errors
from penstock.catalog import load_accelerator
from penstock.performance.evidence.efficiencies import fit_efficiencies, to_document
from penstock.performance.evidence.waits import waited

TARGET = Path(__file__).resolve().parent.parent / "src/penstock/catalog/data/efficiencies.json"


def main() -> int:
    """Fit and write."""
    pairs = measured_pairs()
    today = datetime.now(tz=UTC).date()
    fitted = fit_efficiencies(pairs, waited(pairs, model_of, load_accelerator), fitted_on=today)
    TARGET.write_text(json.dumps(to_document(fitted), indent=1) + "\n", encoding="utf-8")
    # What is left near measured cells depends on what was just written.
    off = [log((row.tpot_s or 1.0) / predicted_s) for row, predicted_s in near_errors()]
    deciles = quantiles(off, n=10)
    fitted = replace(fitted, near_spread=(deciles[0], deciles[-1]))
    TARGET.write_text(json.dumps(to_document(fitted), indent=1) + "\n", encoding="utf-8")
    print(f"{fitted.rows} rows, {len(fitted.calibration.by_kin)} kinds of kin")
    print(f"spreads {dict(fitted.spreads)}, of first tokens {dict(fitted.first_spreads)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
