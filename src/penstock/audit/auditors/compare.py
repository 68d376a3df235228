"""Is one setup that much faster than another, or than itself a while ago? Published pairs, then the model."""

from collections import defaultdict
from datetime import date
from math import log
from typing import Final

from penstock.audit.claim.record import ChangeStatement
from penstock.audit.claim.speed import ServedSetup, SpeedRatioStatement
from penstock.audit.grounds.near import figure_of, predicted_pairs, same_cells
from penstock.audit.judgement import Cited, Judgement, Verdict, figure, plainly, worked
from penstock.audit.library import Library
from penstock.catalog.measurement import Measurement
from penstock.performance.evidence.rows import setup_of

_APART: Final = 1.1
_FAR: Final = 1.25
_MODEL: Final = Cited(title="Penstock's performance model, P10 to P90", url="docs/accuracy.md")


def audit_speed_ratio(statement: SpeedRatioStatement, library: Library) -> Judgement:
    """Divide rates of the same load, published ones first."""
    measured = _measured_ratios(statement, library)
    if measured:
        return _by_pairs(statement, measured)
    pairs = predicted_pairs(statement.setup, statement.over, library) if library.efficiencies is not None else []
    if not pairs:
        return Judgement(
            verdict=Verdict.UNDETERMINED,
            reason="no published pair of this cell, and no model of both setups; the figures of both runs are missing",
        )
    low, high = min(pair.low for pair in pairs), max(pair.high for pair in pairs)
    nearest = min(pairs, key=lambda pair: abs(log(pair.mine / pair.yours / max(statement.amount.middle, 1e-9))))
    line = worked(
        f"{plainly(nearest.mine)} / {plainly(nearest.yours)}",
        float(plainly(nearest.mine)) / float(plainly(nearest.yours)),
        f"tok/s by the performance model, both with {nearest.load}",
    )
    inside = statement.amount.overlaps(low, high)
    stated = _load_stated(statement.setup)
    reason = (
        f"no published pair of this cell; the model gives {figure(float(f'{low:.2g}'))} to "
        f"{figure(float(f'{high:.2g}'))}x" + ("" if stated else ", over usual loads, for none is stated in full")
    )
    far = not statement.amount.overlaps(low / _FAR, high * _FAR)
    verdict = Verdict.IMPLAUSIBLE if far else Verdict.PLAUSIBLE if stated and inside else Verdict.UNDETERMINED
    return Judgement(verdict=verdict, reason=reason, workings=(line,), sources=(_MODEL,))


def _by_pairs(statement: SpeedRatioStatement, measured: list[tuple[float, Measurement, Measurement]]) -> Judgement:
    amount = statement.amount
    ratios = sorted(ratio for ratio, _, _ in measured)
    nearest, mine, yours = min(measured, key=lambda pair: abs(pair[0] - amount.middle))
    top, bottom = figure_of(mine, "throughput") or 0.0, figure_of(yours, "throughput") or 1.0
    line = worked(
        f"{plainly(top)} / {plainly(bottom)}",
        float(plainly(top)) / float(plainly(bottom)),
        f"tok/s of rows {mine.id} and {yours.id}, the nearest of {len(measured)} pairs",
    )
    if amount.meets(nearest):
        verdict, reason = Verdict.CONFIRMED, "a published pair of the same load says so"
    elif amount.overlaps(ratios[0], ratios[-1]):
        verdict, reason = Verdict.PLAUSIBLE, "between published pairs of the same load"
    else:
        far = not amount.overlaps(ratios[0] / _FAR, ratios[-1] * _FAR)
        verdict = Verdict.IMPLAUSIBLE if far else Verdict.PLAUSIBLE
        reason = "outside published pairs of the same load"
    spread = f"{figure(float(f'{ratios[0]:.3g}'))} to {figure(float(f'{ratios[-1]:.3g}'))}x"
    return Judgement(verdict=verdict, reason=f"{reason}: {spread}", workings=(line,))


def _measured_ratios(statement: SpeedRatioStatement, library: Library) -> list[tuple[float, Measurement, Measurement]]:
    """Pair rows of both setups that have the same load, engine and source."""
    if not _load_stated(statement.setup):
        return []
    theirs: dict[tuple[object, ...], list[Measurement]] = defaultdict(list)
    for row in same_cells(statement.over, library):
        theirs[_load(row)].append(row)
    pairs = []
    for row in same_cells(statement.setup, library):
        for other in theirs[_load(row)]:
            top, bottom = figure_of(row, "throughput"), figure_of(other, "throughput")
            if top is not None and bottom is not None:
                pairs.append((top / bottom, row, other))
    return pairs


def _load_stated(setup: ServedSetup) -> bool:
    return bool(setup.concurrency and setup.input_tokens and setup.output_tokens)


def _load(row: Measurement) -> tuple[object, ...]:
    return row.source, row.scenario, row.concurrency, round(row.input_tokens, -2), round(row.output_tokens, -2)


def audit_change(statement: ChangeStatement, library: Library) -> Judgement:
    """Compare the oldest and the newest dated row of every cell that was measured twice."""
    part = library.accelerator_of(statement.part)
    cells: dict[tuple[object, ...], list[Measurement]] = defaultdict(list)
    for row in library.measurements_of(part.id):
        if _counts(row, statement, library):
            cells[*setup_of(row), row.concurrency, row.input_tokens, row.output_tokens].append(row)
    ratios = []
    for rows in cells.values():
        ordered = sorted(rows, key=lambda row: row.date)
        first, last = ordered[0], ordered[-1]
        old, new = figure_of(first, "throughput"), figure_of(last, "throughput")
        if first.date < last.date and old and new:
            ratios.append((new / old, first, last, old, new))
    if not ratios:
        return Judgement(
            verdict=Verdict.UNDETERMINED,
            reason=f"no cell of {part.name} was published twice with this software; rows of both days are missing",
        )
    ratios.sort(key=lambda entry: entry[0])
    low, high = ratios[0][0], ratios[-1][0]
    nearest, first, last, old, new = min(ratios, key=lambda entry: abs(entry[0] - statement.amount.middle))
    line = worked(
        f"{plainly(new)} / {plainly(old)}",
        float(plainly(new)) / float(plainly(old)),
        f"tok/s of {last.model} on {last.date} over {first.date}, the nearest of {len(ratios)} cells",
    )
    near = statement.amount.overlaps(nearest / _APART, nearest * _APART)
    far = not statement.amount.overlaps(low / _FAR, high * _FAR)
    verdict = Verdict.CONFIRMED if near else Verdict.IMPLAUSIBLE if far else Verdict.PLAUSIBLE
    return Judgement(
        verdict=verdict,
        reason=f"{len(ratios)} cells measured twice changed by {figure(float(f'{low:.3g}'))} to "
        f"{figure(float(f'{high:.3g}'))}x",
        workings=(line,),
        sources=tuple(
            Cited(title=found.title, url=found.url)
            for found in (library.sources.get(source) for source in sorted({first.source, last.source}))
            if found is not None
        ),
    )


def _counts(row: Measurement, statement: ChangeStatement, library: Library) -> bool:
    if row.dated != "day" or not row.plain:
        return False
    if statement.engine is not None and row.engine != statement.engine:
        return False
    if statement.model is not None and library.shape_of(row.model) != library.shape_of(
        library.model_of(statement.model).name
    ):
        return False
    return (statement.since or date.min) <= row.date <= (statement.until or date.max)
