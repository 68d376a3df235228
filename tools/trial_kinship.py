"""Fit and judge the covariance of measurements: `python tools/trial_kinship.py` (five minutes). See decision 8."""

import argparse
from pathlib import Path

import numpy as np
from kinship.cases import COLUMNS, REFERENCE, cases
from kinship.covariance import Spreads, covariance, linear
from kinship.fit import fit, subset
from kinship.held_out import Predicted, a_month_ahead, winners, without

from penstock.catalog import load_accelerator, load_measurements

_LEAST_ROWS = 100


def main() -> None:
    """Print the held-out errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1500, help="rows the spreads are fitted to")
    parser.add_argument("--keep", type=Path, help="write the spreads here")
    asked = parser.parse_args()
    found = cases(load_measurements())
    spreads: Spreads = fit(subset(found, asked.rows, seed=0))
    if asked.keep is not None:
        spreads.write(asked.keep)
    slowdowns = REFERENCE * np.exp(spreads.shift)
    print("common slowdowns:", ", ".join(f"{name} {value:.3g}" for name, value in zip(COLUMNS, slowdowns, strict=True)))
    _, shares, left = linear(found, spreads.shift)
    whole = covariance(found, shares, spreads)
    parts = np.array([row.accelerator for row in found.rows])
    vendors = np.array([load_accelerator(part).vendor for part in parts])
    spread_out = np.array([row.dp > 1 or row.ep for row in found.rows])
    every = np.ones(len(found), np.bool_)

    def show(name: str, held: Predicted, tried: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        print(f"\n{name}")
        print(held.line("all", tried))
        for vendor in ("amd", "nvidia"):
            print(held.line(vendor, tried & (vendors == vendor)))
        for part in sorted(set(parts.tolist())):
            if (tried & (parts == part)).sum() >= _LEAST_ROWS:
                print(held.line(part, tried & (parts == part)))
        print(held.line("ep or dp", tried & spread_out))

    alone = np.arange(len(found))
    folds = {"lengths": found.labels["shape"], "curve": found.labels["setup"], "model": found.labels["family"]}
    for name, codes in {**folds, "load": alone}.items():
        held = without(whole, left, codes)
        show(f"without its {name}", held, every)
        if name == "model":
            print(winners(found, held.off))
    show("a month ahead", *a_month_ahead(found, whole, left))


if __name__ == "__main__":
    main()
