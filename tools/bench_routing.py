"""Runs the experiments of tools/results/routing-*.csv and keeps their rows as JSON lines.

`python tools/bench_routing.py highest wrong robust flatness speed --out build/routing` runs them one after the other;
`--tables` writes these tables from what was kept.
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
        tables.keep_all(asked.out)


if __name__ == "__main__":
    main()
