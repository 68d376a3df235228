"""How are the experiments' rows shown? As the tables tools/results/routing-*.csv."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

from result_tables import keep

Row = dict[str, float | str]
_PEERS = (
    "round-robin",
    "weighted-round-robin",
    "least-request",
    "in-flight-per-capacity",
    "llm-d-scorers",
    "llm-d",
    "dynamo",
    "sglang-cache-aware",
)


def keep_all(kept: Path) -> None:
    """Write the table of every experiment that was measured."""
    for name, table in _TABLES.items():
        path = kept / f"{name}.jsonl"
        if path.exists() and path.stat().st_size:
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            keep(f"routing-{name}", table(rows))


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _highest(rows: list[Row]) -> str:
    head = ["fleet, load", *_PEERS, "best tuned peer", "**penstock**", "seeds", "saving, untuned / tuned"]
    cells: list[list[str]] = []
    for key in dict.fromkeys((row["fleet"], row["load"]) for row in rows):
        mine = [row for row in rows if (row["fleet"], row["load"]) == key]
        ours = [float(row["penstock"]) for row in mine]
        peers = {name: mean(float(row[name]) for row in mine) for name in _PEERS}
        tuned = max(mean(float(row[f"{name} tuned"]) for row in mine) for name in _PEERS)
        savings = [1 - other / mean(ours) for other in (max(peers.values()), tuned)]
        cells.append(
            [
                f"{key[0]}, {key[1]}",
                *(f"{peers[name]:.2f}" for name in _PEERS),
                f"{tuned:.2f}",
                f"**{mean(ours):.2f}**",
                f"{min(ours):.2f}-{max(ours):.2f}",
                " / ".join(f"{saving:.0%}" for saving in savings),
            ]
        )
    return _markdown(head, cells)


def _wrong(rows: list[Row]) -> str:
    factors = ("0.75", "0.9", "1.1", "1.25")
    kinds = {"learning": "", "first minute": ", first minute", "not learning": ", never"}
    names = [f"x{factor}{said}" for said in kinds.values() for factor in factors]
    head = ["fleet, load", *names, "best untuned peer, first minute"]
    cells = [
        [
            f"{row['fleet']}, {row['load']}",
            *(f"{row[f'believed x{factor}, {kind}']:.2f}" for kind in kinds for factor in factors),
            f"{row['best untuned peer, first minute']:.2f}",
        ]
        for row in rows
    ]
    return _markdown(head, cells)


def _robust(rows: list[Row]) -> str:
    head = ["fleet, load", "case", "goodput over fresh", "SLO met, worst class", "TTFT p99 over fresh", "preempted"]
    fresh = {(row["fleet"], row["load"]): row for row in rows if row["case"] == "fresh"}
    cells = []
    for row in rows:
        base = fresh[row["fleet"], row["load"]]
        cells.append(
            [
                f"{row['fleet']}, {row['load']}",
                str(row["case"]),
                f"{float(row['goodput']) / float(base['goodput']):.3f}",
                f"{float(row['met']):.1%}",
                f"{float(row['p99_ttft_s']) / float(base['p99_ttft_s']):.2f}",
                f"{row['preemptions']:,}",
            ]
        )
    return _markdown(head, cells)


def _flatness(rows: list[Row]) -> str:
    cases = list(dict.fromkeys((row["fleet"], row["load"]) for row in rows))
    head = ["parameter", "value", *(f"{fleet}, {load}" for fleet, load in cases)]
    cells = []
    for parameter, value in dict.fromkeys((row["parameter"], row["value"]) for row in rows):
        found = {
            (row["fleet"], row["load"]): row["rate"]
            for row in rows
            if (row["parameter"], row["value"]) == (parameter, value)
        }
        cells.append(
            [
                f"`{parameter}`",
                f"{float(value):g}",
                *(f"{float(found[case]):.3f}" if case in found else "-" for case in cases),
            ]
        )
    return _markdown(head, cells)


def _speed(rows: list[Row]) -> str:
    cells = [
        [
            str(row["what"]),
            f"{float(row['requests_per_s']):,.0f} requests/s"
            if "requests_per_s" in row
            else f"{float(row['microseconds']):.1f} us",
        ]
        for row in rows
    ]
    return _markdown(["what", "measured"], cells)


def _mooncake(rows: list[Row]) -> str:
    names = [name for name in rows[0] if name not in {"fleet", "rate", "share"} and not name.endswith(" hits")]
    head = ["fleet", "requests/s", *names]
    cells = [
        [
            str(row["fleet"]),
            f"{float(row['rate']):.1f}",
            *(f"{float(row[name]):.1%} ({float(row[f'{name} hits']):.0%})" for name in names),
        ]
        for row in rows
    ]
    return _markdown(head, cells)


def _elasticity(rows: list[Row]) -> str:
    head = ["fleet", "asked every", "scaler", "router", "setting", "$ a day", "requests within the SLO"]
    cells = [
        [
            str(row["fleet"]),
            f"{float(row['asked_every_s']):g} s",
            str(row["scaler"]),
            str(row["router"]),
            f"{float(row['setting']):g}",
            f"{float(row['usd']):,.0f}",
            f"{float(row['met']):.1%}",
        ]
        for row in rows
    ]
    return _markdown(head, cells)


_TABLES: dict[str, Callable[[list[Row]], str]] = {
    "highest": _highest,
    "wrong": _wrong,
    "robust": _robust,
    "flatness": _flatness,
    "speed": _speed,
    "elasticity": _elasticity,
    "mooncake": _mooncake,
}
