"""Writes docs/accuracy.md and its charts: every way of holding out, beside a peer and the simulator. Ten minutes.

`make accuracy` runs it; it needs the `report` extra for the charts.
"""

import csv
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from statistics import fmean, median
from typing import Any

import altair as alt
import numpy as np
import vl_convert

from penstock.benchmark.rerun import Reruns
from penstock.benchmark.shipped_rows import believed_pairs, measured_pairs, model_of
from penstock.catalog import load_accelerator, load_efficiencies
from penstock.performance.evidence.accuracy import (
    FOLDS,
    ErrorSummary,
    Held,
    HeldOut,
    before_and_after,
    contests,
    hold_out,
    refits,
    summarise,
    with_coverage,
)
from penstock.performance.evidence.efficiencies import from_document
from penstock.performance.evidence.tax import delivered_over_time
from penstock.performance.evidence.waits import waited
from penstock.report.accuracy import GROUPS, SCENARIOS, markdown_table, summary_rows, winner_lines

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT / "tests" / "data" / "aiconfigurator_0_12.csv"
_LATE = 4
"""Times later than simulated from which a row was held up by something that is not in the model."""
CUTS = (date(2026, 2, 1), date(2026, 4, 1))


@dataclass(frozen=True, kw_only=True)
class Queued:
    """First tokens and steps of the same rows, in closed form and through the simulator."""

    first: Held
    first_simulated: Held
    step: Held
    step_simulated: Held
    kv_limited: frozenset[str]
    """Rows whose load exceeds the cache we predict."""


def held_out(name: str) -> Held:
    """Hold out in one way, with the interval coverage of each scenario."""
    rows = list(hold_out(measured_pairs(), FOLDS[name]))
    print(f"held out by {name}: {len(rows)} rows", file=sys.stderr)
    return with_coverage(name, rows)


def queued(name: str) -> Queued:
    """Hold out in one way and run every closed loop again, request by request."""
    reruns = Reruns(model_of, load_accelerator)
    found: dict[str, list[HeldOut]] = {"first": [], "first_simulated": [], "step": [], "step_simulated": []}
    limited = set()
    pairs = measured_pairs()
    for refit in refits(pairs, waited(pairs, model_of, load_accelerator), FOLDS[name]):
        again = {
            item.measurement.id: reruns(item.measurement, refit.fitted.step.slowdowns(item.row)) for item in refit.waits
        }
        steps = [entry for entry in refit.steps() if entry.measurement.id in again]
        found["first"] += refit.first_tokens()
        found["first_simulated"] += refit.first_tokens(lambda item, again=again: again[item.measurement.id].ttft_s)  # type: ignore[misc]
        found["step"] += steps
        found["step_simulated"] += [replace(e, predicted_s=again[e.measurement.id].tpot_s) for e in steps]
        limited |= {ident for ident, run in again.items() if run.kv_limited}
    print(f"simulated, held out by {name}: {len(found['first'])} rows", file=sys.stderr)
    held = {kind: with_coverage(name, rows) for kind, rows in found.items()}
    return Queued(kv_limited=frozenset(limited), **held)


def peer_table(shape: Held, model: Held) -> str:
    """Our error and AIConfigurator's on the same rows."""
    with PEER.open(encoding="utf-8") as file:
        theirs = {row["id"]: float(row["tpot_s"]) for row in csv.DictReader(file) if row["tpot_s"]}
    lines = [
        "| rows | n | AIConfigurator 0.12 | ours, shape held out | ours, model held out |",
        "|---|---|---|---|---|",
    ]
    by_shape = {row.measurement.id: row for row in shape.rows if row.measurement.id in theirs}
    by_model = {row.measurement.id: row for row in model.rows if row.measurement.id in theirs}
    groups: dict[str, list[str]] = {"all": list(by_shape)}
    for ident, row in by_shape.items():
        groups.setdefault(row.measurement.accelerator, []).append(ident)
        groups.setdefault(row.measurement.engine, []).append(ident)
    for label, idents in groups.items():
        peer = [abs(theirs[ident] / by_shape[ident].row.seconds - 1) for ident in idents]
        ours = [abs(by_shape[ident].error) for ident in idents]
        model_ours = [abs(by_model[ident].error) for ident in idents]
        cells = [_three(peer), _three(ours), _three(model_ours)]
        lines.append(f"| {label} | {len(idents):,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _three(sizes: Sequence[float]) -> str:
    return f"{median(sizes):.1%} / {fmean(sizes):.1%} / {float(np.quantile(sizes, 0.9)):.1%}"


def queue_table(by: Queued) -> str:
    """Errors of both, for every stack, as median / p90."""
    lines = [
        "| stack | rows | TTFT, closed form | TTFT, simulated | in P10-P90 | TPOT, closed form | TPOT, simulated |",
        "|---|---|---|---|---|---|---|",
    ]
    key = GROUPS["accelerator and engine"]
    keeps: list[tuple[str, Callable[[HeldOut], bool]]] = [("all", lambda _: True)]
    keeps += [("InferenceX only", lambda row: row.measurement.source.startswith("inferencex"))]
    for label in sorted({key(row) for row in by.first.rows}):
        keeps.append((label, lambda row, label=label: key(row) == label))  # type: ignore[misc]
    for label, keep in keeps:
        parts = [part.summary(keep) for part in (by.first, by.first_simulated, by.step, by.step_simulated)]
        sizes = [f"{part.median:.1%} / {part.p90:.1%}" for part in parts if part is not None]
        covered = f"{parts[1].coverage:.0%}" if parts[1] and parts[1].coverage is not None else ""
        lines.append(
            f"| {label} | {len([1 for row in by.first.rows if keep(row)]):,} | "
            + " | ".join([*sizes[:2], covered, *sizes[2:]])
            + " |"
        )
    return "\n".join(lines) + "\n"


def slow_starts(by: Queued) -> str:
    """Say how many rows were queued, and how many we would have queued."""
    late = [row for row in by.first_simulated.rows if row.row.seconds > _LATE * row.predicted_s]
    limited = [row for row in late if row.measurement.id in by.kv_limited]
    others = Counter(GROUPS["accelerator and engine"](row) for row in late if row not in limited)
    return (
        f"{len(by.kv_limited)} rows ask for more cache than we predict, counting every request at its full length.\n"
        "They were served, so they are simulated as if it were enough.\n"
        f"{len(limited)} of them came more than {_LATE} times later than simulated, as in a queue;\n"
        f"{others.total()} others came as late without being short of cache:\n"
        f"{', '.join(f'{label} {count}' for label, count in others.most_common())}."
    )


def worst_table(held: Held) -> str:
    """The configurations that cause the largest errors."""
    groups: dict[str, list[float]] = {}
    for row in held.rows:
        if row.measurement.scenario == "online":
            m = row.measurement
            label = f"{m.accelerator} {m.engine} {m.model} {m.weights} tp{m.tp}"
            groups.setdefault(label, []).append(row.error)
    worst = sorted((item for item in groups.items() if len(item[1]) >= 5), key=lambda item: -median(map(abs, item[1])))  # noqa: PLR2004
    lines = ["| configuration | rows | median | bias |", "|---|---|---|---|"]
    lines += [
        f"| {label} | {len(errors)} | {median(map(abs, errors)):.1%} | {median(errors):+.1%} |"
        for label, errors in worst[:12]
    ]
    return "\n".join(lines) + "\n"


def save(chart: Any, name: str) -> None:  # noqa: ANN401 - one of Altair's many chart types
    """Write a chart as SVG."""
    target = ROOT / "docs" / "images" / name
    target.write_text(vl_convert.vegalite_to_svg(chart.to_json()), encoding="utf-8")


def _data(values: Sequence[Mapping[str, object]]) -> Any:  # noqa: ANN401 - Altair does not type its data
    return alt.Data(values=values)  # type: ignore[no-untyped-call]


def charts(shape: Held) -> None:
    """Predicted against measured, and the tax over time."""
    points = [
        {"measured": row.row.seconds * 1e3, "predicted": row.predicted_s * 1e3, "vendor": _vendor(row)}
        for row in [row for row in shape.rows if row.measurement.scenario == "online"][::3]
    ]
    scale = alt.Scale(type="log", domain=[2, 200], nice=False)
    dots = (
        alt.Chart(_data(points))
        .mark_circle(size=14, opacity=0.35)
        .encode(
            x=alt.X("measured:Q", scale=scale, title="measured TPOT, ms"),
            y=alt.Y("predicted:Q", scale=scale, title="predicted TPOT, ms (its lengths never seen)"),
            color=alt.Color("vendor:N", title="every third row", scale=alt.Scale(range=["#d1495b", "#2e8b57"])),
        )
        .properties(width=420, height=420)
    )
    line = alt.Chart(_data([{"a": 2}, {"a": 200}])).mark_line(color="grey", strokeWidth=1)
    save(dots + line.encode(x="a:Q", y="a:Q"), "accuracy.svg")
    tax = [
        {"month": point.month, "speed": point.relative_speed, "stack": f"{point.accelerator} {point.engine}"}
        for point in delivered_over_time(believed_pairs(), from_document(load_efficiencies()).calibration)
        if point.accelerator in {"mi300x", "mi325x", "mi355x", "h200_sxm", "b200_sxm"}
    ]
    save(
        alt.Chart(_data(tax))
        .mark_line(point=True)
        .encode(
            x=alt.X("month:O", title=None),
            y=alt.Y("speed:Q", title="speed on the same work, first month = 1"),
            color=alt.Color("stack:N", title=None),
        )
        .properties(width=560, height=320),
        "tax.svg",
    )


def _vendor(row: HeldOut) -> str:
    return "AMD" if load_accelerator(row.measurement.accelerator).vendor == "amd" else "NVIDIA"


def main() -> int:
    """Compute and write everything."""
    held = {name: held_out(name) for name in FOLDS}
    rows: list[tuple[str, ErrorSummary]] = []
    for name, each in held.items():
        rows += [(f"{name}: {SCENARIOS[s]}", row) for s in SCENARIOS for _, row in summary_rows(each, s, None)]
    for day in CUTS:
        later = [row for row in before_and_after(measured_pairs(), day) if row.measurement.scenario == "online"]
        rows.append((f"date: fitted before {day}, serving after", summarise(later)))
    vendor_of = {row.measurement.accelerator: _vendor(row) for row in held["shape"].rows}
    winners = {}
    for name in ("shape", "model"):
        found = contests(held[name].rows, lambda part: vendor_of[part])
        winners[f"AMD against NVIDIA, {name} held out"] = [contest for contest in found if contest.cross_vendor]
        winners[f"any two accelerators, {name} held out"] = found
    by = {name: queued(name) for name in ("shape", "model")}
    template = (ROOT / "docs" / "accuracy.template.md").read_text(encoding="utf-8")
    page = template.format(
        rows=f"{len(measured_pairs()):,}",
        overall=markdown_table(rows, "held out by"),
        accelerators=markdown_table(summary_rows(held["shape"], "online", "accelerator"), "accelerator"),
        stacks=markdown_table(summary_rows(held["shape"], "online", "accelerator and engine"), "stack"),
        weights=markdown_table(summary_rows(held["shape"], "online", "weights"), "weights"),
        models=markdown_table(summary_rows(held["model"], "online", "model"), "model"),
        winners="\n".join(f"- {line}" for line in winner_lines(winners)),
        peer=peer_table(held["shape"], held["model"]),
        queue_shape=queue_table(by["shape"]),
        queue_model=queue_table(by["model"]),
        slow_starts=slow_starts(by["shape"]),
        worst=worst_table(held["model"]),
    )
    (ROOT / "docs" / "accuracy.md").write_text(page, encoding="utf-8")
    charts(held["shape"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
