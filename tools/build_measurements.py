"""Builds the shipped measurements and tools/results/data-*.csv from raw files; `--check` fails when they differ.

`python tools/build_measurements.py --raw DIR`, where DIR has the raw files that measurements/build.py names.
"""

import argparse
import sys
from pathlib import Path

from measurements.build import build
from measurements.page import data_tables
from measurements.tables import TABLES, table_text
from measurements.write import csv_files
from result_tables import RESULTS, csv_text

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "src" / "penstock" / "catalog" / "data" / "measurements"
CONTRIBUTED = "contributed.csv"
"""Rows people added by hand: not made from the raw files, and left as they are."""


def main() -> int:
    """Build, then write or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--raw", type=Path, required=True, help="folder with the raw files")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when something shipped differs")
    chosen = parser.parse_args()
    built = build(chosen.raw)
    texts = {FOLDER / name: text for name, text in csv_files(built.files).items()}
    texts |= {FOLDER.parent / name: table_text(TABLES[name].shape, held) for name, held in built.tables.items()}
    texts |= {RESULTS / f"{name}.csv": csv_text(table) for name, table in data_tables(built).items()}
    strangers = sorted(set(FOLDER.glob("*.csv")) - texts.keys() - {FOLDER / CONTRIBUTED})
    if not chosen.check:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        for path in strangers:
            path.unlink()
        print(f"{len(built.rows):,} rows written, {len(built.ledger.left):,} left out: data-filters.csv")
        return 0
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in (*stale, *strangers):
        print(f"{path.relative_to(ROOT)} is not what the raw files make; run `make measurements`", file=sys.stderr)
    return 1 if stale or strangers else 0


if __name__ == "__main__":
    sys.exit(main())
