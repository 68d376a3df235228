"""Compares peers' formulas with defaults and with exported constants: tables tools/results/exports-*.csv.

`python tools/bench_exports.py` keeps the rows as JSON lines in build/exports; `--tables` only writes the tables.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from result_tables import keep
from routing import exported_constants


def router_table(rows: list[dict[str, Any]], end: str = "") -> Iterator[str]:
    """Write one line per fleet and load: the highest rate with defaults, with exported weights, and the gain."""
    names = list(exported_constants.ROUTERS)
    yield "| fleet, load | exported weights | " + " | ".join(names) + " | least expected harm |"
    yield "|---|---|" + "---|" * (len(names) + 1)
    for key in dict.fromkeys((row["fleet"], row["load"]) for row in rows):
        mine = [row for row in rows if (row["fleet"], row["load"]) == key]
        cells = []
        for name in names:
            before, after = (mean(row[f"{name}, {which}{end}"] for row in mine) for which in ("default", "exported"))
            change = f"{after / before - 1:+.0%}" if before > 0 else "-"
            cells.append(f"{before:.3g} to {after:.3g} ({change})")
        weights = ":".join(f"{weight:.0f}" for weight in mine[0][f"{names[0]}, weights"])
        ours = mean(row["penstock"] for row in mine)
        yield f"| {', '.join(key)} | {weights} | " + " | ".join(cells) + f" | {ours:.3g} |"


def slow_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Write the same table for AMD replicas that are slower than the constants say."""
    for line in router_table(rows, ", slow"):
        yield "|".join(line.split("|")[:-2]) + "|"


def scaler_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Write one line per fleet, autoscaler and constants."""
    yield "| fleet | autoscaler | constants | $ a day | requests within the SLO |"
    yield "|---|---|---|---|---|"
    for row in rows:
        start = f"| {row['fleet']} | {row['scaler']} | {row['constants']} "
        yield f"{start}| {row['usd']:,.0f} | {row['met']:.1%} |"


EXPERIMENTS = {"routers": exported_constants.routers, "autoscalers": exported_constants.autoscalers}
TABLES = (
    ("routers", "routers", router_table),
    ("slow", "routers", slow_table),
    ("scalers", "autoscalers", scaler_table),
)


def main() -> None:
    """Run both experiments, or only write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=list(EXPERIMENTS), help=", ".join(EXPERIMENTS))
    parser.add_argument("--out", type=Path, default=Path("build/exports"))
    parser.add_argument("--tables", action="store_true", help="only write the tables from the rows that were kept")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in () if asked.tables else asked.what:
        with (asked.out / f"{name}.jsonl").open("w", encoding="utf-8") as kept:
            for row in EXPERIMENTS[name]():
                kept.write(json.dumps(row) + "\n")
                kept.flush()
    for mark, name, table in TABLES:
        path = asked.out / f"{name}.jsonl"
        if not path.exists():
            continue
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        keep(f"exports-{mark}", "\n".join(table(rows)))


if __name__ == "__main__":
    main()
