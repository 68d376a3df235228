"""Runs the experiments of docs/reports/routing-results.md and keeps their rows as JSON lines.

`python tools/bench_routing.py highest wrong robust flatness speed --out build/routing` runs them one after the other;
`--tables` writes the tables into docs/reports/routing-results.md from what was kept.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from routing import elastic, experiments, mooncake, tables

EXPERIMENTS: dict[str, Callable[[], Iterator[experiments.Row]]] = {
    "highest": experiments.highest,
    "wrong": experiments.wrong,
    "robust": experiments.robust,
    "flatness": experiments.flatness,
    "speed": experiments.speed,
    "elasticity": elastic.elasticity,
    "mooncake": mooncake.curves,
}
PAGE = Path(__file__).parents[1] / "docs" / "reports" / "routing-results.md"


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", help=", ".join(EXPERIMENTS))
    parser.add_argument("--out", type=Path, default=Path("build/routing"))
    parser.add_argument("--tables", action="store_true")
    asked = parser.parse_args()
    unknown = [name for name in asked.what if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"{unknown[0]} is not an experiment; known: {', '.join(EXPERIMENTS)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.what:
        with (asked.out / f"{name}.jsonl").open("w", encoding="utf-8") as kept:
            for row in EXPERIMENTS[name]():
                print(json.dumps(row), flush=True)
                kept.write(json.dumps(row) + "\n")
                kept.flush()
    if asked.tables:
        PAGE.write_text(tables.filled(PAGE.read_text(encoding="utf-8"), asked.out), encoding="utf-8")


if __name__ == "__main__":
    main()
