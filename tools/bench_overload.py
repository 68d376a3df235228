"""Compares policies from 50% to 150% of capacity, and writes the tables tools/results/overload-*.csv.

`python tools/bench_overload.py` runs every cell once and keeps its rows as JSON lines in build/overload;
`--tables` writes the tables from the rows that were kept.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import result_tables
from routing import overload, overload_cases
from routing.experiments import Row


def keep(path: Path, rows: Iterator[Row]) -> None:
    """Write rows as they come."""
    with path.open("w", encoding="utf-8") as kept:
        for row in rows:
            kept.write(json.dumps(row) + "\n")
            kept.flush()


def read(path: Path) -> list[dict[str, Any]]:
    """Read rows that were kept."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def mean(rows: list[dict[str, Any]], field: str) -> float:
    """Return the mean of a field; of `kept`, that of the worse class."""
    values = [min(row[field]) if field == "kept" else row[field] for row in rows]
    return sum(float(value) for value in values) / len(values)


def curve_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Write one line per fleet and load: the worse class by our three ways and by the best peer."""
    at = sorted({float(row["at"]) for row in rows})
    yield "| fleet, load | " + " | ".join(f"{times:.0%}" for times in at) + " |"
    yield "|---|" + "---|" * len(at)
    for name in dict.fromkeys(f"{row['fleet']}, {row['load']}" for row in rows):
        cells = []
        for times in at:
            here = [row for row in rows if f"{row['fleet']}, {row['load']}" == name and row["at"] == times]
            own = [[row for row in here if row["policy"] == f"penstock, {way}"] for way in overload.OURS]
            kept = " / ".join(f"{mean(one, 'kept'):.3f}".lstrip("0") for one in own)
            peers = {str(row["policy"]) for row in here if not str(row["policy"]).startswith("penstock")}
            best = max(best_tuned([row for row in here if row["policy"] == peer], "kept") for peer in peers)
            cells.append(f"{kept} / {best:.3f}".replace(" 0.", " ."))
        yield f"| {name} | " + " | ".join(cells) + " |"


def best_tuned(rows: list[dict[str, Any]], field: str) -> float:
    """Return a peer's mean over seeds with its best setting."""
    seeds = len({row["seed"] for row in rows})
    settings = len(rows) // seeds
    return max(mean(rows[place::settings], field) for place in range(settings))


def below_peers(rows: list[dict[str, Any]], way: str) -> Iterator[str]:
    """Say in how many cells we are below the best tuned peer by more than the spread of seeds."""
    cells = {(row["fleet"], row["load"], row["at"]) for row in rows}
    for field in ("good_tokens", "kept"):
        below = []
        for key in cells:
            here = [row for row in rows if (row["fleet"], row["load"], row["at"]) == key]
            own = [row for row in here if row["policy"] == f"penstock, {way}"]
            values = [min(row["kept"]) if field == "kept" else row[field] for row in own]
            spread = max(values) - min(values)
            peers = {str(row["policy"]) for row in here if not str(row["policy"]).startswith("penstock")}
            best = max(best_tuned([row for row in here if row["policy"] == peer], field) for peer in peers)
            if mean(own, field) < best - max(spread, 1e-3 * best):
                below.append((key, mean(own, field), best))
        yield f"{way}, {field}: below in {len(below)} of {len(cells)} cells {below[:5]}"


def robust_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Write one line per case: the worse class and good tokens of our three ways."""
    names = list(dict.fromkeys(f"{row['fleet']}, {row['load']}" for row in rows))
    yield "| at 130%: serve / refuse / hold | " + " | ".join(names) + " |"
    yield "|---|" + "---|" * len(names)
    for case in dict.fromkeys(str(row["case"]) for row in rows):
        cells = []
        for name in names:
            here = [row for row in rows if row["case"] == case and f"{row['fleet']}, {row['load']}" == name]
            own = [[row for row in here if row["policy"] == way] for way in overload.OURS]
            cells.append(" / ".join(f"{mean(one, 'kept'):.3f}" for one in own).replace("0.", "."))
        yield f"| {case} | " + " | ".join(cells) + " |"


def case_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Write one line per case and rate: every class that was kept, our three ways and each peer."""
    policies = list(dict.fromkeys(str(row["policy"]) for row in rows))
    yield "| case, requests/s | " + " | ".join(policies) + " |"
    yield "|---|" + "---|" * len(policies)
    for case, rate in dict.fromkeys((str(row["case"]), float(row["rate"])) for row in rows):
        cells = []
        for policy in policies:
            here = [row for row in rows if (row["case"], row["rate"], row["policy"]) == (case, rate, policy)]
            field = "second_half" if "40,000" in case else "kept"
            kept = [one[field] if field == "kept" else [one[field]] for one in here]
            means = [sum(values) / len(values) for values in zip(*kept, strict=True)]
            cells.append(", ".join(f"{value:.3f}".removeprefix("0") for value in means))
        yield f"| {case}, {rate:g} | " + " | ".join(cells) + " |"


def main() -> None:
    """Run every cell, or only write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/overload"))
    parser.add_argument("--tables", action="store_true", help="only write the tables from the rows that were kept")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if not asked.tables:
        keep(asked.out / "curves.jsonl", overload.curves(asked.out / "capacity.json"))
        keep(asked.out / "robust.jsonl", overload.robust(asked.out / "capacity.json"))
        keep(asked.out / "cases.jsonl", overload_cases.cases())
    for way in overload.OURS:
        print("\n".join(below_peers(read(asked.out / "curves.jsonl"), way)))
    for name, table in (("curves", curve_table), ("robust", robust_table), ("cases", case_table)):
        result_tables.keep(f"overload-{name}", "\n".join(table(read(asked.out / f"{name}.jsonl"))))


if __name__ == "__main__":
    main()
