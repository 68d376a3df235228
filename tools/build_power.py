"""Fits what devices draw under load to the shipped joules; `make power` runs it (ten seconds)."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from penstock.performance.power.power_document import to_document
from penstock.performance.power.power_fit import fit_power, power_spreads
from penstock.performance.shipped.shipped_energy import PredictedDraw, held_out_draws, shipped_draws

TARGET = Path(__file__).resolve().parent.parent / "src/penstock/catalog/data/power.json"


def main() -> int:
    """Fit, write, and say how wrong it is with a curve held out."""
    rows = shipped_draws()
    fitted = fit_power(rows, power_spreads(rows))
    TARGET.write_text(json.dumps(to_document(fitted), indent=1) + "\n", encoding="utf-8")
    print(f"{fitted.rows} rows, {len(fitted.factors)} kinds of kernels, spreads {dict(fitted.spreads)}")
    held = held_out_draws()
    for at in (0, 1):
        for name in sorted({entry.row.path[at] for entry in held}):
            chosen = [entry for entry in held if entry.row.path[at] == name]
            print(f"{name:10s} {len(chosen):5d} rows  {_errors(chosen)}")
    return 0


def _errors(held: Sequence[PredictedDraw]) -> str:
    kinds = {
        "joules, speed predicted": [entry.joules_error for entry in held],
        "joules, speed known": [entry.joules_error_at_its_speed for entry in held],
        "watts, speed predicted": [entry.watts_error for entry in held],
    }
    parts = [
        f"{name} {median(map(abs, errors)):.1%} (p90 {sorted(map(abs, errors))[int(0.9 * len(errors))]:.0%}, "
        f"bias {median(errors):+.1%})"
        for name, errors in kinds.items()
    ]
    covered = sum(entry.covered for entry in held) / len(held)
    return f"{'; '.join(parts)}; joules in P10-P90 {covered:.0%}"


if __name__ == "__main__":
    sys.exit(main())
