"""Fits the shipped efficiencies to the shipped measurements; `make calibration` runs it (about two minutes)."""

import json
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from penstock.catalog import load_accelerator, load_measurements
from penstock.checkpoint import open_checkpoint
from penstock.model import ModelSpec
from penstock.performance.efficiencies import fit_efficiencies, to_document
from penstock.performance.evidence import calibration_rows

TARGET = Path(__file__).resolve().parent.parent / "src/penstock/catalog/data/efficiencies.json"


@cache
def model_of(name: str) -> ModelSpec:
    """Read a catalog model once."""
    return open_checkpoint(name).spec


def main() -> int:
    """Fit and write."""
    pairs = calibration_rows(load_measurements(), model_of, load_accelerator)
    today = datetime.now(tz=UTC).date()
    fitted = fit_efficiencies(pairs, model_of, load_accelerator, fitted_on=today)
    TARGET.write_text(json.dumps(to_document(fitted), indent=1) + "\n", encoding="utf-8")
    print(f"{fitted.rows} rows, {len(fitted.calibration.pools)} pools, spreads {dict(fitted.spreads)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
