"""Writes tools/results/accuracy-*.csv, first-tokens-*.csv and a chart from what `make calibration` held out.

`make accuracy` runs it (ten minutes); it needs the `report` extra for the charts.
"""

import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import altair as alt
import numpy as np
import vl_convert
from rerun import Reruns
from result_tables import keep

from penstock.catalog import load_accelerator, load_held_out
from penstock.performance.calibration.error_summary import Kept, summarise
from penstock.performance.calibration.first_token_waits import Waited, first_token_rows
from penstock.performance.calibration.held_out import Dated, HeldOut, first_tokens_without, folds_of
from penstock.performance.shipped.shipped_runs import model_of, shipped_efficiencies, shipped_errors, shipped_runs
from penstock.performance.step.step_work import Array
from penstock.report.accuracy import SPLITS, Published, markdown_table

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT / "tests" / "data" / "aiconfigurator_0_12.csv"
_LATE = 4
"""Times later than simulated from which a row was held up by something that is not in the model."""
_FEW = 5
_NEW_DAYS = 150
"""A model that was first measured at most so many days before the newest row is one of the newest models."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Queued:
    """First tokens and steps of the same rows, in closed form and through the simulator, in seconds."""

    waits: Sequence[Waited]
    first: Array
    first_simulated: Array
    step: Array
    step_simulated: Array
    kv_limited: Kept
    """Rows whose load exceeds the cache we predict."""


def queued(name: str, everything: HeldOut, known: Dated) -> Queued:
    """Hold out in one way and run every closed loop again, request by request."""
    reruns = Reruns(model_of, load_accelerator)
    held = everything.without(name)[name]
    waits = first_token_rows(everything.found)
    numbers = {run.row.id: number for number, run in enumerate(everything.found)}
    at = np.array([numbers[item.run.row.id] for item in waits])
    again = [reruns(item.run.row, held.slowdowns[number]) for item, number in zip(waits, at.tolist(), strict=True)]
    simulated = np.array([run.ttft_s for run in again])
    folds, slowdowns = folds_of(everything.cases, name)[at], held.slowdowns[at]
    print(f"simulated, without its {name}: {len(waits)} rows", file=sys.stderr)
    return Queued(
        waits=waits,
        first=first_tokens_without(waits, folds, known, slowdowns),
        first_simulated=first_tokens_without(waits, folds, known, slowdowns, simulated),
        step=held.predicted_s[at],
        step_simulated=np.array([run.tpot_s for run in again]),
        kv_limited=np.array([run.kv_limited for run in again]),
    )


def queue_table(by: Queued) -> str:
    """Errors of both, for every stack, as median / p90."""
    lines = [
        "| stack | rows | TTFT, closed form | TTFT, simulated | TPOT, closed form | TPOT, simulated |",
        "|---|---|---|---|---|---|",
    ]
    stacks = np.array([f"{item.run.row.accelerator} {item.run.row.engine}" for item in by.waits])
    ttft_s = np.array([item.seconds for item in by.waits])
    tpot_s = np.array([item.run.seconds for item in by.waits])
    for label in ("all", *np.unique(stacks).tolist()):
        kept = np.ones(len(stacks), np.bool_) if label == "all" else stacks == label
        pairs = ((by.first, ttft_s), (by.first_simulated, ttft_s), (by.step, tpot_s), (by.step_simulated, tpot_s))
        found = [summarise(predicted[kept], measured[kept]) for predicted, measured in pairs]
        cells = [f"{each.median:.1%} / {each.p90:.1%}" for each in found]
        lines.append(f"| {label} | {kept.sum():,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def slow_starts(by: Queued) -> str:
    """Say how many rows were queued, and how many we would have queued."""
    late = np.array([item.seconds for item in by.waits]) > _LATE * by.first_simulated
    others = Counter(
        f"{item.run.row.accelerator} {item.run.row.engine}"
        for item, held_up in zip(by.waits, late & ~by.kv_limited, strict=True)
        if held_up
    )
    return (
        f"{by.kv_limited.sum()} rows ask for more cache than we predict, counting every request at its full length.\n"
        "They were served, so they are simulated as if it were enough.\n"
        f"{(late & by.kv_limited).sum()} of them came more than {_LATE} times later than simulated, as in a queue;\n"
        f"{others.total()} others came as late without being short of cache:\n"
        f"{', '.join(f'{label} {count}' for label, count in others.most_common())}."
    )


def peer_table(by: Mapping[str, Published]) -> str:
    """Our error and AIConfigurator's on the same rows."""
    with PEER.open(encoding="utf-8") as file:
        theirs = {row["id"]: float(row["tpot_s"]) for row in csv.DictReader(file) if row["tpot_s"]}
    ids = [run.row.id for run in shipped_runs()]
    mine = {name: dict(zip(_held_ids(name, ids), by[name].errors.predicted_s.tolist(), strict=True)) for name in _PEER}
    rows = {run.row.id: run for run in shipped_runs() if run.row.id in theirs}
    both = [ident for ident in rows if all(ident in predicted for predicted in mine.values())]
    groups: dict[str, list[str]] = {"all": both}
    for ident in both:
        groups.setdefault(rows[ident].row.accelerator, []).append(ident)
        groups.setdefault(rows[ident].row.engine, []).append(ident)
    head = " | ".join(f"ours, without its {name}" for name in _PEER)
    lines = [f"| rows | n | AIConfigurator 0.12 | {head} |", "|" + "---|" * (3 + len(_PEER))]
    for label, idents in groups.items():
        cells = [
            _three([abs(of[ident] / rows[ident].seconds - 1) for ident in idents]) for of in (theirs, *mine.values())
        ]
        lines.append(f"| {label} | {len(idents):,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


_PEER = ("model", "month", "setup", "lengths")


def _held_ids(name: str, ids: Sequence[str]) -> list[str]:
    predicted = load_held_out()[f"{name}_predicted_s"]
    return [ident for ident, value in zip(ids, predicted.tolist(), strict=True) if not np.isnan(value)]


def _three(sizes: Sequence[float]) -> str:
    return f"{median(sizes):.1%} / {fmean(sizes):.1%} / {float(np.quantile(sizes, 0.9)):.1%}"


def floor_table() -> str:
    """How far a cell is from itself, measured again within a month and later: no prediction can be nearer."""
    cells: dict[tuple[object, ...], list[tuple[int, float]]] = defaultdict(list)
    for run in shipped_runs():
        row = run.row
        if row.scenario == "online" and row.dated == "day":
            load = (run.users, round(row.input_tokens), round(row.output_tokens))
            cells[*run.words.values(), row.kv, *load].append((row.date.toordinal(), run.seconds))
    apart: dict[str, list[float]] = {"within 31 days": [], "31 to 92 days": [], "later": []}
    for runs in cells.values():
        ordered = sorted(runs)
        for (early, before_s), (late, after_s) in pairwise(ordered):
            gap = late - early
            if gap:
                name = "within 31 days" if gap <= 31 else "31 to 92 days" if gap <= 92 else "later"
                apart[name].append(abs(before_s / after_s - 1))
    lines = ["| measured again | pairs | median | p90 |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {len(found):,} | {median(found):.1%} | {float(np.quantile(found, 0.9)):.1%} |"
        for name, found in apart.items()
        if found
    ]
    return "\n".join(lines) + "\n"


def worst_table(published: Published) -> str:
    """The setups that cause the largest errors."""
    rows = sorted(
        (item for item in published.by("part", "engine", "model", "weights") if item[1].rows >= _FEW),
        key=lambda item: -item[1].median,
    )
    return markdown_table(rows[:15], "setup")


def spread_table(published: Published) -> str:
    """Rows whose experts or attention are spread over ranks."""
    splits = np.array(published.rows.texts["split"])
    data, expert = np.char.find(splits, " dp1 ") < 0, np.char.endswith(splits, "ep1")
    kinds = {
        "tensor parallel": ~data & ~expert,
        "experts spread, one attention": ~data & expert,
        "attention of their own": data,
        "either": data | expert,
    }
    return markdown_table([(name, published.summary(kept)) for name, kept in kinds.items()], "split")


def configurations_table(by: Mapping[str, Published]) -> str:
    """Errors with each configuration counted once."""
    lines = [
        "| predicted without | configurations | median of their medians | P90 of their medians |",
        "|---|---|---|---|",
    ]
    for name, published in by.items():
        count, middle, most = published.by_configuration()
        lines.append(f"| {SPLITS[name]} | {count:,} | {middle:.1%} | {most:.1%} |")
    return "\n".join(lines) + "\n"


def loads_table(published: Published) -> str:
    """Errors and coverage by users and by prompt length."""
    users, prompts = published.rows.cases.users, published.rows.cases.input_tokens
    bins = {
        "1 to 4 users": users <= 4,
        "5 to 32 users": (users > 4) & (users <= 32),
        "33 to 128 users": (users > 32) & (users <= 128),
        "above 128 users": users > 128,
        "prompts up to 1,500 tokens": prompts <= 1500,
        "prompts of 1,501 to 6,000 tokens": (prompts > 1500) & (prompts <= 6000),
        "prompts above 6,000 tokens": prompts > 6000,
    }
    return markdown_table([(name, published.summary(kept)) for name, kept in bins.items() if kept.any()], "rows with")


def newest_table(published: Published) -> str:
    """The newest models, by vendor."""
    rows, newest = published.rows, float(published.rows.cases.day.max())
    models, vendors = np.array(rows.texts["model"]), np.array(rows.texts["vendor"])
    dated = ~rows.cases.undated
    first = {name: rows.cases.day[(models == name) & dated].min(initial=np.inf) for name in np.unique(models).tolist()}
    new = np.array([0 <= newest - first[name] <= _NEW_DAYS for name in models.tolist()])
    return markdown_table(
        [(vendor, published.summary(new & (vendors == vendor))) for vendor in ("amd", "nvidia")], "vendor"
    )


def winners_table(by: Mapping[str, Published]) -> str:
    """How often the faster vendor is named, and how often a fixed ranking names it."""
    lines = [
        "| not seen | comparisons | named | AMD won | NVIDIA won | always NVIDIA | ranking | AMD won |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, each in by.items():
        if (found := each.winners) is not None:
            own = (found.named, found.where_amd_won, found.where_nvidia_won)
            others = (found.always_nvidia, found.fixed_ranking, found.fixed_ranking_where_amd_won)
            cells = ["-" if share is None else f"{share:.1%}" for share in (*own, *others)]
            lines.append(f"| {SPLITS[name]} | {found.comparisons:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def save(chart: Any, name: str) -> None:  # noqa: ANN401 - one of Altair's many chart types
    """Write a chart as SVG."""
    target = ROOT / "docs" / "images" / name
    target.write_text(vl_convert.vegalite_to_svg(chart.to_json()), encoding="utf-8")


def _data(values: Sequence[Mapping[str, object]]) -> Any:  # noqa: ANN401 - Altair does not type its data
    return alt.Data(values=values)  # type: ignore[no-untyped-call]


def chart(month: Published) -> None:
    """Predicted against measured."""
    vendors = {"amd": "AMD", "nvidia": "NVIDIA"}
    points = [
        {"measured": measured * 1e3, "predicted": predicted * 1e3, "vendor": vendors.get(vendor, vendor)}
        for measured, predicted, vendor in zip(
            month.errors.measured_s.tolist(),
            month.errors.predicted_s.tolist(),
            month.rows.texts["vendor"],
            strict=True,
        )
    ][::3]
    scale = alt.Scale(type="log", domain=[2, 200], nice=False, clamp=True)
    dots = (
        alt.Chart(_data(points))
        .mark_circle(size=14, opacity=0.35)
        .encode(
            x=alt.X("measured:Q", scale=scale, title="measured TPOT, ms"),
            y=alt.Y("predicted:Q", scale=scale, title="predicted TPOT, ms, from the months before"),
            color=alt.Color("vendor:N", title="every third row", scale=alt.Scale(range=["#d1495b", "#2e8b57"])),
        )
        .properties(width=420, height=420)
    )
    line = alt.Chart(_data([{"a": 2}, {"a": 200}])).mark_line(color="grey", strokeWidth=1)
    save(dots + line.encode(x="a:Q", y="a:Q"), "accuracy.svg")


def main() -> int:
    """Compute and write everything."""
    by = {name: Published.of(name, *shipped_errors(name)) for name in SPLITS}
    efficiencies = shipped_efficiencies()
    everything, known = HeldOut(shipped_runs(), efficiencies.evidence.spreads), Dated(efficiencies.evidence)
    queues = {name: queued(name, everything, known) for name in ("lengths", "model")}
    tables = {
        "accuracy-overall": markdown_table(
            [(SPLITS[name], each.summary()) for name, each in by.items()], "predicted without"
        ),
        "accuracy-winners": winners_table(by),
        "accuracy-month": markdown_table(by["month"].by("part"), "accelerator"),
        "accuracy-setup": markdown_table(by["setup"].by("part"), "accelerator"),
        "accuracy-model": markdown_table(by["model"].by("part"), "accelerator"),
        "accuracy-accelerator": markdown_table(by["accelerator"].by("part"), "accelerator"),
        "accuracy-splits": spread_table(by["setup"]),
        "accuracy-stacks": markdown_table(by["month"].by("part", "engine"), "stack"),
        "accuracy-weights": markdown_table(by["setup"].by("weights"), "weights"),
        "accuracy-models": markdown_table(by["model"].by("model"), "model"),
        "accuracy-configurations": configurations_table(by),
        "accuracy-loads": loads_table(by["setup"]),
        "accuracy-between-loads": loads_table(by["load"]),
        "accuracy-newest": newest_table(by["setup"]),
        "accuracy-repeats": floor_table(),
        "accuracy-aiconfigurator": peer_table(by),
        "first-tokens-lengths": queue_table(queues["lengths"]),
        "first-tokens-model": queue_table(queues["model"]),
        "accuracy-worst": worst_table(by["model"]),
    }
    for name, table in tables.items():
        keep(name, table)
    print(slow_starts(queues["lengths"]))
    chart(by["month"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
